"""Measurements, each a module that prints a table: `python -m tests.bench.NAME`."""
