"""The flow run of one stage on one pool: started, followed, and asked for what it left.

A child is found by its idempotency key: root, pool, stage key and attempt. While one is not over,
whoever wants the stage gets that one, so a flow that died leaves nothing that is started twice.
Once it is over without a manifest, the next one has the next attempt number.
"""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Callable
from typing import Any, NoReturn
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterTags
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound
from prefect.states import Crashed

from genenv_core.config.load import dump
from genenv_core.config.placement import PlacementConfig
from genenv_core.config.schema import RunConfig
from genenv_core.errors import StageError, StorageError
from genenv_core.storage import paths
from genenv_core.storage.canonical import digest
from genenv_core.storage.manifest import Manifest
from tasks.inputs import Inputs, encode
from tasks.placement.api import PatientApi, cancel_run, line
from tasks.placement.names import MOST, OURS, child_tag, deployment_name
from tasks.placement.parents import Parents
from tasks.placement.pods import Pods, pods_of
from tasks.progress import Cancelled, Event, check, emit
from tasks.stores import artifacts_of

log = logging.getLogger("genenv.stage")

MANIFEST_S = 60.0
"""How long the manifest of an ended child may stay unseen: network file systems cache."""

TOLD_S = 15.0
"""How long a child that ended badly is asked why before its pods have told."""

STUCK_S = 60.0
"""How long a pod may be unable to start (no image, no secret) before its stage fails."""

_VERBS = {
    StateType.FAILED: "failed",
    StateType.CRASHED: "crashed",
    StateType.CANCELLED: "was cancelled",
}


def compute_on_pool(
    stage: str,
    config: RunConfig,
    epoch: int,
    inputs: Inputs,
    pool: str,
    key: str,
    parts: dict[str, Any],
    find: Callable[[], Manifest | None],
) -> Manifest:
    """Return the manifest of a stage once a child on the pool has written it.

    Raises StageError with the child's own reason when it ends without one, and Cancelled when this
    flow is to end; a cancelled flow takes its child with it.
    """
    with get_client(sync_client=True) as client:
        child = Child(client, stage, config, epoch, pool, key)
        child.start(inputs, parts)
        try:
            child.follow()
        except Cancelled:
            if not child.parents.are_awaited():
                child.cancel("the flow that wanted it was cancelled")
            raise
        return child.result(find)


