"""Orchestration: flows, deployments and the command line."""

from genenv_core.importing import check_ours

check_ours("tasks")
