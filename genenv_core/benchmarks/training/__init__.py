"""Benchmarks as domains: their items as episodes, and training tasks of the same kind."""
