"""Decides which tasks an epoch attempts: windows of a set, and refills of flat groups."""
