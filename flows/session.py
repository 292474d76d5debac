"""What surrounds a flow that a worker carries out: alone on its run, told about, quick to end.

`genenv run` has the terminal and its signals (`flows/cli`); here the Prefect API is what a person
looks at, and the worker is what sends signals. Prefect's own SIGTERM handler stays in place: only
under it does a flow learn that it was cancelled.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from prefect import get_run_logger, tags
from prefect.exceptions import TerminationSignal

from flows.artifacts import Publisher
from flows.failures import as_the_stage_told
from flows.orphans import mark_orphans, process_tags
from flows.signals import supervise
from flows.summary import publish_summary
from genenv_core.config.schema import RunConfig
from tasks import progress, services
from tasks.stores import leases_of

Result = TypeVar("Result")

LEASE = "run"
"""Kind of lease that a flow holds on its run, so that a second one of the same run waits."""


def carry_out(config: RunConfig, work: Callable[[], Result]) -> Result:
    """Return what `work` returns, done as a worker's flow on the run of this configuration."""
    logging.getLogger("genenv").setLevel(logging.INFO)  # what stages say belongs in the flow's log
    mark_orphans()
    publisher = Publisher(config)
    with progress.listening(publisher.listen), tags(*process_tags()):
        try:
            with as_the_stage_told(publisher):
                # On SIGTERM the stages first come to where they can go on.
                return supervise(lambda: _alone(config, work), soft=TerminationSignal)
        finally:
            services.close()
            publisher.close()
            publish_summary(config, publisher)


def _alone(config: RunConfig, work: Callable[[], Result]) -> Result:
    """Do the work while no other flow is at work on the same run."""
    logger = get_run_logger()

    def waiting(holder: str) -> None:
        logger.info("run %s is at work in %s: waiting for it to end", config.run_id, holder)

    leases, run = leases_of(config.root), str(config.run_id)
    with leases.hold(LEASE, run, lambda: None, waiting=waiting, check=progress.check):
        return work()
