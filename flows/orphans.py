"""Flow runs whose process is gone.

A process that is killed cannot tell the Prefect API, so its flow runs would stay Running for ever.
Each run tags its flow runs with its process, and marks those of processes that have ended.
"""

from __future__ import annotations

import logging
import os

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterId,
    FlowRunFilterState,
    FlowRunFilterStateType,
    FlowRunFilterTags,
    TaskRunFilter,
    TaskRunFilterState,
    TaskRunFilterStateType,
)
from prefect.client.schemas.objects import StateType
from prefect.client.schemas.sorting import FlowRunSort, TaskRunSort
from prefect.states import Crashed

from genenv_core.storage.canonical import digest
from genenv_core.storage.process import has_ended, identity, machine
from tasks.placement.names import MOST, OURS

log = logging.getLogger("genenv.flows")

_PROCESS = "process "
_OPEN = [StateType.RUNNING, StateType.PENDING]
_CRASHED = FlowRunFilter(
    tags=FlowRunFilterTags(all_=[OURS]),
    state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.CRASHED])),
)
_MESSAGE = "its process has ended without a word; the same command continues it"


def process_tags() -> list[str]:
    """Return the tags under which the flow runs of this process are found once it is gone."""
    pid = os.getpid()
    return [OURS, f"{_PROCESS}{pid}.{identity(pid).rpartition(' ')[2]}@{_machine()}"]


def mark_orphans() -> int:
    """Mark the flow runs of ended processes of this machine as Crashed; returns how many.

    A flow run that was retried has the tags of its first process and is left alone.
    """
    running = FlowRunFilter(
        tags=FlowRunFilterTags(all_=[OURS]),
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=_OPEN)),
    )
    with get_client(sync_client=True) as client:
        found = client.read_flow_runs(
            flow_run_filter=running, sort=FlowRunSort.START_TIME_DESC, limit=MOST
        )
        orphans = [run for run in found if run.run_count <= 1 and _ended(run.tags)]
        for run in orphans:
            client.set_flow_run_state(run.id, Crashed(message=_MESSAGE), force=True)
            log.info("flow_run=%s name=%r marked as crashed", run.id, run.name)
            _mark_tasks(client, FlowRunFilter(id=FlowRunFilterId(any_=[run.id])), _OPEN)
        # A worker and the heartbeats see to flow runs only; the stage tasks at work in them stay.
        _mark_tasks(client, _CRASHED, [StateType.RUNNING])
    return len(orphans)


def _mark_tasks(
    client: SyncPrefectClient, flow_runs: FlowRunFilter, states: list[StateType]
) -> None:
    """Mark the stage tasks of these flow runs that are in one of these states as Crashed."""
    tasks = client.read_task_runs(
        flow_run_filter=flow_runs,
        task_run_filter=TaskRunFilter(
            state=TaskRunFilterState(type=TaskRunFilterStateType(any_=states))
        ),
        sort=TaskRunSort.EXPECTED_START_TIME_DESC,
        limit=MOST,
    )
    for task in tasks:
        client.set_task_run_state(task.id, Crashed(message=_MESSAGE), force=True)


def _ended(tags: list[str]) -> bool:
    for tag in tags:
        if tag.startswith(_PROCESS):
            process, _, where = tag.removeprefix(_PROCESS).partition("@")
            pid, _, started = process.partition(".")
            return where == _machine() and has_ended(int(pid), f"{machine()} {started}")
    return False


def _machine() -> str:
    """Return a short mark of this machine: tags are on the screen."""
    return digest(machine())[:6]