class Child:
    """The flow run of one stage on one pool, followed by the stage task that wants it."""

    def __init__(
        self,
        client: SyncPrefectClient,
        stage: str,
        config: RunConfig,
        epoch: int,
        pool: str,
        key: str,
    ) -> None:
        """Follow the child of this stage key; nothing is started yet."""
        self._stage, self._epoch, self._pool, self._key = stage, epoch, pool, key
        self._config, self._settings = config, config.placement
        self._store = artifacts_of(config.root).store
        self._where = f"stage {stage} of epoch {epoch} on pool {pool}"
        self._api = PatientApi(client, config.placement, stage, self._where)
        self.parents = Parents(self._api, stage)
        self._pods: Pods | None = None
        self._run_id = UUID(int=0)
        self._said = ""

    def start(self, inputs: Inputs, parts: dict[str, Any]) -> None:
        """Create the child, or find the one that another process has created."""
        name = deployment_name(self._stage, self._pool)
        try:
            self._pods = pods_of(self._api.ask(lambda client: client.read_work_pool(self._pool)))
            missing = self._pods.missing_secrets() if self._pods else []
            if missing:
                raise StageError(
                    f"{self._where}: there is no {' and no '.join(missing)}, which the pods of the "
                    "pool need: create what is missing and run the same command again"
                )
            base = digest([self._store.uri, self._pool, self._key])[:32]
            attempt = self._attempt(child_tag(base))
            child = self._api.ask(
                lambda _: run_deployment(
                    name,
                    parameters=self._parameters(inputs, parts),
                    flow_run_name=f"{self._stage} · epoch {self._epoch} · {self._config.run_id}",
                    timeout=0,
                    tags=[OURS, child_tag(base), *self.parents.tags],
                    idempotency_key=f"{base}.{attempt}",
                )
            )
        except ObjectNotFound as error:
            raise StageError(
                f"{self._where}: the Prefect server has no work pool {self._pool!r} with a "
                f"deployment {name!r}: make both with `genenv pool {self._pool}`"
            ) from error
        self._run_id = child.id
        log.info(
            "stage=%s epoch=%d key=%s pool=%s attempt=%d flow_run=%s %s",
            self._stage, self._epoch, self._key[:12], self._pool, attempt, child.id,
            "is sent" if child.state and child.state.is_scheduled() else "is at work already",
        )  # fmt: skip

    def follow(self) -> None:
        """Return when the child is over; raises StageError when nothing will come of it."""
        began, alive, sign = time.monotonic(), time.monotonic(), b""
        stuck: float | None = None
        while True:
            child = self._api.ask(lambda client: client.read_flow_run(self._run_id))
            state = child.state
            if state is None or state.is_final():
                return
            now = time.monotonic()
            if state.is_running() or state.is_cancelling():
                began, stuck = now, None
                self._say(f"runs on pool {self._pool}")
                if (seen := self._sign(child)) != sign:
                    sign, alive = seen, now
                if now - alive > self._settings.lost_seconds:
                    self._lost()
            else:
                alive = now
                trouble, hopeless = self._waits_for(state)
                stuck = (stuck or now) if hopeless else None
                if now - began > self._settings.start_seconds or (stuck and now - stuck > STUCK_S):
                    self.cancel(f"it did not start: {trouble}")
                    raise StageError(
                        f"{self._where} did not start in {now - began:.0f} s: {trouble}"
                    )
                self._say(f"waits for pool {self._pool}: {trouble}")
            self._pause()

    def result(self, find: Callable[[], Manifest | None]) -> Manifest:
        """Return what the child that is over has left; raises StageError with its reason."""
        state = self._api.ask(lambda client: client.read_flow_run(self._run_id)).state
        deadline = time.monotonic() + (MANIFEST_S if state and state.is_completed() else 0)
        while (manifest := find()) is None and time.monotonic() < deadline:
            check()
            time.sleep(1)
        if manifest is not None:  # it may have been cancelled or killed right after its commit
            return manifest
        if state is None or state.is_completed():
            raise StageError(
                f"{self._where} has ended, but its output is not in {self._store.uri}: the pool's "
                "processes must see this root under the same name"
            )
        raise StageError(f"{self._where} {_VERBS.get(state.type, 'ended')}: {self._why(state)}")

    def cancel(self, why: str) -> None:
        """Ask the child to end; what Prefect does not hear of is told in the log."""
        try:
            cancel_run(self._api.client, self._run_id, why)
        except Exception as error:  # how the stage ends matters more
            log.warning("flow_run=%s could not be cancelled: %s", self._run_id, line(error))

    def _parameters(self, inputs: Inputs, parts: dict[str, Any]) -> dict[str, Any]:
        # The child sees the store by its full name, and computes where it is.
        own = self._config.model_copy(
            update={"root": self._store.uri, "placement": PlacementConfig()}
        )
        return {
            "config": dump(own),
            "stage": self._stage,
            "epoch": self._epoch,
            "inputs": encode(inputs),
            "parts": parts,
        }

    def _attempt(self, tag: str) -> int:
        """Return the number of the child that is not over yet, or the next one's."""
        found = self._api.ask(
            lambda client: client.read_flow_runs(
                flow_run_filter=FlowRunFilter(tags=FlowRunFilterTags(all_=[tag])),
                sort=FlowRunSort.EXPECTED_START_TIME_DESC,
                limit=MOST,
            )
        )
        numbers = {_number(run): run for run in found}
        last = max(numbers, default=0)
        over = last == 0 or numbers[last].state is None or numbers[last].state.is_final()
        return last + 1 if over else last

    def _sign(self, child: FlowRun) -> bytes:
        """Return what changes while the child works: its starts, and the beats of its lease."""
        sign = f"{child.run_count} {child.state_id} ".encode()
        with contextlib.suppress(StorageError):  # no lease yet, or no more
            sign += self._store.read(paths.lease(self._stage, self._key))
        return sign

    def _waits_for(self, state: State) -> tuple[str, bool]:
        """Return what a child that has not begun waits for, and whether that will not come."""
        if state.is_pending() and self._pods and (found := self._pods.trouble(self._run_id)):
            return found
        if state.is_pending():
            return "its process is being started", False
        pool = self._api.ask(lambda client: client.read_work_pool(self._pool))
        if pool.is_paused:
            return f"the work pool is paused: prefect work-pool resume {self._pool}", False
        if pool.status and pool.status.value == "NOT_READY":
            return f"no worker is alive: prefect worker start --pool {self._pool}", False
        return "no worker has taken it yet", False

    def _why(self, state: State) -> str:
        """Return why a child ended badly, in one line: what its pod tells, or its own state."""
        told = _message(state)
        if state.type == StateType.FAILED or self._pods is None:
            return told
        deadline = time.monotonic() + TOLD_S
        while (found := self._pods.trouble(self._run_id)) is None and time.monotonic() < deadline:
            time.sleep(1)
        return found[0] if found else told

    def _lost(self) -> NoReturn:
        why = f"no sign of life for {self._settings.lost_seconds:.0f} s"
        self._api.ask(
            lambda client: client.set_flow_run_state(
                self._run_id, Crashed(message=f"lost: {why}"), force=True
            )
        )
        raise StageError(
            f"{self._where} is lost: {why}; the same command starts it again from what it kept"
        )

    def _say(self, message: str) -> None:
        """Tell once what is waited for."""
        if message == self._said:
            return
        self._said = message
        log.info("stage=%s epoch=%d %s", self._stage, self._epoch, message)
        emit(Event("waiting", self._stage, self._epoch, message=message))

    def _pause(self) -> None:
        """Wait for the next look; raises Cancelled when this flow is to end."""
        deadline = time.monotonic() + self._settings.poll_seconds
        while time.monotonic() < deadline:
            check()
            time.sleep(0.1)
        self.parents.check()


def _number(run: FlowRun) -> int:
    return int((run.idempotency_key or ".0").rpartition(".")[2])


def _message(state: State) -> str:
    """Return a state's message without what Prefect puts around an exception."""
    text = " ".join((state.message or "").split())
    found = re.search(r"encountered an exception: (?:\w+: )?(.*)", text)
    return (found[1] if found else text)[:1000] or f"its flow run ended as {state.name}"
