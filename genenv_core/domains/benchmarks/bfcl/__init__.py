"""BFCL as a domain: its items to be evaluated with, and requests for calls to train on."""

from genenv_core.domains.benchmarks.bfcl.domain import BfclDomain, BfclOptions

__all__ = ["BfclDomain", "BfclOptions"]
