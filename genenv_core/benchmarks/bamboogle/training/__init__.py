"""Bamboogle as a domain: its questions, and training questions about a fictional world."""

from genenv_core.benchmarks.bamboogle.training.domain import BamboogleDomain, BamboogleOptions

__all__ = ["BamboogleDomain", "BamboogleOptions"]
