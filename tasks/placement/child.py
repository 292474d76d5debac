"""Starts the flow run of one stage on one work pool, follows it, and returns its result.

The idempotency key identifies a child: root, work pool, stage key and attempt. While a child works,
every flow that wants the stage gets it, so nobody starts the child of a dead flow twice. If it ends
without a manifest, the next child has the next attempt number.
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
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound
from prefect.states import Crashed

from genenv_core.canonical import digest
from genenv_core.config.load import dump
from genenv_core.config.schema import RunConfig
from genenv_core.config.sections.placement import PlacementConfig
from genenv_core.errors import StageError, StorageError, one_line
from genenv_core.storage import paths
from genenv_core.storage.records.manifest import Manifest
from genenv_core.storage.store.leases import doing
from tasks.placement.api import PatientApi, runs_with
from tasks.placement.names import OURS, child_tag, deployment_name
from tasks.placement.parents import Parents
from tasks.placement.pods import PodLook, Pods, pods_of
from tasks.stage.inputs import Inputs, encode
from tasks.stage.progress import LINE_S, Cancelled, Event, check, emit
from tasks.stage.stores import artifacts_of
from tasks.stage.telemetry.spans import current

log = logging.getLogger("genenv.stage")

MANIFEST_S = 60.0
"""How long to wait for the manifest of an ended child: network file systems cache."""

REASON_S = 15.0
"""How long to wait for the reason of a child that ended badly."""

STUCK_S = 60.0
"""How long a pod may be unable to start (no image, no secret) before its stage fails."""

_VERBS = {
    StateType.FAILED: "failed",
    StateType.CRASHED: "crashed",
    StateType.CANCELLED: "was cancelled",
}


def compute_on_work_pool(
    stage: str,
    config: RunConfig,
    epoch: int,
    inputs: Inputs,
    work_pool: str,
    key: str,
    parts: dict[str, Any],
    find: Callable[[], Manifest | None],
) -> Manifest:
    """Return the manifest of a stage once a child on the work pool has written it.

    Raises StageError with the child's own reason when it ends without one, and Cancelled when
    somebody cancels this flow, which then cancels its child too.
    """
    with get_client(sync_client=True) as client:
        child = ChildRun(client, stage, config, epoch, work_pool, key)
        child.start(inputs, parts)
        try:
            child.follow()
        except Cancelled:
            if not child.parents.are_awaited():
                child.cancel("the flow that wanted it was cancelled")
            raise
        return child.result(find)


class ChildRun:
    """The flow run of one stage on one work pool, followed by the stage task that wants it."""

    def __init__(
        self,
        client: SyncPrefectClient,
        stage: str,
        config: RunConfig,
        epoch: int,
        work_pool: str,
        key: str,
    ) -> None:
        """Follow the child of this stage key; `start` starts it."""
        self._stage, self._epoch, self._work_pool, self._key = stage, epoch, work_pool, key
        self._config, self._settings = config, config.placement
        self._store = artifacts_of(config.root).store
        self._where = f"stage {stage} of epoch {epoch} on work pool {work_pool}"
        self._api = PatientApi(client, config.placement, self._where)
        self.parents = Parents(self._api, stage)
        self._pods: Pods | None = None
        self._run_id = UUID(int=0)
        self._said = ""

    def start(self, inputs: Inputs, parts: dict[str, Any]) -> None:
        """Create the child, or find the one that another process has created.

        Raises StageError where its pods lack a secret, or the server lacks the pool's deployment.
        """
        name = deployment_name(self._stage, self._work_pool)
        try:
            self._pods = pods_of(
                self._api.ask(lambda client: client.read_work_pool(self._work_pool))
            )
            missing = self._pods.missing_secrets() if self._pods else []
            if missing:
                raise StageError(
                    f"{self._where}: there is no {' and no '.join(missing)}, which the pods of the "
                    "pool need: create what is missing and run the same command again"
                )
            ident = digest([self._store.uri, self._work_pool, self._key])[:32]
            attempt = self._attempt(child_tag(ident))
            # Only an asynchronous caller gets a coroutine.
            child: Any = self._api.ask(
                lambda _: run_deployment(
                    name,
                    parameters=self._parameters(inputs, parts),
                    flow_run_name=f"{self._stage} · epoch {self._epoch} · {self._config.run_id}",
                    timeout=0,
                    tags=[OURS, child_tag(ident), *self.parents.tags],
                    idempotency_key=f"{ident}.{attempt}",
                )
            )
        except ObjectNotFound as error:
            raise StageError(
                f"{self._where}: the Prefect server has no work pool {self._work_pool!r} with a "
                f"deployment {name!r}: make both with `genenv work-pool {self._work_pool}`"
            ) from error
        self._run_id = child.id
        log.info(
            "stage=%s epoch=%d key=%s work_pool=%s attempt=%d flow_run=%s %s",
            self._stage, self._epoch, self._key[:12], self._work_pool, attempt, child.id,
            "is sent" if child.state and child.state.is_scheduled() else "is at work already",
        )  # fmt: skip

    def follow(self) -> None:
        """Return when the child has ended; raises StageError if it does not start or gets lost."""
        began, alive, sign = time.monotonic(), time.monotonic(), b""
        stuck: float | None = None
        told, how_far = -LINE_S, ""
        while True:
            child = self._api.ask(lambda client: client.read_flow_run(self._run_id))
            state = child.state
            if state is None or state.is_final():
                return
            now = time.monotonic()
            if state.is_running() or state.is_cancelling():
                began, stuck = now, None
                if now - told >= LINE_S and (words := self._doing()):
                    told, how_far = now, f": {words}"
                if state.is_running():
                    self._say(f"runs on work pool {self._work_pool}{how_far}")
                else:
                    self._say(f"is being cancelled on work pool {self._work_pool}")
                if (seen := self._sign(child)) != sign:
                    sign, alive = seen, now
                if now - alive > self._settings.lost_seconds:
                    self._lost()
            else:
                look = self._look(state)
                # The pod of a lost node keeps the state that the node reported last.
                if not look.runs:
                    alive = now
                elif now - alive > self._settings.lost_seconds:
                    self._lost()
                trouble, hopeless = self._waits_for(state, look)
                stuck = (stuck or now) if hopeless else None
                if now - began > self._settings.start_seconds or (stuck and now - stuck > STUCK_S):
                    self.cancel(f"it did not start: {trouble}")
                    raise StageError(
                        f"{self._where} did not start in {now - began:.0f} s: {trouble}"
                    )
                self._say(f"waits for work pool {self._work_pool}: {trouble}")
            self._api.pause()
            self.parents.check()

    def result(self, find: Callable[[], Manifest | None]) -> Manifest:
        """Return the manifest of a child that has ended; raises StageError with its reason."""
        state = self._api.ask(lambda client: client.read_flow_run(self._run_id)).state
        deadline = time.monotonic() + (MANIFEST_S if state and state.is_completed() else 0)
        while (manifest := find()) is None and time.monotonic() < deadline:
            check()
            time.sleep(1)
        if manifest is not None:  # it may have died right after its commit
            return manifest
        if state is None or state.is_completed():
            raise StageError(
                f"{self._where} has ended, but its output is not in {self._store.uri}: the pool's "
                "processes must see this root under the same name"
            )
        raise StageError(f"{self._where} {_VERBS.get(state.type, 'ended')}: {self._why(state)}")

    def cancel(self, why: str) -> None:
        """Ask the child to end, if the API answers."""
        self._api.cancel(self._run_id, why)

    def _parameters(self, inputs: Inputs, parts: dict[str, Any]) -> dict[str, Any]:
        # The child gets the store's full name, and computes inline.
        own = self._config.model_copy(
            update={"root": self._store.uri, "placement": PlacementConfig()}
        )
        sent = {
            "config": dump(own),
            "stage": self._stage,
            "epoch": self._epoch,
            "inputs": encode(inputs),
            "parts": parts,
        }
        span = current().traceparent
        return {**sent, "traceparent": span} if span else sent

    def _attempt(self, tag: str) -> int:
        """Return the number of the child that works or will, or the next one's.

        A child in cancellation does not count, because its result would be an error.
        """
        found = self._api.ask(lambda client: runs_with(client, tag))
        numbers = {int((run.idempotency_key or ".0").rpartition(".")[2]): run for run in found}
        last = max(numbers, default=0)
        state = numbers[last].state if last else None
        ended = state is None or state.is_final() or state.is_cancelling()
        return last + 1 if ended else last

    def _sign(self, child: FlowRun) -> bytes:
        """Return what changes while the child works: its starts, and the beats of its lease."""
        sign = f"{child.run_count} {child.state_id} ".encode()
        with contextlib.suppress(StorageError):  # no lease yet, or no more
            sign += self._store.read(paths.lease(self._stage, self._key))
        return sign

    def _doing(self) -> str:
        """Return how far the child is, as its lease says, else ''."""
        return doing(self._store, self._stage, self._key)

    def _look(self, state: State) -> PodLook:
        """Return the state of the pod of a child that has not begun; an empty one without a pod."""
        return self._pods.look(self._run_id) if self._pods and state.is_pending() else PodLook()

    def _waits_for(self, state: State, look: PodLook) -> tuple[str, bool]:
        """Return what a child that has not begun waits for, and whether it waits in vain."""
        if look.trouble:
            return look.trouble, look.hopeless
        if state.is_pending():
            return "its process is being started", False
        work_pool = self._api.ask(lambda client: client.read_work_pool(self._work_pool))
        if work_pool.is_paused:
            return f"the work pool is paused: prefect work-pool resume {self._work_pool}", False
        if work_pool.status and work_pool.status.value == "NOT_READY":
            return f"no worker is alive: prefect worker start --pool {self._work_pool}", False
        return "no worker has taken it yet", False

    def _why(self, state: State) -> str:
        """Return why a child ended badly, in one line: from its pod and its log, or its state."""
        own = state_reason(state)
        if state.type == StateType.FAILED or self._pods is None:
            return own
        deadline = time.monotonic() + REASON_S
        while not (look := self._pods.look(self._run_id)).trouble and time.monotonic() < deadline:
            time.sleep(1)
        why = look.trouble or own
        words = self._pods.last_words(look)
        return f"{why}; its last words: {words}" if words else why

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
        """Report what the child does or waits for; skip a message that repeats the last one."""
        if message == self._said:
            return
        self._said = message
        log.info("stage=%s epoch=%d %s", self._stage, self._epoch, message)
        emit(Event("waiting", self._stage, self._epoch, message=message))


def state_reason(state: State) -> str:
    """Return a state's message without what Prefect puts around an exception."""
    text = one_line(state.message or "")
    found = re.search(r"encountered an exception: (?:\w+: )?(.*)", text)
    return (found[1] if found else text)[:1000] or f"its flow run ended as {state.name}"
