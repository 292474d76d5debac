"""ALFWorld as a domain: its games, and those of its train split to train on."""

from genenv_core.benchmarks.alfworld.training.alfworld_domain import AlfworldDomain

__all__ = ["AlfworldDomain"]
