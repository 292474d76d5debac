"""Writes the logs of a run into a folder: one file a kind of attempt, in one pass over the rows.

The folder appears when everything is written, or not at all. Memory holds a chunk of attempts, and
of each task of a log a sum and the place of its samples in the file.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from genenv_core import __version__
from genenv_core.domains.protocol import Domain
from genenv_core.domains.registry import get_domain
from genenv_core.domains.tool_calls import reader_of
from genenv_core.errors import QueryError
from genenv_core.exchange.inspect_logs.archive import LogFile
from genenv_core.exchange.inspect_logs.reading import AttemptReader, LogKind, LogSelection, Row
from genenv_core.exchange.inspect_logs.samples import (
    file_safe,
    sample_of,
    short_digest,
    summary_of,
)
from genenv_core.exchange.pools.export import Exported, new_folder, size_of
from genenv_core.play.calls import with_calls
from genenv_core.storage.sql.catalog import query
from genenv_core.types import HELDOUT, JsonObject, Message, TaskSource

SCHEMA = 2
"""Version of Inspect's log schema."""

BARE = "held-out attempts without a transcript, which older versions of genenv did not keep"
UNJUDGED = "attempts without a verdict, which count in no metric of success"

_METRICS = {"success": "accuracy", "reward": "mean"}
"""Score -> Inspect's name of its mean."""


def export_logs(
    con: duckdb.DuckDBPyConnection, run: str, folder: Path, selection: LogSelection
) -> Exported:
    """Write the attempts of a run as logs into a new folder, from an open connection over the run.

    Raises ConfigError when the folder is not empty, QueryError when no attempt fits.
    """
    stored = query(con, "SELECT run_id, config, started_at FROM runs")
    config, started = {row[0]: row[1:] for row in stored.iter_rows()}[run]
    reader = AttemptReader(con, run, selection)
    writer = _Writer(run, json.loads(config), started, reader, selection)
    with new_folder(folder) as scratch:
        kinds = reader.kinds()
        if not kinds:
            raise QueryError(
                f"no attempt of run {run} fits ({selection.condition}): widen the filters, or let "
                "the run finish a rollout"
            )
        lines = [writer.write(kind, scratch) for kind in kinds]
        text = _card(run, lines, selection)
        (scratch / "README.md").write_text(text, encoding="utf-8")
        size = size_of(scratch)
    changes = {what: count for what, count in writer.changes.items() if count}
    return Exported(folder, sum(kind.attempts for kind in kinds), size, changes)


@dataclass
class _Tally:
    """The scores of a log as they come: by score and task, the sum and the number of attempts."""

    sums: dict[str, dict[str, list[float]]] = field(
        default_factory=lambda: {name: defaultdict(lambda: [0.0, 0]) for name in _METRICS}
    )
    attempts: int = 0
    broken: int = 0
    tokens: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("input_tokens", "output_tokens", "total_tokens"), 0)
    )

    def add(self, sample: JsonObject) -> None:
        self.attempts += 1
        self.broken += "error" in sample
        for name, count in sample["output"]["usage"].items():
            self.tokens[name] += count
        for name, score in sample["scores"].items():
            value = score["value"]
            known = self.sums[name][sample["id"]]
            known[0] += value if isinstance(value, float) else float(value == "C")
            known[1] += 1

    def scores(self, distinct: int) -> list[JsonObject]:
        """Return each score's mean and standard error over tasks, of the means of their attempts.

        So Inspect reduces repeats; where all tasks have n attempts, the mean is p_hat. `distinct`
        is the number of tasks in the log.
        """
        found: list[JsonObject] = []
        for name, tasks in self.sums.items():
            means = np.array([total / count for total, count in tasks.values()])
            if not means.size:
                continue
            error = float(means.std(ddof=1) / np.sqrt(means.size)) if means.size > 1 else 0.0
            values = {_METRICS[name]: float(means.mean()), "stderr": error}
            found.append(
                {
                    "name": name,
                    "scorer": name,
                    "reducer": "mean",
                    "scored_samples": len(tasks),
                    "unscored_samples": distinct - len(tasks),
                    "metrics": {
                        key: {"name": key, "value": value, "params": {}}
                        for key, value in values.items()
                    },
                }
            )
        return found


