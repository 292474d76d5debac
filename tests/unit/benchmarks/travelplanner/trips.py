"""A small database of trips, a trip of 3 days and one of 5, and plans for them that pass."""

from __future__ import annotations

import copy
import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from genenv_core.benchmarks.travelplanner.database import (
    ATTRACTIONS,
    DISTANCES,
    FLIGHTS,
    RESTAURANTS,
    ROOMS,
    STATES,
)

Days = list[dict[str, Any]]

FIRST = "Flight Number: F1, from Home to Lake, Departure Time: 08:00"
LAST = "Flight Number: F2, from Lake to Home, Departure Time: 20:00"
CABIN = "Cabin, Lake"
LOFT = "Loft, Lake"
INN = "Inn, Port"

TABLES: dict[str, Sequence[Sequence[object]]] = {
    ROOMS: [
        [
            *("", "NAME", "room type", "price", "minimum nights", "review rate number"),
            *("house_rules", "maximum occupancy", "city"),
        ],
        [0, "Cabin", "Private room", 80, 2, 4, "No smoking", 2, "Lake"],
        [1, "Loft", "Entire home/apt", 100, 1, 4, "No pets & No parties", 1, "Lake"],
        [2, "Dorm", "Shared room", 20, 3, 4, "No visitors", 4, "Lake"],
        [3, "Dorm Annex", "Shared room", 20, 1, 4, "No children under 10", 4, "Lake"],
        [4, "Bare", "Private room", 1, 1, 4, "", 9, "Lake"],
        [5, "Inn", "Entire home/apt", 10, 1, 4, "No pets", 2, "Port"],
    ],
    RESTAURANTS: [
        ["", "Name", "City", "Cuisines", "Average Cost", "Aggregate Rating"],
        [0, "Alpha", "Lake", "Italian, Cafe", 10, 4.0],
        [1, "Beta", "Lake", "French", 20, 4.0],
        [2, "Gamma, Inn", "Lake", "Cafe", 30, 4.0],
        [3, "Delta", "Lake", "Cafe", 40, 4.0],
        [4, "Epsilon", "Lake", "Cafe", 50, 4.0],
        [5, "Alpha Grill", "Lake", "Mexican", 999, 4.0],
        [6, "Tavern", "Home", "Mexican", 1, 4.0],
        *([place, f"Snack {place}", "Lake", "Cafe", 1, 4.0] for place in range(12, 15)),
        *([place, f"Bar {place}", "Port", "Cafe", 1, 4.0] for place in range(7, 12)),
    ],
    ATTRACTIONS: [
        ["Name", "Latitude", "Longitude", "Address", "Phone", "Website", "City"],
        *([name, 1, 1, "a", "p", "w", "Lake"] for name in ("Falls", "Museum", "Tower")),
        *([name, 1, 1, "a", "p", "w", "Port"] for name in ("Pier", "Beach")),
        ["Silo", 1, 1, "a", "", "w", "Lake"],
    ],
    DISTANCES: [
        ["origin", "destination", "cost", "duration", "distance"],
        ["Home", "Lake", "", "1 hour", "1,100 km"],
        ["Lake", "Home", "", "1 hour", "59.9 km"],
        ["Lake", "Home", "", "1 hour", "2 km"],
        ["Lake", "Port", "", "1 hour", "40 km"],
        ["Port", "Home", "", "1 hour", "40 km"],
        ["Home", "Hill", "", "1 day 2 hours", "3,000 km"],
        ["Home", "Isle", "", "", ""],
    ],
    FLIGHTS[0]: [
        [
            *("Flight Number", "Price", "DepTime", "ArrTime", "ActualElapsedTime", "FlightDate"),
            *("OriginCityName", "DestCityName", "Distance"),
        ],
        ["F2", 60, "20:00", "21:00", "1 hour", "2022-03-03", "Lake", "Home", 100],
        ["F1", 50, "08:00", "09:00", "1 hour", "2022-03-01", "Home", "Lake", 100],
        ["F3", 70, "08:00", "09:00", "1 hour", "2022-03-02", "Home", "Lake", 100],
        ["F1", 999, "08:00", "09:00", "1 hour", "2022-03-02", "Home", "Hill", 100],
        ["F4", 10, "", "09:00", "1 hour", "2022-03-01", "Home", "Lake", 100],
    ],
}
CITIES = ["Home\tOhio", "Lake\tMaine", "Port\tMaine", "Hill\tTexas", "Isle\tOhio"]

