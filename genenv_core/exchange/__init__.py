"""Pools as data sets that other tools read, and base tasks from what others wrote."""
