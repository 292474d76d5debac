"""TravelPlanner: trips of 3, 5 or 7 days, planned over a database (Xie et al., 2402.01622)."""

from genenv_core.benchmarks.travelplanner.suite import BENCHMARK

__all__ = ["BENCHMARK"]
