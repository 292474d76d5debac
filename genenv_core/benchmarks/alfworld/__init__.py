"""ALFWorld: household tasks as text games (Shridhar et al., 2010.03768)."""

from genenv_core.benchmarks.alfworld.suite import BENCHMARK

__all__ = ["BENCHMARK"]
