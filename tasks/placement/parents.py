"""The flow runs that want a child: whether they still do, and what becomes of it if not."""

from __future__ import annotations

import logging
from typing import Any

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterTags
from prefect.client.schemas.objects import FlowRun, State
from prefect.client.schemas.sorting import FlowRunSort
from prefect.context import FlowRunContext

from tasks.placement.api import PatientApi, cancel_run, line
from tasks.placement.names import MOST, parent_tag
from tasks.progress import Cancelled

log = logging.getLogger("genenv.stage")


class Abandoned(BaseException):
    """This flow run is over or will be started anew; its child goes on."""


class Parents:
    """This flow run and those that it is part of."""

    def __init__(self, api: PatientApi, stage: str) -> None:
        """Look up the flow run that this code runs in, and what that is part of."""
        self._api, self._stage = api, stage
        self._runs = _ancestors(api.client)

    @property
    def tags(self) -> list[str]:
        """Return the tags by which a child of theirs is found."""
        return [parent_tag(run.id) for run in self._runs]

    def check(self) -> None:
        """Raise Cancelled when one was cancelled, and Abandoned when one is over otherwise."""
        for run in self._runs:
            state = self._api.ask(lambda client, run=run: client.read_flow_run(run.id)).state
            if state is None or state.is_running() or state.is_pending():
                continue
            if not (state.is_cancelling() or state.is_cancelled()):
                # This flow is not what runs any more; whoever continues it takes the child over.
                raise Abandoned(f"its flow run is {state.name}")
            raise Cancelled

    def are_awaited(self) -> bool:
        """Return whether a worker will start this flow again: it was evicted, and not cancelled.

        The flow run that is started again takes the child over.
        """
        if not self._runs or self._runs[-1].deployment_id is None:
            return False
        try:
            state = self._api.client.read_flow_run(self._runs[-1].id).state
        except Exception as error:
            log.warning("stage=%s the Prefect API is away: %s", self._stage, line(error))
            return False
        return state is not None and not (state.is_cancelling() or state.is_cancelled())


def cancel_children(flow: Any, flow_run: FlowRun, state: State) -> None:
    """Cancel what a cancelled flow has on pools; Prefect calls it where the flow's process died."""
    with get_client(sync_client=True) as client:
        for run in client.read_flow_runs(
            flow_run_filter=FlowRunFilter(tags=FlowRunFilterTags(all_=[parent_tag(flow_run.id)])),
            sort=FlowRunSort.EXPECTED_START_TIME_DESC,
            limit=MOST,
        ):
            if run.state and not run.state.is_final() and not run.state.is_cancelling():
                cancel_run(client, run.id, "the flow that wanted it was cancelled")


def _ancestors(client: SyncPrefectClient) -> list[FlowRun]:
    """Return this flow run and those that it is part of, the outermost last."""
    context = FlowRunContext.get()
    found: list[FlowRun] = []
    run = context.flow_run if context else None
    while run is not None:
        found.append(run)
        if run.parent_task_run_id is None:
            break
        task = client.read_task_run(run.parent_task_run_id)
        run = client.read_flow_run(task.flow_run_id) if task.flow_run_id else None
    return found
