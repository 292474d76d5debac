"""Compares texts: their numbers, what one says of another, how alike they are."""
