"""One run: how far it is, its curves, and the outcome of each stage."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any

from starlette.requests import Request

from flows.view.curves import DOMAIN, curves
from flows.view.pages import Page, about, heldout
from flows.view.reading import Panel, Reader, Row
from genenv_core.config.stages import MEASURES
from genenv_core.domains.registry import SEVERAL
from genenv_core.evidence.beginning import progress_of, reached
from genenv_core.hiding import without_secrets
from genenv_core.report.outcome import (
    Outcome,
    findings_query,
    headlines,
    outcome_of,
    outcome_query,
)
from genenv_core.report.words import duration
from genenv_core.storage.records.runs import place_of
from genenv_core.storage.sql.duck import text
from schemas.enums import StageState

RENEWED_S = 5
"""Seconds after which a page looks again while a stage is at work."""

RESTING_S = 10
"""The same while a run has epochs to come and no stage works, as between two stages."""


COST = {
    "seconds": "Wall time of the stage over the epochs from 1 on; what was reused from another run "
    "counts nothing. Stages that ran side by side both count in the last row.",
    "seconds_per_group": "These seconds for each group with signal, whose rewards differ: pi_agent "
    "learns from no other.",
    "tokens": "Tokens that the stage read and sampled, over the same epochs; for an update those "
    "of its rows, which the last row leaves out: they count where they were sampled.",
    "tokens_per_group": "These tokens for each group with signal.",
}
"""Descriptions of the columns of the question about cost."""


def page(reader: Reader, request: Request) -> Page:
    """Return the overview of a run; raises NotFound.

    The page asks for its outcome, findings, curves, families and cost while it streams.
    """
    run = request.path_params["run"]
    known = about(reader, run)
    by = DOMAIN if known.rows[0]["domain"] == SEVERAL else "run"
    stages = _stages(reader, run)
    epochs = reader.panel(
        "rows", "Epochs",
        "SELECT epoch, tasks_generated AS written, tasks_valid AS valid, p_hat, "
        "r_env_mean AS r_env, share_in_band AS in_band, share_zero_signal AS no_signal, "
        "mean_difficulty AS difficulty, "
        "heldout_success AS test, heldout_success_greedy AS greedy, kl_env, grpo_steps, rwr_steps, "
        "agent_action, env_action, seconds\n"
        f"FROM epochs WHERE run_id = {text(run)} ORDER BY epoch",
    )  # fmt: skip
    working = at_work(stages, progress_of(reader.store, stages.rows), datetime.now(UTC))
    finished = max((row["epoch"] for row in epochs), default=0)
    measures = any(row["stage"] == MEASURES for row in stages)
    planned = 0 if measures else known.rows[0]["epochs_planned"] or 0

    @cache
    def came_out() -> Panel:
        return reader.panel("outcome", "Outcome", outcome_query(run))

    def outcome() -> Outcome:
        return outcome_of(came_out().rows[0], ())

    def found() -> tuple[Outcome, Panel]:
        """Return the outcome with its findings, whose question passes over every attempt."""
        panel = reader.panel("findings", "Findings", findings_query(run))
        return outcome_of(came_out().rows[0], panel), panel

    def families() -> Panel:
        newest = outcome()
        return heldout.families(reader, run, newest.epoch or None, newest.measure)

    return Page(
        "run.html.j2", run,
        {
            "run": run,
            "known": known,
            "configuration": without_secrets(json.loads(known.rows[0]["config"])),
            "curves": partial(curves, reader, [run], by),
            "came_out": came_out,
            "headlines": lambda: headlines(outcome()),
            "found": found,
            "epochs": epochs,
            "families": families,
            "of_families": heldout.WORDS,
            "cost": partial(_cost, reader, run),
            "of_cost": COST,
            "reached": reached(reader.store, run),
            "stages": stages,
            "at_work": working,
            "state": _state(run, finished, planned, stages),
            "renewed_s": renewed_s(bool(working), finished < planned),
            "grid": _grid(stages),
            "results": _results(reader, run),
            "items": _items(reader, run),
            "measures": measures,
            "certificate": _certificate(reader, run) if measures else (),
        },
        streams=True,
    )  # fmt: skip


def renewed_s(working: bool, unfinished: bool) -> int:
    """Return the seconds after which a page looks again, 0 for never."""
    return RENEWED_S if working else RESTING_S if unfinished else 0


def at_work(
    stages: Iterable[Row], progress: Mapping[tuple[int, str], str], now: datetime
) -> list[dict[str, Any]]:
    """Return the stages that are at work, with how long and how far they are, in words."""
    return [
        {
            "epoch": row["epoch"],
            "stage": row["stage"],
            "since": duration((now - row["started_at"].replace(tzinfo=UTC)).total_seconds()),
            "words": progress.get((row["epoch"], row["stage"]), ""),
        }
        for row in stages
        if row["state"] == StageState.RUNNING
    ]


def _state(run: str, finished: int, planned: int, stages: Panel) -> str:
    """Return a sentence on how far a run is in which no stage is at work."""
    done = f"{finished} of {planned} epochs are finished"
    if not planned:
        done = "This run measures a model and has no epochs"
    stopped = [row for row in stages if row["state"] in (StageState.FAILED, StageState.INTERRUPTED)]
    if stopped:
        where = f"{stopped[-1]['stage']} of epoch {stopped[-1]['epoch']} {stopped[-1]['state']}"
        return f"{done}, and {where}: genenv resume {run} continues it."
    return f"{done}. Nothing is at work."


def _cost(reader: Reader, run: str) -> Panel:
    """Return the cost of the epochs' stages in all, and for each group with signal."""
    own = f"run_id = {text(run)}"
    return reader.panel(
        "cost", "Cost by stage",
        "WITH stages AS (\n"
        "    SELECT stage, sum(seconds) AS seconds, sum(tokens) AS tokens\n"
        f"    FROM cost WHERE {own} AND epoch > 0 GROUP BY stage\n"
        "),\nuseful AS (\n"
        "    SELECT nullif(count(*), 0) AS groups FROM task_scores\n"
        f"    WHERE {own} AND epoch > 0 AND NOT zero_signal\n"
        "),\nlisted AS (\n"
        "    FROM stages UNION ALL\n"
        "    SELECT 'all but evaluate', sum(seconds), "
        "sum(tokens) FILTER (NOT ends_with(stage, '_update'))\n"
        "    FROM stages WHERE stage <> 'evaluate' HAVING count(*) > 0\n"
        ")\n"
        "SELECT stage, seconds, seconds / groups AS seconds_per_group, CAST(tokens AS BIGINT) AS "
        "tokens, tokens / groups AS tokens_per_group\n"
        "FROM listed, useful ORDER BY stage = 'all but evaluate', seconds DESC, stage",
    )  # fmt: skip