UNCONSTRAINED = dict.fromkeys(("house rule", "cuisine", "room type", "transportation"))
SHORT: dict[str, Any] = {
    "idx": 1,
    "org": "Home",
    "dest": "Lake",
    "days": 3,
    "visiting_city_number": 1,
    "date": ["2022-03-01", "2022-03-02", "2022-03-03"],
    "people_number": 2,
    "local_constraint": UNCONSTRAINED,
    "budget": 680,
    "query": "Home to Lake and back.",
    "level": "easy",
}
LONG: dict[str, Any] = {
    **SHORT,
    "idx": 2,
    "dest": "Maine",
    "days": 5,
    "visiting_city_number": 2,
    "date": [f"2022-03-0{day}" for day in range(1, 6)],
    "budget": 9000,
    "level": "hard",
}


def day(city: str, transport: str, meals: str, sights: str, stay: str) -> dict[str, Any]:
    """Return a day; its meals are three texts with `|` between them."""
    breakfast, lunch, dinner = meals.split("|")
    return {
        "current_city": city,
        "transportation": transport,
        "breakfast": breakfast,
        "attraction": sights,
        "lunch": lunch,
        "dinner": dinner,
        "accommodation": stay,
    }


def short_trip() -> Days:
    """Return a plan that costs 220 for flights, 300 for meals and 160 for two nights: 680."""
    return [
        {"days": 1, **day("from Home to Lake", FIRST, "-|-|Alpha, Lake", "Falls, Lake;", CABIN)},
        {
            "days": 2,
            **day(
                "Lake",
                "-",
                "Beta, Lake|Gamma, Inn, Lake|Delta, Lake",
                "Museum, Lake;Tower, Lake;",
                CABIN,
            ),
        },
        {"days": 3, **day("from Lake to Home", LAST, "Epsilon, Lake|-|-", "-", "-")},
    ]


def long_trip() -> Days:
    """Return a plan by car, two days in Lake and two in Port."""
    return [
        day("from Home to Lake", "Self-driving, from Home to Lake", "-|-|-", "-", CABIN),
        day("Lake", "-", "Alpha, Lake|Beta, Lake|Delta, Lake", "Falls, Lake;", CABIN),
        day("from Lake to Port", "Self-driving, from Lake to Port", "-|-|-", "-", INN),
        day("Port", "-", "Bar 7, Port|Bar 8, Port|Bar 9, Port", "Pier, Port;", INN),
        day("from Port to Home", "Self-driving, from Port to Home", "-|-|-", "-", "-"),
    ]


def changed(plan: Days, number: int, **cells: Any) -> Days:
    """Return a plan whose day `number`, from 1, has these values."""
    copied = copy.deepcopy(plan)
    copied[number - 1].update(cells)
    return copied


def short_with(number: int, **cells: Any) -> Days:
    """Return the short trip, whose day `number`, from 1, has these values."""
    return changed(short_trip(), number, **cells)


def asking(query: dict[str, Any], **constraints: Any) -> dict[str, Any]:
    """Return a query with other values, and with these where they name a local constraint."""
    names = {"house_rule": "house rule", "room_type": "room type"}
    local = {names.get(name, name): value for name, value in constraints.items()}
    own = {name: value for name, value in local.items() if name not in UNCONSTRAINED}
    asked = {name: value for name, value in local.items() if name in UNCONSTRAINED}
    return {**query, **own, "local_constraint": {**query["local_constraint"], **asked}}


def write_download(folder: Path, queries: Sequence[dict[str, Any]] = (SHORT, LONG)) -> Path:
    """Write the database and the queries, as of the train split; return the folder."""
    for name, rows in TABLES.items():
        path = folder / "database" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows)
    path = folder / "database" / STATES
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(CITIES), encoding="utf-8")
    (folder / "train_queries.json").write_text(json.dumps(list(queries)), encoding="utf-8")
    return folder
