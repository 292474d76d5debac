"""All runs of a root."""

from __future__ import annotations

from starlette.requests import Request

from flows.view.pages import Page
from flows.view.reading import Reader
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
        "SELECT r.run_id, r.arm, r.domain, r.seed, r.tags, r.note, r.pinned, "
        "count(e.epoch) FILTER (e.epoch > 0) AS epochs, r.epochs_planned AS planned, "
        "arg_max(e.p_hat, e.epoch) AS p_hat, b.test_start, "
        "arg_max(e.heldout_success, e.epoch) AS test_last, r.started_at\n"
        "FROM runs AS r LEFT JOIN epochs AS e ON e.run_id = r.run_id\n"
        "LEFT JOIN (SELECT run_id, avg(value) AS test_start FROM test_results "
        "WHERE epoch = 0 AND measure = 'sampled' GROUP BY run_id) AS b ON b.run_id = r.run_id\n"
        + (f"WHERE {where}\n" if where else "")
        + "GROUP BY ALL ORDER BY r.started_at DESC, r.run_id",
    )  # fmt: skip
    shown = {"listed": found, "q": " ".join(words), "left_out": reader.left_out()}
    return Page("runs.html.j2", "Runs", shown)
