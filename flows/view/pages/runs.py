"""All runs of a root; the list asks for each run's findings and tokens afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from flows.view.grouping import differing
from flows.view.pages import Page, about
from flows.view.pages.run import at_work, renewed_s
from flows.view.reading import Panel, Reader
from genenv_core.hiding import visible
from genenv_core.report.outcome import figures, findings_query, outcome_of, outcome_query
from genenv_core.report.words import count
from genenv_core.storage.sql.duck import text

COUNTED = {"failure": "failures", "warning": "warnings"}
"""Severities that the list counts, the gravest first, each with its plural."""

KEPT = {"cache-control": "private, max-age=60"}
"""Headers that let a browser reuse an answer when it comes back to the list: an answer passes over
all attempts."""


TITLES = {
    "interval": "95 % interval of the gain, over test tasks",
    "measure": "What is measured on the test tasks",
    "start → last": "The measure before training and after the newest epoch",
    "p_hat (α)": "Success on the new tasks of the newest epoch, and its target alpha",
    "signal": "Share of groups whose rewards differ: pi_agent learns from no other",
    "time": "Time at work, what came before epoch 1 left out",
    "differs in": "Settings in which runs of this arm and domain differ, the seed left out: the "
    "three with the rarest values",
}
"""Meanings of the columns whose names say little."""

LATER = ("findings", "tokens")
"""Columns that static/found.js fills in after the list is there."""

NUMBERS = {"gain", "start → last", "p_hat (α)", "signal", "time", "tokens", "epochs", "seed"}
"""Columns with cells aligned to the right."""


def page(reader: Reader, request: Request) -> Page:
    """Return the list of runs, for which the page asks while it streams.

    `q` filters it by words in any column.
    """
    words = request.query_params.get("q", "").split()
    working, unfinished = _at_work(reader), _unfinished(reader)
    now = datetime.now(UTC)
    since = [(row["run_id"], one) for row in working for one in at_work([row], {}, now)]
    shown = {
        "listing": partial(_listing, reader, words), "titles": TITLES, "numbers": NUMBERS,
        "q": " ".join(words), "left_out": reader.left_out(), "at_work": since,
        "renewed_s": renewed_s(bool(working.rows), bool(unfinished.rows)),
    }  # fmt: skip
    return Page("runs.html.j2", "Runs", shown, streams=True)


def _listing(reader: Reader, words: Sequence[str]) -> dict[str, Any]:
    """Return the runs with all of these words as lines, and the columns that some line fills."""
    where = " AND ".join(
        "contains(lower(concat_ws(' ', r.run_id, r.arm, r.domain, "
        f"array_to_string(r.tags, ' '), r.note)), {text(word.lower())})"
        for word in words
    )
    found = reader.panel(
        "runs", "Runs",
        f"WITH {differing('true', 'arm, domain', ' ')}\n"
        "SELECT r.run_id, o.gain, o.gain_low, o.gain_high, o.start, o.value, o.measure, "
        "o.p_hat, o.alpha, o.share_signal, o.seconds, o.epochs, o.planned, m.items, m.of_items, "
        "r.arm, r.domain, r.seed, a.words AS differs_in, r.tags, r.note, r.pinned, r.started_at\n"
        "FROM runs AS r INNER JOIN outcomes AS o ON o.run_id = r.run_id\n"
        "LEFT JOIN apart AS a ON a.run_id = r.run_id\n"
        "LEFT JOIN measured AS m ON m.run_id = r.run_id\n"
        + (f"WHERE {where}\n" if where else "")
        + "ORDER BY r.started_at DESC, r.run_id",
    )  # fmt: skip
    lines = [line_of(row) for row in found]
    filled = {name for line in lines for name, said in line.items() if said}
    columns = [name for name in line_of({}) if name in filled or name in LATER]
    return {"listed": found, "lines": lines, "columns": columns}


def line_of(row: Mapping[str, Any]) -> dict[str, str]:
    """Return a run's texts in the list by the names of its columns; '' for unknown ones.

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
        "differs in": row.get("differs_in") or "",
        "domain": row.get("domain") or "",
        "seed": str(row["seed"]) if row.get("seed") is not None else "",
        "tags": ", ".join(row.get("tags") or ()),
        "note": row.get("note") or "",
        "pinned": "pinned" if row.get("pinned") else "",
        "started": f"{started:%Y-%m-%d %H:%M}" if started else "",
    }


def findings(reader: Reader, request: Request) -> Response:
    """Return the number of a run's grave findings in words, the gravest one, and its tokens so far.

    It counts the findings that the run's page shows as of now. Empty words mean that there is
    nothing to judge yet. Raises NotFound.
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


def _unfinished(reader: Reader) -> Panel:
    """Return the runs that have epochs to come."""
    return reader.panel(
        "unfinished", "Runs with epochs to come",
        "SELECT r.run_id FROM runs AS r LEFT JOIN epochs AS e ON e.run_id = r.run_id\n"
        "WHERE r.run_id NOT IN (SELECT run_id FROM measured WHERE items > 0)\n"
        "GROUP BY r.run_id, r.epochs_planned "
        "HAVING coalesce(max(e.epoch), 0) < r.epochs_planned",
    )  # fmt: skip
