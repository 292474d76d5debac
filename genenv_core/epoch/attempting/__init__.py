"""Decides which tasks an epoch attempts: choice, windows of a set, and refills of flat groups."""
