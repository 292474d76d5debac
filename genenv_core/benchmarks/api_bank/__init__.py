"""API-Bank, levels 1 to 3: calls of tools and responses in dialogues (Li et al., 2304.08244)."""

from genenv_core.benchmarks.api_bank.suite import BENCHMARK

__all__ = ["BENCHMARK"]
