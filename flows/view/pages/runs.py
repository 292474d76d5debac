"""All runs of a root, and two or more of them beside each other."""

from __future__ import annotations

import json
from typing import Any, cast

from starlette.requests import Request

from flows.view.curves import curves
from flows.view.pages import Page, about
from flows.view.reading import Reader
from genenv_core.errors import QueryError
from genenv_core.report.data import without_secrets
from genenv_core.storage.sql.duck import text

MOST = 8
"""Runs that are compared at once: as many as can be told apart."""


def page(reader: Reader, request: Request) -> Page:
    """Return the list of runs; `q` filters it by words in any column."""
    words = request.query_params.get("q", "").split()
    where = " AND ".join(
        "contains(lower(concat_ws(' ', r.run_id, r.arm, r.domain, "
        f"array_to_string(r.tags, ' '), r.note)), {text(word.lower())})"
        for word in words
    )
    listed = reader.panel(
        "runs", "Runs",
        "SELECT r.run_id, r.arm, r.domain, r.seed, r.tags, r.note, r.pinned, "
        "count(e.epoch) FILTER (e.epoch > 0) AS epochs, r.epochs_planned AS planned, "
        "arg_max(e.p_hat, e.epoch) AS p_hat, arg_min(e.heldout_success, e.epoch) AS test_first, "
        "arg_max(e.heldout_success, e.epoch) AS test_last, r.started_at\n"
        "FROM runs AS r LEFT JOIN epochs AS e ON e.run_id = r.run_id\n"
        + (f"WHERE {where}\n" if where else "")
        + "GROUP BY ALL ORDER BY r.started_at DESC, r.run_id",
    )  # fmt: skip
    return Page("runs.html.j2", "Runs", {"listed": listed, "q": " ".join(words)})


def compare(reader: Reader, request: Request) -> Page:
    """Return the curves of some runs on top of each other, and where their settings differ."""
    names = list(dict.fromkeys(request.query_params.getlist("run")))
    if not 2 <= len(names) <= MOST:
        raise QueryError(f"choose two to {MOST} runs in the list of runs; {len(names)} were given")
    configurations = [json.loads(about(reader, name).rows[0]["config"]) for name in names]
    return Page(
        "compare.html.j2", "Compare runs",
        {
            "names": names,
            "curves": curves(reader, names),
            "differences": _differences([without_secrets(one) for one in configurations]),
            "configurations": reader.panel(
                "configurations", "Configurations",
                f"SELECT run_id, config FROM runs WHERE run_id IN ({_listed(names)})",
            ),
        },
    )  # fmt: skip


def _listed(names: list[str]) -> str:
    return ", ".join(map(text, names))


def _differences(configurations: list[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    """Return the settings in which configurations differ, with the value of each."""
    flat = [dict(_flat(one)) for one in configurations]
    names = sorted({name for one in flat for name in one})
    rows = [(name, [one.get(name, "") for one in flat]) for name in names]
    return [(name, values) for name, values in rows if len(set(values)) > 1]


def _flat(value: Any, name: str = "") -> list[tuple[str, str]]:
    if isinstance(value, dict):
        return [
            pair
            for key, inner in cast(dict[str, Any], value).items()
            for pair in _flat(inner, f"{name}.{key}" if name else str(key))
        ]
    return [(name, json.dumps(value, ensure_ascii=False))]
