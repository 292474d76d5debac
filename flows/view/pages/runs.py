"""All runs of a root, and two or more of them beside each other."""

from __future__ import annotations

from starlette.requests import Request

from flows.view.curves import curves, listed
from flows.view.pages import Page, require
from flows.view.pages.run import RENEWED_S
from flows.view.reading import Panel, Reader, parameter
from genenv_core.errors import QueryError
from genenv_core.report.outcome import RECENT
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
        "SELECT r.run_id, o.epochs, o.planned, o.start, o.value AS last, o.gain, o.gain_low, "
        "o.gain_high, o.p_hat, w.wrong, r.arm, r.domain, r.seed, r.tags, r.note, r.pinned, "
        "r.started_at\n"
        "FROM runs AS r INNER JOIN outcomes AS o ON o.run_id = r.run_id\n"
        "LEFT JOIN (\n"
        "    SELECT f.run_id, string_agg(DISTINCT f.rule, ', ' ORDER BY f.rule) AS wrong\n"
        "    FROM findings AS f INNER JOIN outcomes AS n ON n.run_id = f.run_id\n"
        f"    WHERE f.epoch > coalesce(n.epoch, 0) - {RECENT} AND f.severity <> 'note'\n"
        "    GROUP BY f.run_id\n"
        ") AS w ON w.run_id = r.run_id\n"
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
