"""TravelPlanner as a domain: its queries, and those of its train split to train on."""

from genenv_core.benchmarks.travelplanner.training.travelplanner_domain import TravelPlannerDomain

__all__ = ["TravelPlannerDomain"]
