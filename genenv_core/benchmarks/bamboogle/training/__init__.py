"""Bamboogle as a domain: its questions, and training questions about a fictional world."""

from genenv_core.benchmarks.bamboogle.training.bamboogle_domain import (
    BamboogleDomain,
    BamboogleOptions,
)

__all__ = ["BamboogleDomain", "BamboogleOptions"]
