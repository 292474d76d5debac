"""All runs of a root; what is wrong with each, and its tokens, the list asks for afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from flows.view.pages import Page, about
from flows.view.pages.run import at_work, renewed_s
from flows.view.reading import Panel, Reader
from genenv_core.play.transcript import visible
from genenv_core.report.outcome import figures, findings_query, outcome_of, outcome_query
from genenv_core.report.words import count
from genenv_core.storage.sql.duck import text

COUNTED = {"failure": "failures", "warning": "warnings"}
"""Severities that the list counts, the gravest first, and several of each in words."""

KEPT = {"cache-control": "private, max-age=60"}
"""A browser that comes back to the list does not ask again: an answer passes over all attempts."""


TITLES = {
    "interval": "95 % interval of the gain, over test tasks",
    "measure": "What is measured on the test tasks",
    "start → last": "The measure before training and after the newest epoch",
    "p_hat (α)": "Success on the new tasks of the newest epoch, and its target alpha",
    "signal": "Share of groups whose rewards differ: GRPO learns from no other",
    "time": "Time at work, what came before epoch 1 left out",
}
"""What columns mean that say little by their names."""

LATER = ("findings", "tokens")
"""Columns that static/found.js fills in once the list is there."""

NUMBERS = {"gain", "start → last", "p_hat (α)", "signal", "time", "tokens", "epochs", "seed"}
"""Columns whose cells stand to the right."""


def page(reader: Reader, request: Request) -> Page:
    """Return the list of runs; `q` filters it by words in any column."""
    words = request.query_params.get("q", "").split()
    where = " AND ".join(
        "contains(lower(concat_ws(' ', r.run_id, r.arm, r.domain, "
        f"array_to_string(r.tags, ' '), r.note)), {text(word.lower())})"
        for word in words
    )
    found = reader.panel(
        "runs", "Runs",
        "SELECT r.run_id, o.gain, o.gain_low, o.gain_high, o.start, o.value, o.measure, "
        "o.p_hat, o.alpha, o.share_signal, o.seconds, o.epochs, o.planned, r.arm, "
        "r.domain, r.seed, r.tags, r.note, r.pinned, r.started_at\n"
        "FROM runs AS r INNER JOIN outcomes AS o ON o.run_id = r.run_id\n"
        + (f"WHERE {where}\n" if where else "")
        + "ORDER BY r.started_at DESC, r.run_id",
    )  # fmt: skip
    lines = [line_of(row) for row in found]
    filled = {name for line in lines for name, said in line.items() if said}
    columns = [name for name in line_of({}) if name in filled or name in LATER]
    working = _at_work(reader)
    now = datetime.now(UTC)
    since = [(row["run_id"], one) for row in working for one in at_work([row], {}, now)]
    unfinished = any(row["epochs"] < (row["planned"] or 0) for row in found)
    shown = {
        "listed": found, "lines": lines, "titles": TITLES, "numbers": NUMBERS,
        "columns": columns, "q": " ".join(words), "left_out": reader.left_out(),
        "at_work": since, "renewed_s": renewed_s(bool(working.rows), unfinished),
    }  # fmt: skip
    return Page("runs.html.j2", "Runs", shown)


def line_of(row: Mapping[str, Any]) -> dict[str, str]:
    """Return what the list says of a run, by the names of its columns; '' for what is not known.

    `row` is a row of the question behind the list.
    """
    started = row.get("started_at")
    came_out = figures(row)
    return {
        "gain": came_out.pop("gain"),
        "interval": came_out.pop("interval"),
        "findings": "",
        **came_out,
        "arm": row.get("arm") or "",
        "domain": row.get("domain") or "",
        "seed": str(row["seed"]) if row.get("seed") is not None else "",
        "tags": ", ".join(row.get("tags") or ()),
        "note": row.get("note") or "",
        "pinned": "pinned" if row.get("pinned") else "",
        "started": f"{started:%Y-%m-%d %H:%M}" if started else "",
    }


def findings(reader: Reader, request: Request) -> Response:
    """Return how many findings of a run are grave, in words, the gravest, and its tokens so far.

    Those count that its page shows as of now. No words mean that there is nothing to judge yet.
    Raises NotFound.
    """
    run = request.path_params["run"]
    about(reader, run)
    rows = reader.panel("outcome", "Outcome", outcome_query(run)).rows
    found = reader.panel("findings", "Findings", findings_query(run))
    said = outcome_of(rows[0], found)
    grave = [one for name in COUNTED for one in said.recent if one.severity == name]
    counts = {name: sum(one.severity == name for one in grave) for name in COUNTED}
    words = ", ".join(
        f"{many} {name if many == 1 else COUNTED[name]}" for name, many in counts.items() if many
    )
    first = f"{grave[0].when}: {grave[0].words}" if grave else ""
    answer = {"words": words or ("no warning" if said.epochs else ""), "first": visible(first)}
    answer |= {"severity": grave[0].severity if grave else ""}
    answer |= {"tokens": count(said.tokens) if said.tokens else ""}
    return JSONResponse(answer, headers=KEPT)


def _at_work(reader: Reader) -> Panel:
    """Return which stages are at work, over all runs."""
    return reader.panel(
        "at_work", "At work",
        "SELECT run_id, epoch, stage, state, started_at FROM stage_runs\n"
        "QUALIFY row_number() OVER (PARTITION BY run_id, epoch, stage ORDER BY attempt DESC) = 1 "
        "AND state = 'running'\nORDER BY run_id, epoch, stage",
    )  # fmt: skip
