"""API-Bank as a domain: its calls and responses, and training requests for the same APIs."""

from genenv_core.benchmarks.api_bank.training.api_bank_domain import ApiBankDomain, ApiBankOptions

__all__ = ["ApiBankDomain", "ApiBankOptions"]
