"""Pools of a run as data sets: rows, files and a card."""
