"""What a run shows in the Prefect UI: a progress artifact a stage, a table an epoch, a summary.

They are sent by a thread of their own, so that no stage waits for the API, and an artifact that
cannot be sent is a line in the log and nothing worse.
"""

from __future__ import annotations

import json
import logging
import queue
import re
import threading
import time
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.context import FlowRunContext, TaskRunContext

from flows.cli.tables import epoch_cells
from genenv_core.config.schema import RunConfig
from tasks.progress import Event

log = logging.getLogger("genenv.flows")

SEND_S = 1.0
"""Least time between two updates of the artifacts."""

CLOSE_S = 5.0


@dataclass(frozen=True)
class Told:
    """An event, and the flow run and task run that it came from."""

    event: Event
    flow_run: UUID | None
    task_run: UUID | None


@dataclass
class Progress:
    """One progress artifact: what it shows now, and what it was last sent as."""

    flow_run: UUID | None
    task_run: UUID | None
    percent: float = 0.0
    text: str = ""
    sent: tuple[float, str] | None = None
    identity: UUID | None = None


@dataclass
class Publisher:
    """Turns the events of one run into artifacts; `listen` is the listener, `close` ends it."""

    config: RunConfig
    rows: dict[int, dict[str, Any]] = field(default_factory=dict[int, dict[str, Any]])
    failure: str = ""

    def __post_init__(self) -> None:
        """Start the thread; what is about the whole run belongs to the flow run of this moment."""
        self._flow_run = _flow_run()
        self._queue: queue.SimpleQueue[Told | None] = queue.SimpleQueue()
        self._progress: dict[tuple[int, str], Progress] = {}
        self._cached: dict[int, bool] = {}
        self._thread = threading.Thread(target=self._work, name="artifacts", daemon=True)
        self._thread.start()

    def listen(self, event: Event) -> None:
        """Take an event of a stage."""
        if event.kind == "failed":
            self.failure = self.failure or event.message
        task = TaskRunContext.get()
        flow_run = task.task_run.flow_run_id if task else _flow_run()
        self._queue.put(Told(event, flow_run, task.task_run.id if task else None))

    def close(self) -> None:
        """Send what is left, and end."""
        self._queue.put(None)
        self._thread.join(CLOSE_S)

    def _work(self) -> None:
        with get_client(sync_client=True) as client:
            while True:
                batch = [self._queue.get()]
                time.sleep(SEND_S if batch[0] is not None and self._queue.empty() else 0)
                while not self._queue.empty():
                    batch.append(self._queue.get())
                for told in batch:
                    if told is not None:
                        self._take(client, told)
                for (epoch, stage), progress in self._progress.items():
                    _tried(self._send, client, epoch, stage, progress)
                if None in batch:
                    return

    def _take(self, client: SyncPrefectClient, told: Told) -> None:
        event = told.event
        key = (event.epoch, event.stage)
        if event.kind == "advanced":
            progress = self._progress.setdefault(key, Progress(told.flow_run, told.task_run))
            progress.percent = 100.0 * event.done / max(event.total, 1)
            progress.text = f"{event.done} of {event.total} {event.unit}"
        elif event.kind == "finished" and key in self._progress:
            self._progress[key].percent = 100.0
            self._progress[key].text = f"done in {event.seconds:.1f} s"
        elif event.kind == "failed" and key in self._progress:
            self._progress[key].text += f", {event.state}: {event.message}"
        if event.kind == "finished":
            self._cached[event.epoch] = self._cached.get(event.epoch, True) and (
                event.state == "cached"
            )
        if event.kind == "finished" and event.stage == "publish":
            _tried(self._table, client, event)

    def _send(self, client: SyncPrefectClient, epoch: int, stage: str, progress: Progress) -> None:
        now = (round(progress.percent, 1), progress.text)
        if now == progress.sent:
            return
        title = f"{stage} · epoch {epoch} of {self.config.epochs}: {progress.text}"
        if progress.identity is None:
            made = client.create_artifact(
                ArtifactCreate(
                    key=self.key(stage.replace("_", "-")),
                    type="progress",
                    description=title,
                    data=now[0],
                    flow_run_id=progress.flow_run,
                    task_run_id=progress.task_run,
                )
            )
            progress.identity = made.id
        else:
            client.update_artifact(
                progress.identity, ArtifactUpdate(data=now[0], description=title)
            )
        progress.sent = now

    def _table(self, client: SyncPrefectClient, event: Event) -> None:
        """Send the table of all epochs so far; each epoch makes a version of one artifact."""
        row = {**event.facts["summary"], "epoch": event.epoch, "gates": event.facts["gates"]}
        self.rows[event.epoch] = {**row, "cached": self._cached.get(event.epoch, False)}
        client.create_artifact(
            ArtifactCreate(
                key=self.key("epochs"),
                type="table",
                description=f"{self.config.run_id}: epochs 0 to {event.epoch}",
                data=json.dumps(table(self.rows)),
                flow_run_id=self._flow_run,
            )
        )

    def key(self, kind: str) -> str:
        """Return the key of an artifact of this run: letters, digits and dashes."""
        run = re.sub(r"[^a-z0-9]+", "-", str(self.config.run_id).lower()).strip("-")
        return f"{kind}-{run}"


def table(rows: dict[int, dict[str, Any]]) -> list[dict[str, str]]:
    """Return the epochs as the terminal shows them, without columns that are empty throughout."""
    cells = [epoch_cells(rows[number]) for number in sorted(rows)]
    titles = [name for name in cells[0] if any(cell[name] for cell in cells)]
    return [{name or "notes": cell[name] for name in titles} for cell in cells]


def _flow_run() -> UUID | None:
    context = FlowRunContext.get()
    return context.flow_run.id if context and context.flow_run else None


def _tried(send: Any, *arguments: Any) -> None:
    try:
        send(*arguments)
    except Exception as error:  # whatever the API says: the run matters more
        log.warning("an artifact was not sent: %s: %s", type(error).__name__, str(error)[:300])
