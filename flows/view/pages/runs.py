"""All runs of a root."""

from __future__ import annotations

from starlette.requests import Request

from flows.view.pages import Page
from flows.view.pages.run import RENEWED_S
from flows.view.reading import Panel, Reader
from genenv_core.storage.sql.duck import text


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
        "SELECT r.run_id, o.gain, o.gain_low, o.gain_high, o.start, o.value AS last, o.measure, "
        "o.p_hat, o.epochs, o.planned, r.arm, r.domain, r.seed, r.tags, r.note, r.pinned, "
        "r.started_at\n"
        "FROM runs AS r INNER JOIN outcomes AS o ON o.run_id = r.run_id\n"
        + (f"WHERE {where}\n" if where else "")
        + "ORDER BY r.started_at DESC, r.run_id",
    )  # fmt: skip
    shown = {
        "listed": found, "q": " ".join(words), "left_out": reader.left_out(),
        "at_work": _at_work(reader), "renewed_s": RENEWED_S,
    }  # fmt: skip
    return Page("runs.html.j2", "Runs", shown)


def _at_work(reader: Reader) -> Panel:
    """Return which stages are at work, over all runs."""
    return reader.panel(
        "at_work", "At work",
        "SELECT run_id, epoch, stage FROM stage_runs\n"
        "QUALIFY row_number() OVER (PARTITION BY run_id, epoch, stage ORDER BY attempt DESC) = 1 "
        "AND state = 'running'\nORDER BY run_id, epoch, stage",
    )  # fmt: skip
