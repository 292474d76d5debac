"""The domain trails: the agent answers a question after looks at one card after the other."""

from genenv_core.domains.trails.trails_domain import TrailsDomain

__all__ = ["TrailsDomain"]
