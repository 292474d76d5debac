"""BFCL as a domain: its items to evaluate with, and requests for calls to train on."""

from genenv_core.benchmarks.bfcl.training.bfcl_domain import BfclDomain, BfclOptions

__all__ = ["BfclDomain", "BfclOptions"]
