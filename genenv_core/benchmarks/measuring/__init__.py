"""Measures a model on a benchmark: items, attempts at them, and metrics."""
