"""Bamboogle: 125 questions of two hops, each with one short answer (Press et al., 2210.03350)."""

from genenv_core.benchmarks.bamboogle.suite import BENCHMARK

__all__ = ["BENCHMARK"]
