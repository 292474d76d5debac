"""The flow runs that want a child: says whether they still want it, and cancels unwanted ones."""

from __future__ import annotations

import logging
from typing import Any

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import FlowRun, State
from prefect.context import FlowRunContext
from prefect.states import Cancelling

from genenv_core.errors import described
from tasks.placement.api import PatientApi, runs_with
from tasks.placement.names import parent_tag
from tasks.stage.progress import Cancelled

log = logging.getLogger("genenv.stage")


class Abandoned(BaseException):
    """This flow run has ended, or a worker will start it anew; its child goes on."""


class Parents:
    """This flow run and those around it."""

    def __init__(self, api: PatientApi, stage: str) -> None:
        """Look up the flow run that this code runs in, and those around it."""
        self._api, self._stage = api, stage
        self._runs = _ancestors(api.client)

    @property
    def tags(self) -> list[str]:
        """Return the tags of their children."""
        return [parent_tag(run.id) for run in self._runs]

    def check(self) -> None:
        """Raise Cancelled if somebody cancelled one, Abandoned if one has ended otherwise."""
        for run in self._runs:
            state = self._api.ask(lambda client, run=run: client.read_flow_run(run.id)).state
            if state is None or state.is_running() or state.is_pending():
                continue
            if not (state.is_cancelling() or state.is_cancelled()):
                # This flow no longer runs; the flow run that continues it takes the child over.
                raise Abandoned(f"its flow run is {state.name}")
            raise Cancelled

    def are_awaited(self) -> bool:
        """Return whether a worker will start this flow again: evicted, and not cancelled.

        The new attempt of the flow run takes the child over.
        """
        if not self._runs or self._runs[-1].deployment_id is None:
            return False
        try:
            state = self._api.client.read_flow_run(self._runs[-1].id).state
        except Exception as error:
            log.warning("stage=%s the Prefect API is away: %s", self._stage, described(error, 300))
            return False
        return state is not None and not (state.is_cancelling() or state.is_cancelled())


def cancel_children(flow: Any, flow_run: FlowRun, state: State) -> None:
    """Cancel the children of a cancelled flow; Prefect calls this when the flow's process died."""
    with get_client(sync_client=True) as client:
        for run in runs_with(client, parent_tag(flow_run.id)):
            if run.state and not run.state.is_final() and not run.state.is_cancelling():
                why = "the flow that wanted it was cancelled"
                client.set_flow_run_state(run.id, Cancelling(message=why))


def _ancestors(client: SyncPrefectClient) -> list[FlowRun]:
    """Return this flow run and those around it, the outermost last."""
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
