"""The reference information of a query: parts that one may look up for it, each with a heading.

The data set records it for sole-planning: the attractions, restaurants and accommodations of the
cities of the annotated plan, and the flights and roads between them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from genenv_core.benchmarks.files import read_lines
from genenv_core.benchmarks.travelplanner.plan import Plan
from genenv_core.benchmarks.travelplanner.queries import column_of, literal
from genenv_core.benchmarks.travelplanner.tables import MODES, Tables, printed
from genenv_core.errors import DataError

Part = tuple[str, str]
"""A heading, such as `Restaurants in Reno`, and its text."""

COLUMN = "reference_information"
_PLACES = re.compile(r"(Attractions|Restaurants|Accommodations) in (.+)")
_FLIGHT = re.compile(r"Flight from (.+) to (.+) on (\d{4}-\d{2}-\d{2})")
_ROAD = re.compile(r"(Self-driving|Taxi) from (.+) to (.+)")


class References:
    """The recorded parts of a split's queries, by `idx`."""

    def __init__(self, queries: Path | None, recorded: Sequence[Path] = ()) -> None:
        """Take the files without reading them; the file of the queries may have parts as well."""
        self._queries, self._recorded = queries, recorded

    def of(self, index: int) -> Sequence[Part] | None:
        """Return the recorded parts of a query, None without any; raises DataError."""
        return self._parts.get(index)

    @cached_property
    def _parts(self) -> Mapping[int, Sequence[Part]]:
        parts = self._of_queries() if self._queries else {}
        for path in self._recorded:
            for place, row in enumerate(read_lines(path), 1):
                index, value = place, row
                if isinstance(row, dict) and COLUMN in row:
                    record = cast("dict[str, Any]", row)
                    index, value = int(record.get("idx", place)), record[COLUMN]
                parts[index] = _parts(value, f"{path}, line {place}")
        return parts

    def _of_queries(self) -> dict[int, Sequence[Part]]:
        """Return the parts in the official CSV or lines."""
        path = self._queries
        assert path
        values = column_of(path, COLUMN)
        return {index: _parts(value, f"{path}, query {index}") for index, value in values.items()}


def recorded_files(data: Path, split: str) -> list[Path]:
    """Return the files beside a split's queries that record reference information."""
    names = (f"{split}_ref_info.jsonl", f"{split}_{COLUMN}*.jsonl")
    return sorted(path for name in names for path in data.glob(name))


def headings(plan: Plan, dates: Sequence[str]) -> list[str]:
    """Return the headings that the data set would record for a plan: its cities and ways."""
    cities = [city for day in plan.days for city in day.route]
    visited = list(dict.fromkeys(city for city in cities[1:-1] if city != cities[0]))
    found = [
        f"{kind} in {city}"
        for city in visited
        for kind in ("Attractions", "Restaurants", "Accommodations")
    ]
    for day, date in zip(plan.days, dates, strict=False):
        if len(day.route) == 2:
            way = f"from {day.route[0]} to {day.route[1]}"
            found += [f"Flight {way} on {date}", f"Self-driving {way}", f"Taxi {way}"]
    return found


def looked_up(tables: Tables, wanted: Sequence[str]) -> list[Part]:
    """Look headings up in the tables; raises DataError for a heading of another form."""
    return [(heading, _looked_up(tables, heading)) for heading in wanted]


def _looked_up(tables: Tables, heading: str) -> str:
    if places := _PLACES.fullmatch(heading):
        look = {
            "Attractions": tables.attractions,
            "Restaurants": tables.restaurants,
            "Accommodations": tables.accommodations,
        }[places[1]]
        return look(places[2])
    if flight := _FLIGHT.fullmatch(heading):
        return tables.flights(*flight.groups())
    if road := _ROAD.fullmatch(heading):
        mode, origin, destination = road.groups()
        assert mode.lower() in MODES
        return tables.road(origin, destination, mode.lower())
    raise DataError(f"travelplanner: no heading of reference information: {heading[:80]!r}")


def shown(parts: Sequence[Part]) -> str:
    """Return parts as the model reads them."""
    return "\n\n".join(f"{heading}:\n{content}" for heading, content in parts)


def _parts(value: Any, where: str) -> Sequence[Part]:
    """Return the parts in one of the forms that releases have: a list, its text, or an object."""
    try:
        value = literal(value)
        if isinstance(value, dict):
            content = cast("dict[str, Any]", value)
            return [(heading, _content(one)) for heading, one in content.items()]
        rows = cast("list[dict[str, Any]]", value)
        return [(str(row["Description"]), _content(row["Content"])) for row in rows]
    except (ValueError, KeyError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise DataError(
            f"{where}: no reference information: {type(error).__name__}: {error}; download the "
            "file again"
        ) from error


def _content(value: Any) -> str:
    if isinstance(value, str):
        return value
    rows = cast("list[dict[str, Any]]", value)
    return printed(list(rows[0]), rows) if rows else ""
