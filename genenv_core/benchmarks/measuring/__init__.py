"""Measuring a model on a benchmark: its items, attempts at them, and what these add up to."""
