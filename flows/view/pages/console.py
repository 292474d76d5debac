"""The SQL console: answers a reader's question in a process of its own, under limits of its own.

The address holds the question, and the run if the question is about one run, so people can keep
and send it. A link from another page fills the question in and does not ask it. The browser keeps
what a person asked and saved; the server writes nothing.
"""

from __future__ import annotations

import math
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from flows.shown.rows import encode
from flows.view.pages import Page
from flows.view.reading import Panel, Reader, parameter
from flows.view.shown import shown
from genenv_core.errors import NotFound, QueryError
from genenv_core.storage.records.runs import list_runs, unknown_run
from genenv_core.storage.sql.sandbox import Limits
from schemas.questions import questions
from schemas.relations import describe

LIMITS = Limits(timeout_s=30.0, memory="1GB", rows=1000)
DOWNLOAD = Limits(timeout_s=60.0, memory="1GB")
FORMATS = {
    "csv": "text/csv",
    "json": "application/json",
    "parquet": "application/vnd.apache.parquet",
}
LONGEST = 60_000
"""Most letters of a question: an address cannot hold more."""


def page(reader: Reader, request: Request) -> Page | Response:
    """Return the console with the address's question, and its answer if a person asked it."""
    sql = request.query_params.get("q", "")
    if len(sql) > LONGEST:
        raise QueryError(f"the question has {len(sql)} letters: at most {LONGEST} are read")
    run = request.query_params.get("run") or None
    if run is not None and (wrong := unknown_run(reader.store, run)):
        raise NotFound(wrong)
    may = request.headers.get("sec-fetch-site", "none") in ("none", "same-origin")
    if may and request.query_params.get("as"):
        return _download(reader, sql, run, parameter(request.query_params, "as", FORMATS))
    panel, error, remark = None, "", ""
    if may and sql.strip():
        try:
            answer = reader.apart(sql, LIMITS, run)
            panel, remark = Panel.of("answer", "Answer", sql, answer), answer.remark
        except QueryError as problem:
            error = str(problem)
    return Page(
        "console.html.j2", "SQL",
        {
            "sql": sql, "panel": panel, "plot": panel and plot(panel),
            "error": error, "remark": remark, "questions": questions(), "relations": _relations(),
            "runs": list_runs(reader.store), "of_run": run,
        },
        400 if error else 200,
    )  # fmt: skip


def plot(panel: Panel) -> dict[str, Any] | None:
    """Return the values for the chart of an answer, None where there is nothing to draw.

    Numbers stay numbers; any other value is text as in the table. Raises nothing.
    """
    numeric = [name for name in panel.columns if _is_numeric(panel, name)]
    if len(panel) < 2 or not numeric:
        return None
    return {
        "columns": panel.columns,
        "numeric": numeric,
        "rows": [
            [_number(row[name]) if name in numeric else shown(row[name]) for name in panel.columns]
            for row in panel
        ],
    }


def _is_numeric(panel: Panel, name: str) -> bool:
    """Return whether a column has numbers for a chart, and otherwise only nulls."""
    values = [row[name] for row in panel if row[name] is not None]
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in values):
        return False
    return any(_number(value) is not None for value in values)


def _number(value: float | None) -> float | None:
    """Return a number that JSON and a chart can hold, None for any other."""
    try:
        return value if value is not None and math.isfinite(float(value)) else None
    except OverflowError:
        return None


def _download(reader: Reader, sql: str, run: str | None, kind: str) -> Response:
    data = encode(reader.apart(sql, DOWNLOAD, run), kind)
    name = {"content-disposition": f'attachment; filename="answer.{kind}"'}
    return Response(data, media_type=FORMATS[kind], headers=name)


def _relations() -> list[Any]:
    """Return tables and views with their columns, views first."""
    return sorted(describe(), key=lambda relation: (relation.kind != "view", relation.name))
