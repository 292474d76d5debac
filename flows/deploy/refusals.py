"""Names a flow run after what is wrong with its request, so that a list of runs says so."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager

from prefect.client.orchestration import get_client
from prefect.runtime import flow_run

from flows.deploy.log_lines import USAGE
from genenv_core.errors import GenenvError, described, one_line

log = logging.getLogger("genenv.flows")

LENGTH = 200
"""Most characters of an error in the name of a flow run; its log has the whole line."""


@contextmanager
def refusals_named() -> Generator[None]:
    """Name this flow run `refused` where what the block raises says that its request is wrong."""
    try:
        yield
    except GenenvError as error:
        if error.exit_status == USAGE:
            _rename(f"refused · {one_line(error, LENGTH)}")
        raise


def _rename(name: str) -> None:
    """Name this flow run; an API that is away costs the name alone."""
    try:
        with get_client(sync_client=True) as client:
            client.update_flow_run(flow_run.id, name=name)
    except Exception as error:  # what is wrong with the request matters more
        log.warning("the flow run keeps its name: %s", described(error, 300))