class _Writer:
    """Writes the logs of one run; `changes` counts attempts that it writes only in part."""

    def __init__(
        self,
        run: str,
        config: dict[str, Any],
        started: datetime,
        reader: AttemptReader,
        selection: LogSelection,
    ) -> None:
        self._run, self._config, self._reader, self._selection = run, config, reader, selection
        self._domain: Domain = get_domain(
            config["domain"]["name"], config["domain"].get("options") or {}
        )
        self._read = reader_of(self._domain)
        self._started, self._times = started, reader.began()
        self._checkpoints = reader.checkpoints()
        self.changes = dict.fromkeys((BARE, UNJUDGED), 0)

    def write(self, kind: LogKind, folder: Path) -> tuple[str, LogKind]:
        """Write one log; return its file's name."""
        began, ended = self._time(kind)
        model = self._model(kind)
        task, ident = self._task(kind), short_digest(self._run, *_named(kind))
        # Inspect reads time, task and id out of the name, between underscores.
        name = f"{began:%Y-%m-%dT%H-%M-%S}+00-00_{task}_{ident}.eval"
        spec = self._spec(kind, model, task, ident, began)
        start = {"version": SCHEMA, "eval": spec, "plan": _PLAN}
        tally = _Tally()
        with LogFile(folder / name, start) as log:
            for row in self._reader.rows(kind):
                sample = sample_of(row, self._messages(row), model)
                tally.add(sample)
                self.changes[UNJUDGED] += row["success"] is None
                log.add(sample, summary_of(sample))
            log.finish(
                {
                    **start,
                    "status": "success",
                    "results": {
                        "total_samples": tally.attempts,
                        "completed_samples": tally.attempts - tally.broken,
                        "scores": tally.scores(kind.tasks),
                    },
                    "stats": {
                        "started_at": _iso(began),
                        "completed_at": _iso(ended),
                        "model_usage": {model: tally.tokens},
                    },
                }
            )
        return name, kind

    def _messages(self, row: Row) -> list[Message]:
        """Return a stored transcript that names its calls; it reads older ones for them here."""
        if row["messages"] is None:
            self.changes[BARE] += 1
            return [{"role": "user", "content": row["prompt"] or ""}]
        return with_calls(json.loads(row["messages"]), self._read)

    def _spec(
        self, kind: LogKind, model: str, task: str, ident: str, began: datetime
    ) -> dict[str, Any]:
        chosen = {
            "min_reward": self._selection.min_reward,
            "arm": self._config["arm"],
            "policy_version": kind.policy_version,
            "checkpoint": self._checkpoints.get(kind.policy_version),
            "seed": self._config["seed"],
        }
        scorers = [
            {"name": name, "metrics": [{"name": f"inspect_ai/{mean}"}, {"name": STDERR}]}
            for name, mean in _METRICS.items()
        ]
        return {
            "eval_id": ident,
            "run_id": self._run,
            "created": _iso(began),
            "task": task,
            "task_id": ident,
            "task_version": 0,
            "task_args": {"run": self._run, **_args(kind)},
            "dataset": {
                "name": f"{self._domain.name} {kind.source.value}",
                "samples": kind.tasks,
                "shuffled": False,
            },
            "model": model,
            "config": {"epochs": kind.repeats, "epochs_reducer": ["mean"]},
            "packages": {"genenv": __version__},
            "metadata": {name: value for name, value in chosen.items() if value is not None},
            "scorers": scorers,
        }

    def _task(self, kind: LogKind) -> str:
        """Return what a list of logs shows, without the underscore, which parts a file's name."""
        domain = file_safe(self._domain.name.replace("_", "-"))
        if kind.source is TaskSource.BENCHMARK:
            return domain
        mode = f"-{kind.mode}" if kind.mode else ""
        return f"{domain}-epoch-{kind.epoch}-{kind.source.value}{mode}"

    def _model(self, kind: LogKind) -> str:
        """Return what made the attempts: the agent's weights, or what a measurement names."""
        if kind.source is TaskSource.BENCHMARK:
            given: Mapping[str, Any] = self._config.get("benchmark") or {}
            return str(given.get("model") or f"{given.get('model_name')} at {given.get('url')}")
        digest = self._checkpoints.get(kind.policy_version, "")
        return f"genenv/agent-v{kind.policy_version}" + (f"-{digest[:12]}" if digest else "")

    def _time(self, kind: LogKind) -> tuple[datetime, datetime]:
        """Return when the stage that made the attempts began and ended, in UTC."""
        stage = "evaluate" if kind.source in HELDOUT else "rollout"
        stage = "benchmark" if kind.source is TaskSource.BENCHMARK else stage
        began, ended = self._times.get((kind.epoch, stage), (self._started, self._started))
        return _utc(began), _utc(ended)


STDERR = "inspect_ai/stderr"
_PLAN: JsonObject = {"name": "plan", "steps": [{"solver": "genenv", "params": {}}], "config": {}}


def _args(kind: LogKind) -> dict[str, Any]:
    mode = {"mode": kind.mode} if kind.mode else {}
    return {"epoch": kind.epoch, "tasks": kind.source.value, **mode}


def _named(kind: LogKind) -> tuple[Any, ...]:
    return kind.epoch, kind.source.value, kind.mode, kind.policy_version


def _utc(time: datetime) -> datetime:
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def _iso(time: datetime) -> str:
    return time.isoformat(timespec="milliseconds")


def _card(run: str, lines: list[tuple[str, LogKind]], selection: LogSelection) -> str:
    rows = "\n".join(
        f"| `{name}` | {kind.epoch} | {kind.source.value} | {kind.mode or ''} | {kind.tasks} "
        f"| {kind.attempts} |"
        for name, kind in lines
    )
    least = "none" if selection.min_reward is None else selection.min_reward
    return f"""# Attempts of {run}

Logs for [Inspect](https://inspect.aisi.org.uk), written by genenv. `inspect view --log-dir .` shows
them. Texts were written by models and programs; nobody read them all.

A sample is a task, and Inspect's epoch is a repeat: the attempt at it, from 1. Metrics are over the
attempts in the log: their means by task, then over tasks. An attempt that broke counts as failed,
as it does in genenv. Tokens are those of the first prompt and those that the agent sampled.
Least reward: {least}.

| log | epoch | tasks | mode | different tasks | attempts |
|---|---|---|---|---|---|
{rows}
"""
