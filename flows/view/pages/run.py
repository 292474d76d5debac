"""One run: how far it is, its curves, and what became of each stage."""

from __future__ import annotations

import json

from starlette.requests import Request

from flows.view.curves import curves
from flows.view.pages import Page, about
from flows.view.reading import Panel, Reader, Row
from genenv_core.config.stages import STAGES
from genenv_core.evidence.beginning import progress_of, reached
from genenv_core.hiding import without_secrets
from genenv_core.storage.sql.duck import text


def page(reader: Reader, request: Request) -> Page:
    """Return the overview of a run; raises NotFound."""
    run = request.path_params["run"]
    known = about(reader, run)
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
    return Page(
        "run.html.j2", run,
        {
            "run": run,
            "known": known,
            "configuration": without_secrets(json.loads(known.rows[0]["config"])),
            "curves": curves(reader, [run]),
            "notes": _notes(reader, run),
            "epochs": epochs,
            "reached": reached(reader.store, run),
            "stages": stages,
            "progress": progress_of(reader.store, stages.rows),
            "grid": _grid(stages),
            "results": _results(reader, run),
            "items": _items(reader, run),
        },
    )  # fmt: skip


def _notes(reader: Reader, run: str) -> Panel:
    """Return the newest epoch with something wrong with its tasks."""
    return reader.panel(
        "notes", "What is wrong with the tasks",
        f"SELECT epoch, tasks_note FROM epochs WHERE run_id = {text(run)} AND tasks_note <> ''\n"
        "ORDER BY epoch DESC LIMIT 1",
    )  # fmt: skip


def _results(reader: Reader, run: str) -> Panel:
    """Return what a model did on a benchmark, where this run measured one."""
    return reader.panel(
        "results", "Results on the benchmark",
        "SELECT benchmark, metric, headline, points, low, high, items, not_run FROM benchmarks "
        f"WHERE run_id = {text(run)} ORDER BY headline DESC, metric",
    )  # fmt: skip


def _items(reader: Reader, run: str) -> Panel:
    """Return its verdicts, those that are not right first."""
    return reader.panel(
        "items", "Items",
        "SELECT item, category, sample_index, valid, score, reason, task_id, trace_id "
        f"FROM benchmark_items WHERE run_id = {text(run)} "
        "ORDER BY coalesce(valid, false), category, task_id, sample_index, trace_id",
    )  # fmt: skip


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
    """Return the stages in the order of work, and for each epoch its row of each."""
    names = list(dict.fromkeys(row["stage"] for row in sorted(stages, key=_by_place)))
    epochs: dict[int, dict[str, Row]] = {}
    for row in stages:
        epochs.setdefault(row["epoch"], {})[row["stage"]] = row
    return names, list(epochs.items())


def _by_place(row: Row) -> int:
    return list(STAGES).index(row["stage"]) if row["stage"] in STAGES else len(STAGES)
