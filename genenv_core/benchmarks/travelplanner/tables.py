"""Prints what a traveller can look up as the official tools do.

Tables look as pandas prints them without an index, like the recorded reference information of the
data set. The first look-up that needs a file reads it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from genenv_core.benchmarks.travelplanner.constraints.hard import DRIVING
from genenv_core.benchmarks.travelplanner.database import (
    ATTRACTIONS,
    DISTANCES,
    FOLDER,
    MISSING,
    RESTAURANTS,
    ROOMS,
    STATES,
    rows_of,
)
from genenv_core.errors import DataError

SIGHTS = ("Name", "Latitude", "Longitude", "Address", "Phone", "Website", "City")
MEALS = ("Name", "Average Cost", "Cuisines", "Aggregate Rating", "City")
STAYS = (
    *("NAME", "price", "room type", "house_rules", "minimum nights", "maximum occupancy"),
    *("review rate number", "city"),
)
FLIGHTS = (
    *("Flight Number", "Price", "DepTime", "ArrTime", "ActualElapsedTime", "FlightDate"),
    *("OriginCityName", "DestCityName", "Distance"),
)
WHOLE = frozenset(("Average Cost", "maximum occupancy", "Price"))
BROKEN = frozenset(
    {
        *("Latitude", "Longitude", "Aggregate Rating", "price", "minimum nights"),
        *("review rate number", "Distance"),
    }
)
"""Columns of whole numbers, and of others."""

DIGITS = 6
"""Most digits that pandas prints after a point."""

NO_ROAD = "No valid information."
"""What the official reference information says of a missing road."""

MODES = ("self-driving", "taxi")
Row = Mapping[str, Any]


class Tables:
    """The files of a download, looked up by city, state or trip."""

    def __init__(self, data: Path, flights: Path) -> None:
        """Take the download `data` and its file of flights, without reading them."""
        self._folder, self._flights_file = data / FOLDER, flights

    def attractions(self, city: str) -> str:
        """Return a city's attractions."""
        return _table(SIGHTS, self._sights.get(city, ()), "There is no attraction in this city.")

    def restaurants(self, city: str) -> str:
        """Return a city's restaurants."""
        return _table(MEALS, self._meals.get(city, ()), "There is no restaurant in this city.")

    def accommodations(self, city: str) -> str:
        """Return a city's accommodations."""
        return _table(STAYS, self._stays.get(city, ()), "There is no accommodation in this city.")

    def flights(self, origin: str, destination: str, date: str) -> str:
        """Return the flights of a day such as 2022-03-01; raises DataError."""
        flights = self._flights.filter(
            (pl.col("OriginCityName") == origin)
            & (pl.col("DestCityName") == destination)
            & (pl.col("FlightDate") == date)
        )
        rows = flights.cast(pl.String).to_dicts()
        nothing = f"There is no flight from {origin} to {destination} on {date}."
        return _table(FLIGHTS, rows, nothing)

    def road(self, origin: str, destination: str, mode: str) -> str:
        """Return length and cost of a road by one of MODES; NO_ROAD without a road."""
        row = self._roads.get((origin, destination))
        if not row or row["duration"] in MISSING or row["distance"] in MISSING:
            return NO_ROAD
        if "day" in row["duration"]:
            return NO_ROAD
        length = float(row["distance"].removesuffix("km").replace(",", ""))
        cost = int(length * DRIVING) if mode == MODES[0] else int(length)
        return (
            f"{mode}, from {origin} to {destination}, duration: {row['duration']}, "
            f"distance: {row['distance']}, cost: {cost}"
        )

    def cities(self, state: str) -> str:
        """Return the cities of a state, '' for an unknown one."""
        return ", ".join(self._states.get(state, ()))

    @cached_property
    def _sights(self) -> dict[str, list[Row]]:
        return _by("City", rows_of(self._folder / ATTRACTIONS, SIGHTS))

    @cached_property
    def _meals(self) -> dict[str, list[Row]]:
        return _by("City", rows_of(self._folder / RESTAURANTS, MEALS))

    @cached_property
    def _stays(self) -> dict[str, list[Row]]:
        return _by("city", rows_of(self._folder / ROOMS, STAYS))

    @cached_property
    def _roads(self) -> dict[tuple[str, str], Row]:
        columns = ("origin", "destination", "duration", "distance")
        roads: dict[tuple[str, str], Row] = {}
        for row in rows_of(self._folder / DISTANCES, columns, whole=False):
            roads.setdefault((row["origin"], row["destination"]), row)
        return roads

    @cached_property
    def _states(self) -> dict[str, list[str]]:
        states: dict[str, list[str]] = defaultdict(list)
        for line in (self._folder / STATES).read_text(encoding="utf-8").splitlines():
            city, _, state = line.partition("\t")
            states[state].append(city)
        return states

    @cached_property
    def _flights(self) -> pl.DataFrame:
        """The flights without a missing value; texts as categories, about 40 bytes a flight."""
        try:
            rows = pl.scan_csv(
                self._flights_file, infer_schema=False, glob=False, null_values=sorted(MISSING)
            ).drop_nulls()
            texts = pl.col(*(name for name in FLIGHTS if name != "Price")).cast(pl.Categorical)
            return rows.select(texts, pl.col("Price").cast(pl.Float32)).collect(engine="streaming")
        except pl.exceptions.PolarsError as error:
            raise DataError(
                f"{self._flights_file}: no flights: {error}; it needs the columns "
                f"{', '.join(FLIGHTS)}; download the file again"
            ) from error


def printed(columns: Sequence[str], rows: Sequence[Row]) -> str:
    """Return rows as pandas prints them: right-justified, numbers of a column equally long."""
    cells: list[list[str]] = []
    for name in columns:
        number = name in WHOLE or name in BROKEN
        values = [str(row[name]).replace("\n", "\\n").replace("\t", "\\t") for row in rows]
        if number:
            values = _numbers(values, whole=name in WHOLE)
        column = [f" {name}" if number else name, *values]
        width = max(map(len, column))
        cells.append([value.rjust(width) for value in column])
    return "\n".join(" ".join(line) for line in zip(*cells, strict=True))


def _numbers(values: Sequence[str], *, whole: bool) -> list[str]:
    if whole:
        return [str(int(float(value))) for value in values]
    fixed = [f"{float(value):.{DIGITS}f}" for value in values]
    while all(value.endswith("0") and value[-2] != "." for value in fixed):
        fixed = [value[:-1] for value in fixed]
    return fixed


def _table(columns: Sequence[str], rows: Sequence[Row], nothing: str) -> str:
    return printed(columns, rows) if rows else nothing


def _by(column: str, rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row[column]].append(row)
    return dict(found)
