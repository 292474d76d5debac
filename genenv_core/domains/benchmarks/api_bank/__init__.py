"""API-Bank as a domain: its calls and responses, and training requests for the same APIs."""

from genenv_core.domains.benchmarks.api_bank.domain import ApiBankDomain, ApiBankOptions

__all__ = ["ApiBankDomain", "ApiBankOptions"]
