"""Sends a run's artifacts to the Prefect UI: progress by stage, a table by epoch, a summary.

A thread of its own sends them, so that no stage waits for the API. An artifact that cannot be sent
causes a line in the log and nothing worse.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import re
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from prefect.artifacts import create_markdown_artifact
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.context import FlowRunContext, TaskRunContext

from flows.comparing import verdicts
from flows.running.environment import MLFLOW_VARIABLE
from flows.shown.tables import epoch_cells
from genenv_core.addresses import at_root, page_of
from genenv_core.config.schema import RunConfig
from genenv_core.config.stages import FIRST, LAST, WARM
from genenv_core.config.stages import MEASURES as MEASURED
from genenv_core.epoch.reached import reached_lines
from genenv_core.epoch.trouble import troubles
from genenv_core.errors import GenenvError
from genenv_core.evidence.attempted import in_markdown
from genenv_core.report.outcome import TOLD_HERE, Outcome, outcome_of_run
from genenv_core.storage.records.branches import origin_of
from genenv_core.storage.store.opening import open_once
from schemas.enums import StageState
from tasks.stage.progress import Event
from tasks.tracking.news import listed
from tasks.tracking.track import not_logged

if TYPE_CHECKING:
    from genenv_core.compare.page import PlayedComparison

log = logging.getLogger("genenv.flows")

SEND_S = 1.0
"""Least time between two updates of the artifacts."""
CLOSE_S = 5.0
COMMANDS = (
    "genenv status {run}{at_root}",
    "genenv report {run}{at_root} -o report.html",
    "genenv resume {run}{at_root}",
)
QUERIES = (
    ("SELECT epoch, p_hat, r_env, share_in_band FROM curriculum", "ORDER BY epoch"),
    ("SELECT failure, sum(attempts) AS n FROM failures", "GROUP BY failure ORDER BY n DESC"),
    ("SELECT epoch, stage, attempt, state, seconds, error FROM stage_runs", "ORDER BY started_at"),
)
"""Queries that a summary suggests: what stands before and after `WHERE run_id = ...`."""


@dataclass(frozen=True)
class ShownEvent:
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
    parts: dict[str, Event] = field(default_factory=dict[str, Event])

    def advance(self, event: Event) -> None:
        """Take how far the stage, or a part of it, is; the parts of a stage count alike."""
        self.parts[event.part] = event
        shares = [one.done / max(one.total, 1) for one in self.parts.values()]
        self.percent = 100.0 * sum(shares) / len(shares)
        self.text = "; ".join(one.words for one in self.parts.values())


@dataclass
class Publisher:
    """Turns the events of one run into artifacts; `listen` is the listener, `close` ends it."""

    config: RunConfig
    rows: dict[int, dict[str, Any]] = field(default_factory=dict[int, dict[str, Any]])
    failure: str = ""
    measured: Mapping[str, Any] | None = None
    troubles: dict[int, str] = field(default_factory=dict[int, str])
    stopped: Event | None = None
    bootstrap: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        """Start the thread; artifacts on the whole run belong to the current flow run."""
        self._flow_run = _flow_run()
        self._queue: queue.SimpleQueue[ShownEvent | None] = queue.SimpleQueue()
        self._progress: dict[tuple[int, str], Progress] = {}
        self._cached: dict[int, bool] = {}
        self._thread = threading.Thread(target=self._work, name="artifacts", daemon=True)
        self._thread.start()

    def listen(self, event: Event) -> None:
        """Take an event of a stage."""
        if event.kind == "failed":
            self.failure = self.failure or event.message
        if event.kind == "limit":
            self.stopped = event if event.facts else self.stopped
            return
        task = TaskRunContext.get()
        flow_run = task.task_run.flow_run_id if task else _flow_run()
        self._queue.put(ShownEvent(event, flow_run, task.task_run.id if task else None))

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
                for report in batch:
                    if report is not None:
                        self._take(client, report)
                for (epoch, stage), progress in self._progress.items():
                    _tried(self._send, client, epoch, stage, progress)
                if None in batch:
                    return

    def _take(self, client: SyncPrefectClient, report: ShownEvent) -> None:
        event = report.event
        key = (event.epoch, event.stage)
        if event.kind == "advanced":
            progress = self._progress.setdefault(key, Progress(report.flow_run, report.task_run))
            progress.advance(event)
        elif event.kind == "finished" and key in self._progress:
            self._progress[key].percent = 100.0
            self._progress[key].text = f"done in {event.seconds:.1f} s"
        elif event.kind == "failed" and key in self._progress:
            self._progress[key].text += f", {event.state}: {event.message}"
        if event.kind == "finished":
            for trouble in troubles(event.facts) if event.stage not in TOLD_HERE else ():
                self.troubles[event.epoch] = trouble
            self._cached[event.epoch] = self._cached.get(event.epoch, True) and (
                event.state is StageState.CACHED
            )
        if event.kind == "finished" and event.stage in (FIRST, WARM):
            self.bootstrap = event.facts
        if event.kind == "finished" and event.stage == LAST:
            _tried(self._table, client, event)
        if event.kind == "finished" and event.stage == MEASURED:
            self.measured = event.facts

    def _send(self, client: SyncPrefectClient, epoch: int, stage: str, progress: Progress) -> None:
        now = (round(progress.percent, 1), progress.text)
        if now == progress.sent:
            return
        title = f"{stage} · epoch {epoch} of {self.config.epochs}: {progress.text}"
        if progress.identity is None:
            made = client.create_artifact(
                ArtifactCreate(
                    key=artifact_key(self.config, stage.replace("_", "-")),
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
                key=artifact_key(self.config, "epochs"),
                type="table",
                description=f"{self.config.run_id}: epochs 0 to {event.epoch}",
                data=json.dumps(table(self.rows)),
                flow_run_id=self._flow_run,
            )
        )


def artifact_key(config: RunConfig, kind: str) -> str:
    """Return the key of an artifact of a run: letters, digits and dashes."""
    run = re.sub(r"[^a-z0-9]+", "-", str(config.run_id).lower()).strip("-")
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


def publish_summary(config: RunConfig, publisher: Publisher) -> None:
    """Make the summary artifact of a flow run; a failure is only a line in the log."""
    try:
        create_markdown_artifact(
            measurement(config, publisher.measured, publisher.failure)
            if config.benchmark.given
            else summary(
                config,
                publisher.rows,
                publisher.failure,
                _mlflow(config),
                publisher.troubles,
                _origin(config),
                publisher.stopped,
                publisher.bootstrap,
                _outcome(config, publisher.rows),
            ),
            key=artifact_key(config, "summary"),
            description=f"{config.run_id}: where it stands and where to look further",
        )
    except Exception as error:  # the run matters more
        log.warning("the summary was not sent: %s: %s", type(error).__name__, str(error)[:300])


def _outcome(config: RunConfig, rows: Mapping[int, Any]) -> Outcome | None:
    if not rows:
        return None
    try:
        return outcome_of_run(open_once(config.root), str(config.run_id))
    except GenenvError as error:  # the summary has the table of epochs all the same
        log.warning("what came out is not known: %s", str(error)[:300])
        return None


def _origin(config: RunConfig) -> str:
    point = origin_of(open_once(config.root), str(config.run_id))
    return point.words if point else ""


def summary(
    config: RunConfig,
    rows: dict[int, dict[str, Any]],
    failure: str,
    mlflow: str,
    troubled: Mapping[int, str] | None = None,
    origin: str = "",
    stopped: Event | None = None,
    bootstrap: Mapping[str, Any] | None = None,
    outcome: Outcome | None = None,
) -> str:
    """Return the page as markdown.

    `mlflow` is the address of the MLflow run, '' without one. `troubled` says by epoch what is
    wrong with it, `origin` where the run branches off, `stopped` which limits ended the run.
    `bootstrap` are the facts of that stage, or of a warm start after it. `outcome` is what came out
    so far, with the findings.
    """
    run, root = config.run_id, at_root(config.root)
    done = len([number for number in rows if number > 0])
    parts = [f"# {run}: {done} of {config.epochs} epochs in this flow run"]
    if origin:
        parts.append(f"{origin[:1].upper()}{origin[1:]}. Its settings count for later epochs.")
    if failure:
        parts.append(
            f"**Stopped:** {failure}\n\n**Retry** continues it; finished stages are reused."
        )
    if stopped:
        parts.append(
            f"**Stopped by a limit:** {stopped.message}.\n\nIt goes on with a higher limit: "
            "the same request again with one, or\n\n"
            f"```\n{stopped.facts['go_on']}\n```"
        )
    if outcome and outcome.lines:
        parts.append("\n".join(f"- {line}" for line in outcome.lines))
    parts += [f"**Warning:** {text}" for text in (troubled or {}).values()]
    parts += [
        f"**{one.severity.title()}:** {one.line}" for one in (outcome.recent if outcome else ())
    ]
    if missing := not_logged(config):
        parts.append(
            f"**Warning:** MLflow was away, and lacks {listed(missing)} of this run: "
            f"`genenv resume {run}{root}` or **Retry** logs them when it is back."
        )
    if reached := reached_lines(bootstrap or {}, rows.get(0, {}), rows.get(1, {})):
        parts.append("What the start reached:\n\n" + "\n".join(f"- {one}" for one in reached))
    if rows:
        parts.append(_markdown_table(table(rows)))
    link = f"- MLflow: [metrics and model versions of {run}]({mlflow})\n" if mlflow else ""
    if page := page_of(str(run)):
        link = f"- view: [tasks, traces and what they made of {run}]({page})\n{link}"
    commands = "\n".join(command.format(run=run, at_root=root) for command in COMMANDS)
    queries = "\n".join(f"{select}\n  WHERE run_id = '{run}' {rest};" for select, rest in QUERIES)
    parts.append(
        f"## Look further\n\n{link}- on the command line, where the root is:\n\n"
        f"```\n{commands}\n```\n\n- with SQL, in `genenv sql{root}`:\n\n"
        f"```sql\n{queries}\n```"
    )
    return "\n\n".join(parts)


def measurement(config: RunConfig, facts: Mapping[str, Any] | None, failure: str) -> str:
    """Return the page of a run that measures a model, as markdown."""
    given, run, root = config.measured, config.run_id, at_root(config.root)
    name = given.model_in_words
    if given.certifies:
        return in_markdown(f"{config.domain.name}: {name}", str(run), root, facts, failure)
    parts = [f"# {config.domain.name}: {name}"]
    if failure:
        parts.append(f"**Stopped:** {failure}\n\n**Retry** goes on at the item that was cut off.")
    if facts:
        lines = [
            f"| {metric} | {'' if value is None else f'{100 * value:.1f}'} |"
            for metric, value in facts["metrics"].items()
        ]
        left = ", ".join(f"{count} of {group}" for group, count in facts["not_run"].items())
        counted = f"{facts['attempts']} attempts at {facts['items']} items, mode {facts['mode']}"
        parts.append(counted + (f"; not run: {left}" if left else ""))
        parts.append("\n".join(["| metric | points of 100 |", "| --- | ---: |", *lines]))
    parts.append(
        f"## Look further\n\n```\ngenenv resume {run}{root}\n```\n\nshows intervals too; "
        f"with SQL, in `genenv sql{root}`:\n\n```sql\n"
        f"SELECT metric, points, low, high FROM benchmarks WHERE run_id = '{run}';\n"
        f"SELECT item, reason FROM benchmark_items WHERE run_id = '{run}' AND NOT valid;\n```"
    )
    return "\n\n".join(parts)


def _markdown_table(cells: list[dict[str, str]]) -> str:
    titles = list(cells[0])
    lines = [titles, ["---"] * len(titles), *(list(cell.values()) for cell in cells)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _mlflow(config: RunConfig) -> str:
    """Return the address of the run in MLflow's own UI, '' when there is none to give."""
    server = os.environ.get(MLFLOW_VARIABLE)
    if not server or not config.tracking.enabled or "mlflow" not in sys.modules:
        return ""
    from tasks.stage.stores import artifacts_of
    from tasks.tracking.client import open_client, tracking_uri, unreachable

    with contextlib.suppress(Exception):  # a link less
        home = artifacts_of(config.root).store.home
        if unreachable(tracking_uri(config, home)):
            return ""
        client = open_client(config, home)
        experiment = client.get_experiment_by_name(config.tracking.experiment)
        if experiment is None:
            return ""
        found = client.search_runs(
            [experiment.experiment_id], f"tags.`genenv.run_id` = '{config.run_id}'"
        )
        if found:
            return f"{server}/#/experiments/{experiment.experiment_id}/runs/{found[0].info.run_id}"
    return ""


def publish_verdicts(made: PlayedComparison) -> None:
    """Make the artifact of a comparison; a failure is only a line in the log."""
    _tried(
        create_markdown_artifact,
        verdicts(made),
        f"verdicts-{made.name.lower().replace('_', '-').replace('.', '-')}",
        f"{made.name}: what is decided",
    )