def _results(reader: Reader, run: str) -> Panel:
    """Return the results of a model on a benchmark, if this run measured one."""
    return reader.panel(
        "results", "Results on the benchmark",
        "SELECT benchmark, metric, headline, points, low, high, items, not_run FROM benchmarks "
        f"WHERE run_id = {text(run)} ORDER BY headline DESC, metric",
    )  # fmt: skip


def _items(reader: Reader, run: str) -> Panel:
    """Return the verdicts on a benchmark's items, with those that are not right first."""
    return reader.panel(
        "items", "Items",
        "SELECT item, category, sample_index, valid, score, reason, task_id, trace_id "
        f"FROM benchmark_items WHERE run_id = {text(run)} "
        "ORDER BY coalesce(valid, false), category, task_id, sample_index, trace_id",
    )  # fmt: skip


def _certificate(reader: Reader, run: str) -> tuple[Panel, Panel]:
    """Return the checks of a task set, with those that fail first, and the flaws in the set."""
    checks = reader.panel(
        "checks", "Checks of the task set",
        "SELECT name, verdict, estimate, low, high, n, unit, wanted, at_least, detail\n"
        f"FROM certified_sets WHERE run_id = {text(run)}\n"
        "ORDER BY list_position(['fail', 'cannot say', 'pass'], verdict), name",
    )  # fmt: skip
    flaws = reader.panel(
        "flaws", "Flaws of its tasks",
        f"SELECT flaw, task_id, set_name, detail FROM set_flaws WHERE run_id = {text(run)} "
        "AND NOT passed ORDER BY flaw, set_name, task_id",
    )  # fmt: skip
    return checks, flaws


def _stages(reader: Reader, run: str) -> Panel:
    """Return the newest attempt at each stage."""
    return reader.panel(
        "stages", "Stages",
        "SELECT epoch, stage, attempt, state, seconds, rows, started_at, computed_by, computed_at, "
        f"computed_seconds, stage_key, error\nFROM stage_runs WHERE run_id = {text(run)}\n"
        "QUALIFY row_number() OVER (PARTITION BY epoch, stage ORDER BY attempt DESC) = 1\n"
        "ORDER BY epoch, started_at, stage",
    )  # fmt: skip


def _grid(stages: Panel) -> tuple[list[str], list[tuple[int, dict[str, Row]]]]:
    """Return the stages in the order of work, and each epoch's row of each stage."""
    names = sorted({row["stage"]: None for row in stages}, key=place_of)
    epochs: dict[int, dict[str, Row]] = {}
    for row in stages:
        epochs.setdefault(row["epoch"], {})[row["stage"]] = row
    return names, list(epochs.items())
