"""Writes the table of the paper: five benchmarks and their average, measured and published rows.

Numbers of other benchmarks stand below the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from genenv_core.storage.sql.catalog import query

COLUMNS = {
    "api_bank": "API-Bank",
    "alfworld": "ALFWorld",
    "bfcl": "BFCL",
    "bamboogle": "Bamboogle",
    "travelplanner": "TravelPlanner",
}

PAPER = "GenEnv, arXiv 2512.19682, main table"
INDEX = f"{PAPER}, as indexed at wizwand.com/paper/694a22519eebe296e72aab51"


@dataclass(frozen=True, slots=True)
class Published:
    """A row that others published: points of 100 by benchmark, and the source of each.

    The paper does not say how its harness formed each number; see docs/benchmarks.
    """

    model: str
    points: dict[str, float]
    sources: dict[str, str]
    average: float | None = None


PUBLISHED = (
    Published(
        "GenEnv 7B",
        {
            "api_bank": 79.1,
            "alfworld": 54.5,
            "bfcl": 41.8,
            "bamboogle": 76.0,
            "travelplanner": 16.6,
        },
        {
            "api_bank": PAPER,
            "alfworld": PAPER,
            "bfcl": INDEX,
            "bamboogle": INDEX,
            "travelplanner": INDEX,
        },
        average=53.6,
    ),
    Published("base 7B of that paper", {"alfworld": 14.2}, {"alfworld": PAPER}),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One measured number, points of 100, with its interval, and how much of the data it covers.

    `mode` is the mode of scoring; `left_out` counts items that did not run.
    """

    run_id: str
    metric: str
    points: float | None
    low: float | None
    high: float | None
    items: int
    mode: str
    left_out: int


Measured = dict[str, dict[str, Cell]]
"""Model -> benchmark -> the headline of the newest run."""


def read_measured(connection: Any) -> Measured:
    """Return the headline of the newest measurement of each model on each benchmark."""
    found: Measured = {}
    for row in query(connection, _HEADLINES).iter_rows(named=True):
        cell = Cell(
            row["run_id"],
            row["metric"],
            row["points"],
            row["low"],
            row["high"],
            row["items"],
            row["mode"],
            row["not_run"],
        )
        found.setdefault(row["model"], {})[row["benchmark"]] = cell
    return found


_HEADLINES = """
WITH modes AS (SELECT run_id, any_value(mode) AS mode FROM benchmark_items GROUP BY run_id)
SELECT b.*, m.mode
FROM benchmarks AS b
JOIN modes AS m ON m.run_id = b.run_id
WHERE b.headline
QUALIFY row_number() OVER (PARTITION BY b.model, b.benchmark ORDER BY b.started_at DESC) = 1
ORDER BY b.model, b.benchmark
"""


def written(measured: Measured) -> str:
    """Return the table as Markdown."""
    lines = [
        "# Five benchmarks",
        "",
        "Points of 100. Rows of models that were measured here have 95 % bootstrap intervals over "
        "items; published rows have the sources below.",
        "",
        _line(["model", *COLUMNS.values(), "average"]),
        _line(["---", *["---:"] * (len(COLUMNS) + 1)]),
    ]
    lines += [
        _line(_measured_row(model, cells))
        for model, cells in measured.items()
        if any(name in COLUMNS for name in cells)
    ]
    lines += [_line(_published_row(row)) for row in PUBLISHED]
    lines += ["", *_notes(measured), "", "Sources of published rows:", ""]
    for row in PUBLISHED:
        for source in dict.fromkeys(row.sources.values()):
            names = ", ".join(COLUMNS[n] for n, of in row.sources.items() if of == source)
            lines.append(f"- {row.model}, {names}: {source}")
    return "\n".join(lines) + "\n"


def _measured_row(model: str, cells: dict[str, Cell]) -> list[str]:
    found = [_cell(cells.get(name)) for name in COLUMNS]
    points = [cells[name].points for name in COLUMNS if name in cells]
    known = [value for value in points if value is not None]
    part = "*" if any(cells[name].left_out for name in COLUMNS if name in cells) else ""
    average = f"{sum(known) / len(known):.1f}{part}" if len(known) == len(COLUMNS) else ""
    return [model.replace("|", "\\|"), *found, average]


def _cell(cell: Cell | None) -> str:
    if cell is None or cell.points is None or cell.low is None or cell.high is None:
        return ""
    part = "*" if cell.left_out else ""
    return f"{cell.points:.1f}{part} [{cell.low:.1f}, {cell.high:.1f}]"


def _published_row(row: Published) -> list[str]:
    points = [f"{row.points[name]:.1f}" if name in row.points else "" for name in COLUMNS]
    return [row.model, *points, "" if row.average is None else f"{row.average:.1f}"]


def _notes(measured: Measured) -> Sequence[str]:
    notes = ["What was measured:", ""]
    for model, cells in measured.items():
        for name, cell in sorted(cells.items()):
            left = f", * {cell.left_out} items not run" if cell.left_out else ""
            if cell.points is None:
                left += f": no value, and `genenv resume {cell.run_id}` says why"
            points = "" if name in COLUMNS or cell.points is None else f"{_cell(cell)} points, "
            notes.append(
                f"- {model}, {COLUMNS.get(name, name)}: {points}{cell.metric}, mode {cell.mode}, "
                f"{cell.items} items{left} (run {cell.run_id})"
            )
    return notes


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
