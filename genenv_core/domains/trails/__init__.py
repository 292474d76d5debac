"""The domain trails: questions whose answer takes one look at a card after the other."""

from genenv_core.domains.trails.trails_domain import TrailsDomain

__all__ = ["TrailsDomain"]
