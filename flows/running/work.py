"""Carries out a run's work in this process, which a terminal or a worker has started.

A killed process cannot report to the Prefect API, so its flow runs would stay Running for ever.
Each run tags its flow runs with its process, and marks those of processes that have ended.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from importlib import import_module
from typing import TypeVar

from prefect import tags
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, TaskRunFilter
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.client.schemas.sorting import FlowRunSort, TaskRunSort
from prefect.states import Crashed

from flows.running.signals import supervise
from genenv_core.canonical import digest
from genenv_core.importing import collect_seldom
from genenv_core.storage.store.process import has_ended, identity, machine
from tasks.placement.names import MOST, OURS
from tasks.policies.trainer import ended

log = logging.getLogger("genenv.flows")

Result = TypeVar("Result")

_PROCESS = "process "
_OPEN = [StateType.RUNNING, StateType.PENDING]
_MESSAGE = "its process ended without a report; the same command continues it"


def do_work(work: Callable[[], Result], soft: type[BaseException]) -> Result:
    """Return what `work` returns; its flow runs name this process, and its workers end with it.

    SIGTERM raises `soft`, after stages have reached a point where they can continue.
    """
    collect_seldom()
    _import_alone()
    mark_orphans()
    with tags(*process_tags()), ended():
        return supervise(work, soft)


def _import_alone() -> None:
    """Import transformers before two stages side by side can do so at once.

    transformers replaces itself in sys.modules at the end of its import, so a second thread that
    waits for that import would get a module without classes.
    """
    import_module("transformers")


def process_tags() -> list[str]:
    """Return the tags by which `mark_orphans` later finds this process's flow runs."""
    pid = os.getpid()
    return [OURS, f"{_PROCESS}{pid}.{identity(pid).rpartition(' ')[2]}@{_machine()}"]


def mark_orphans() -> int:
    """Mark the flow runs of ended processes of this machine as Crashed; return how many.

    It skips retried flow runs, which have the tags of their first process.
    """
    with get_client(sync_client=True) as client:
        found = client.read_flow_runs(
            flow_run_filter=_ours(_OPEN), sort=FlowRunSort.START_TIME_DESC, limit=MOST
        )
        orphans = [run for run in found if run.run_count <= 1 and _is_orphan(run)]
        for run in orphans:
            client.set_flow_run_state(run.id, Crashed(message=_MESSAGE), force=True)
            log.info("flow_run=%s name=%r marked as crashed", run.id, run.name)
            one = FlowRunFilter.model_validate({"id": {"any_": [run.id]}})
            _mark_tasks(client, one, _OPEN)
        # A worker and the heartbeats cover flow runs only, not the stage tasks at work in them.
        _mark_tasks(client, _ours([StateType.CRASHED]), [StateType.RUNNING])
    return len(orphans)


def _ours(states: list[StateType]) -> FlowRunFilter:
    """Return the filter for genenv's flow runs in one of these states."""
    return FlowRunFilter.model_validate(
        {"tags": {"all_": [OURS]}, "state": {"type": {"any_": states}}}
    )


def _mark_tasks(
    client: SyncPrefectClient, flow_runs: FlowRunFilter, states: list[StateType]
) -> None:
    """Mark the stage tasks of these flow runs that are in one of these states as Crashed."""
    tasks = client.read_task_runs(
        flow_run_filter=flow_runs,
        task_run_filter=TaskRunFilter.model_validate({"state": {"type": {"any_": states}}}),
        sort=TaskRunSort.EXPECTED_START_TIME_DESC,
        limit=MOST,
    )
    for task in tasks:
        client.set_task_run_state(task.id, Crashed(message=_MESSAGE), force=True)


def _is_orphan(run: FlowRun) -> bool:
    for tag in run.tags:
        if tag.startswith(_PROCESS):
            process, _, where = tag.removeprefix(_PROCESS).partition("@")
            pid, _, started = process.partition(".")
            return where == _machine() and has_ended(int(pid), f"{machine()} {started}")
    return False


def _machine() -> str:
    """Return a short mark of this machine: the UI shows tags."""
    return digest(machine())[:6]
