"""The database that judges plans, indexed by city."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from genenv_core.benchmarks.files import required
from genenv_core.benchmarks.travelplanner.flights import Flights, read_flights
from genenv_core.errors import DataError

FOLDER = "database"
ROOMS = "accommodations/clean_accommodations_2022.csv"
ATTRACTIONS = "attractions/attractions.csv"
RESTAURANTS = "restaurants/clean_restaurant_2022.csv"
DISTANCES = "googleDistanceMatrix/distance.csv"
STATES = "background/citySet_with_states.txt"
_SMALL = (ROOMS, RESTAURANTS, ATTRACTIONS, DISTANCES, STATES)
FLIGHTS = ("flights/clean_Flights_2022.csv", "flights/clean_Flights_2022.slice.csv")

_NO_NUMBER = ("-1.#IND", "-1.#QNAN", "1.#IND", "1.#QNAN", "-NaN", "-nan", "NaN", "nan")
_NO_VALUE = ("", "#N/A", "#N/A N/A", "#NA", "<NA>", "N/A", "NA", "n/a", "NULL", "null", "None")
MISSING = frozenset((*_NO_NUMBER, *_NO_VALUE))
"""Texts that pandas reads as no value. The official evaluator drops every row that has one."""


class Named(Protocol):
    """Something with a name."""

    @property
    def name(self) -> str: ...


Table = TypeVar("Table")
Place = TypeVar("Place", bound=Named)


@dataclass(frozen=True, slots=True)
class Attraction:
    """A sight; it costs nothing."""

    name: str


@dataclass(frozen=True, slots=True)
class Restaurant:
    """A restaurant; a meal's cost in dollars is for one person, `cuisines` is one text."""

    name: str
    cost: float
    cuisines: str


@dataclass(frozen=True, slots=True)
class Room:
    """An accommodation; the price in dollars is for one night and up to `occupancy` people."""

    name: str
    price: float
    kind: str
    rules: str
    nights: float
    """The shortest stay, in nights."""

    occupancy: int


@dataclass(frozen=True, slots=True)
class Database:
    """Places by city in the files' order, roads in km by both ends, states by city, and flights.

    A road that takes a day or more has no length.
    """

    rooms: Mapping[str, Sequence[Room]]
    restaurants: Mapping[str, Sequence[Restaurant]]
    attractions: Mapping[str, Sequence[Attraction]]
    roads: Mapping[tuple[str, str], float | None]
    states: Mapping[str, str]
    flights: Flights


def found(
    places: Mapping[str, Sequence[Place]], where: tuple[str, str], *, whole: bool
) -> list[Place]:
    """Return a city's places with this name, or whose names merely contain it.

    `where` is (name, city).
    """
    name, city = where
    if whole:
        return [place for place in places.get(city, ()) if place.name.strip() == name]
    return [place for place in places.get(city, ()) if name in place.name]


def rows_of(path: Path, columns: Sequence[str], *, whole: bool = True) -> Iterator[dict[str, str]]:
    """Yield a CSV file's rows; with `whole`, only those without a missing value."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            lost = set(columns) - set(reader.fieldnames or ())
            if lost:
                raise DataError(
                    f"{path}: it has no column {', '.join(sorted(lost))}; download the file again"
                )
            for row in reader:
                if whole and any(value is None or value in MISSING for value in row.values()):
                    continue
                yield row
    except csv.Error as error:
        raise DataError(f"{path}: no CSV: {error}; download the file again") from error


def _rooms(path: Path) -> dict[str, list[Room]]:
    columns = ("NAME", "price", "room type", "house_rules", "minimum nights", "maximum occupancy")
    rooms: dict[str, list[Room]] = defaultdict(list)
    for row in rows_of(path, (*columns, "city")):
        name, price, kind, rules, nights, people = (row[column] for column in columns)
        room = Room(name, float(price), kind, rules, float(nights), int(people))
        rooms[row["city"]].append(room)
    return dict(rooms)


def _restaurants(path: Path) -> dict[str, list[Restaurant]]:
    restaurants: dict[str, list[Restaurant]] = defaultdict(list)
    for row in rows_of(path, ("Name", "City", "Cuisines", "Average Cost")):
        one = Restaurant(row["Name"], float(row["Average Cost"]), row["Cuisines"])
        restaurants[row["City"]].append(one)
    return dict(restaurants)


def _attractions(path: Path) -> dict[str, list[Attraction]]:
    attractions: dict[str, list[Attraction]] = defaultdict(list)
    for row in rows_of(path, ("Name", "City")):
        attractions[row["City"]].append(Attraction(row["Name"]))
    return dict(attractions)


def _roads(path: Path) -> dict[tuple[str, str], float | None]:
    roads: dict[tuple[str, str], float | None] = {}
    for row in rows_of(path, ("origin", "destination", "duration", "distance"), whole=False):
        length: float | None = None
        if row["duration"] not in MISSING and row["distance"] not in MISSING:
            length = float(row["distance"].removesuffix("km").replace(",", ""))
        # The first row of a pair counts, as in the official evaluator.
        ends = (row["origin"], row["destination"])
        roads.setdefault(ends, None if "day" in row["duration"] else length)
    return roads


def _states(path: Path) -> dict[str, str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return dict((city, state) for city, state in (line.split("\t") for line in lines if line))


def files_of(data: Path) -> list[Path]:
    """Return the database's files; raises ConfigError when one is missing.

    The file of flights is the last; the official one wins over a slice of it.
    """
    folder = required(data, FOLDER)
    files = [required(data, f"{FOLDER}/{name}") for name in _SMALL]
    flights = [folder / name for name in FLIGHTS if (folder / name).exists()]
    return [*files, flights[0] if flights else required(data, f"{FOLDER}/{FLIGHTS[0]}")]


def _parsed(parse: Callable[[Path], Table], path: Path) -> Table:
    try:
        return parse(path)
    except ValueError as error:
        raise DataError(f"{path}: {error}; download the file again") from error


def read_database(data: Path) -> Database:
    """Return the database of a download; raises ConfigError or DataError with the file."""
    rooms, restaurants, attractions, roads, states, flights = files_of(data)
    return Database(
        _parsed(_rooms, rooms),
        _parsed(_restaurants, restaurants),
        _parsed(_attractions, attractions),
        _parsed(_roads, roads),
        _parsed(_states, states),
        read_flights(flights, MISSING),
    )
