"""Reads the queries of a split from the official data set or from this project's folder."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, cast

import polars as pl

from genenv_core.benchmarks.files import read_json, read_lines
from genenv_core.benchmarks.travelplanner.plan import Query
from genenv_core.errors import DataError

SPLITS = ("train", "validation")
LEVELS = ("easy", "medium", "hard")
COLUMNS = (
    *("org", "dest", "days", "visiting_city_number", "date", "people_number", "budget"),
    *("local_constraint", "level"),
)
TEXT = "query"
"""The column with the request in words, which no verdict needs."""

LONGEST = 10_000
"""Characters of a Python literal in the official CSV; they have some hundred."""

LONGEST_COLUMN = 1_000_000
"""The same of a long column; they have some 40,000."""


def file_of(data: Path, split: str) -> Path | None:
    """Return the file of a split's queries: the official CSV or lines, or a JSON list."""
    official = [data / f"{split}.csv", data / f"{split}.jsonl"]
    found = [path for path in official if path.is_file()]
    return next(iter([*found, *sorted(data.glob(f"{split}_queries*.json"))]), None)


def read_queries(path: Path) -> dict[int, Query]:
    """Return a file's queries by `idx`, or by their place from 1; raises DataError."""
    queries: dict[int, Query] = {}
    for place, row in enumerate(_rows(path), 1):
        try:
            queries[int(row.get("idx", place))] = query_of(row)
        except (KeyError, TypeError, ValueError, SyntaxError, AttributeError) as error:
            raise DataError(
                f"{path}, query {place}: {type(error).__name__}: {error}; it needs "
                f"{', '.join(COLUMNS)}; download the file again"
            ) from error
    return queries


def _rows(path: Path) -> Sequence[Mapping[str, Any]]:
    rows: Any
    if path.suffix == ".csv":
        try:
            # Without the long columns, such as reference_information.
            scanned = pl.scan_csv(path, infer_schema=False, glob=False)
            given = scanned.collect_schema().names()
            columns = [*COLUMNS, *(name for name in (TEXT,) if name in given)]
            rows = scanned.select(columns).collect().to_dicts()
        except pl.exceptions.PolarsError as error:
            raise DataError(f"{path}: no CSV of queries: {error}") from error
    else:
        rows = read_lines(path) if path.suffix == ".jsonl" else read_json(path)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in cast("Any", rows)):
        raise DataError(f"{path}: no list of queries; download the file again")
    return cast("list[dict[str, Any]]", rows)


def column_of(path: Path, name: str) -> dict[int, Any]:
    """Return a long column of the official CSV or lines by `idx`; {} without that column."""
    rows: list[Any] = []
    if path.suffix == ".csv":
        scanned = pl.scan_csv(path, infer_schema=False, glob=False)
        names = [one for one in ("idx", name) if one in scanned.collect_schema().names()]
        rows = scanned.select(names).collect().to_dicts() if name in names else []
    elif path.suffix == ".jsonl":
        rows = read_lines(path)
    return {
        int(row.get("idx", place)): row[name] for place, row in enumerate(rows, 1) if row.get(name)
    }


def literal(value: Any, longest: int = LONGEST_COLUMN) -> Any:
    """Return the value of a Python literal, as the official CSV writes lists and objects.

    Raises ValueError, SyntaxError, RecursionError or MemoryError.
    """
    if not isinstance(value, str):
        return value
    if len(value) > longest:
        raise ValueError(f"a value of {len(value)} characters")
    return ast.literal_eval(value)


def query_of(row: Mapping[str, Any]) -> Query:
    """Return the query of a row of the data set; raises KeyError and others for a broken row."""
    asked: dict[str, Any] = literal(row["local_constraint"], LONGEST)
    cuisines: Sequence[str] | None = literal(asked["cuisine"], LONGEST)
    query = Query(
        org=row["org"],
        dest=row["dest"],
        days=int(row["days"]),
        cities=int(row["visiting_city_number"]),
        dates=tuple(date.fromisoformat(day) for day in literal(row["date"], LONGEST)),
        people=int(row["people_number"]),
        budget=float(row["budget"]),
        level=row["level"],
        room_rule=asked["house rule"],
        cuisines=None if cuisines is None else tuple(cuisines),
        room_type=asked["room type"],
        transportation=asked["transportation"],
        text=str(row.get(TEXT) or ""),
    )
    if query.days < 1 or len(query.dates) != query.days:
        raise ValueError(f"{len(query.dates)} dates for {query.days} days")
    if query.level not in LEVELS:
        raise ValueError(f"level {query.level!r}, known: {', '.join(LEVELS)}")
    return query
