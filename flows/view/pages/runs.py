"""All runs of a root, and two or more of them beside each other."""

from __future__ import annotations

from starlette.requests import Request

from flows.view.curves import curves, listed
from flows.view.pages import Page, require
from flows.view.reading import Reader, parameter
from genenv_core.errors import QueryError
from genenv_core.storage.sql.duck import name, text

MOST = 8
"""Most lines in one picture: as many as a person can tell apart."""

MOST_OF_ARMS = 200
"""Runs whose arms are compared at once; their names stand in the address."""

BY = {"run": "a line a run", "arm": "a line an arm, the mean of its runs"}


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


def compare(reader: Reader, request: Request) -> Page:
    """Return the curves of runs, or of their arms, in one picture, and where settings differ."""
    names = list(dict.fromkeys(request.query_params.getlist("run")))
    by = parameter(request.query_params, "by", BY)
    most = MOST if by == "run" else MOST_OF_ARMS
    if not 2 <= len(names) <= most:
        raise QueryError(f"choose two to {most} runs in the list of runs; {len(names)} were given")
    known = f"SELECT run_id FROM runs WHERE run_id IN ({listed(names)})"
    require(reader, names, reader.panel("known", "Those that are there", known))
    few = names[:MOST]
    return Page(
        "compare.html.j2", "Compare runs" if by == "run" else "Compare arms",
        {
            "names": names,
            "by": by,
            "BY": BY,
            "curves": curves(reader, names, by),
            "compared": few,
            "differences": reader.panel(
                "differences", "Where the configurations differ", _differing(few)
            ),
        },
    )  # fmt: skip


def _differing(names: list[str]) -> str:
    """Return the question for the settings that differ, a column for the value in each run."""
    values = ", ".join(
        f"max(value) FILTER (run_id = {text(run)}) AS {name(run)}" for run in names
    )  # fmt: skip
    return (
        f"SELECT setting, {values}\n"
        "FROM (\n"
        "    SELECT r.run_id, substr(n.fullkey, 3) AS setting,\n"
        "        coalesce(CAST(n.atom AS VARCHAR), 'null') AS value\n"
        "    FROM runs AS r, json_tree(r.config) AS n\n"
        f"    WHERE n.type NOT IN ('OBJECT', 'ARRAY') AND r.run_id IN ({listed(names)})\n"
        ")\n"
        f"GROUP BY setting HAVING count(DISTINCT value) > 1 OR count(*) < {len(names)}\n"
        "ORDER BY setting"
    )
