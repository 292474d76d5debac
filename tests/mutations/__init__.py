"""Edits that break one rule each, with the tests that must notice: `python -m tests.mutations`."""
