"""The spending of runs: seconds, tokens and their price; limits on it; and predictions."""
