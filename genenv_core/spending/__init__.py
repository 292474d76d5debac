"""What runs spend: seconds, tokens and their price; limits on it; and predictions."""
