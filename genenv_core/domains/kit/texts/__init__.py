"""How texts are compared: the numbers in them, what one says of another, how alike they are."""
