"""BFCL: function calls compared with listed ones (Berkeley Function Calling Leaderboard, v4)."""

from genenv_core.benchmarks.bfcl.suite import BENCHMARK

__all__ = ["BENCHMARK"]
