"""The eight commonsense constraints, each a function of a query, a plan and the database.

A function returns the first fault that it finds, in the order of the days. It raises UnreadablePlan
where the official evaluator stops with an exception. `strict` refuses what the official evaluator
overlooks; each such place says what that is.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from genenv_core.benchmarks.travelplanner.database import Database, found
from genenv_core.benchmarks.travelplanner.plan import (
    ABSENT,
    CELLS,
    HOLDS,
    MEALS,
    NOT_NEEDED,
    ConstraintOutcome,
    Day,
    Plan,
    Query,
    UnreadablePlan,
    mode_of,
    shown,
)
from genenv_core.benchmarks.travelplanner.text import name_and_city

HALF = 0.5
"""Share of six cells a day that must not be empty; a plan's other keys count as well."""


def _failed(reason: str) -> ConstraintOutcome:
    return ConstraintOutcome(False, reason)


def within_sandbox(
    query: Query, plan: Plan, database: Database, *, strict: bool
) -> ConstraintOutcome:
    """Return whether all flights, roads and places of a plan are in the database."""
    for day in plan.days:
        # For this constraint a day needs no cell but transportation.
        day.cell("transportation")
        transport = day.said("transportation")
        if transport and not _exists(transport, day, query, database, strict=strict):
            return _failed(f"day {day.number}: {shown(transport)} is not in the database")
        for name in (*MEALS, "accommodation"):
            place = day.said(name)
            places = database.rooms if name == "accommodation" else database.restaurants
            if place and not found(places, name_and_city(place), whole=strict):
                return _failed(f"day {day.number}: {name} {shown(place)} is not in the database")
        for sight in day.attractions(strict=strict):
            if not found(database.attractions, name_and_city(sight), whole=strict):
                return _failed(f"day {day.number}: {shown(sight)} is not in the database")
    return HOLDS


def _exists(transport: str, day: Day, query: Query, database: Database, *, strict: bool) -> bool:
    """Return whether the flight or road of a day's transportation is in the database."""
    ends = day.ends()
    lower = transport.lower()
    if "flight number" in lower:
        if ends is None:
            raise UnreadablePlan(f"day {day.number}: no cities in {shown(transport)}")
        # The official evaluator takes a flight of any date.
        return any(
            (flight.origin, flight.destination) == ends
            and (not strict or flight.date == query.dates[day.number - 1])
            for flight in database.flights.numbered(flight_number(transport, day))
        )
    if "self-driving" in lower or "taxi" in lower:
        return ends is not None and database.roads.get(ends) is not None
    # The official evaluator takes any other means, a train or a walk, as it is.
    return not strict


def flight_number(transport: str, day: Day) -> str:
    """Return the text after the first `Flight Number: `, up to a comma or the next such mark."""
    parts = transport.split("Flight Number: ", 2)
    if len(parts) == 1:
        raise UnreadablePlan(f"day {day.number}: no 'Flight Number: ' in {shown(transport)}")
    return parts[1].split(",", 1)[0]


def complete_information(
    query: Query, plan: Plan, database: Database, *, strict: bool
) -> ConstraintOutcome:
    """Return whether a plan has all days, the right number of cities, and no gaps."""
    given = [day for day in plan.days if day.values and day.cell("current_city") != NOT_NEEDED]
    if len(given) != query.days:
        return _failed(f"{len(given)} days, wanted {query.days}")
    # The official evaluator ignores everything after the last day.
    if strict and plan.beyond:
        return _failed(f"{plan.beyond} days too many")
    for outcome in (_right_cities(query, plan), *(_gap(query, day, strict) for day in plan.days)):
        if not outcome.passed:
            return outcome
    filled = sum(day.says(key) for day in plan.days for key in day.values)
    if filled < HALF * len(CELLS) * query.days:
        return _failed(f"{filled} of {len(CELLS) * query.days} values are given")
    return HOLDS


def _right_cities(query: Query, plan: Plan) -> ConstraintOutcome:
    """Return whether the plan starts at the origin and visits as many cities as it should."""
    cities: set[str] = set()
    for day in plan.days:
        route = day.route
        if day.number == 1 and len(route) > 1 and route[0] != query.org:
            return _failed(f"day 1 starts at {shown(route[0])}, not at {query.org}")
        cities.update(route)
    cities.discard(query.org)
    if len(cities) != query.cities:
        return _failed(f"{len(cities)} cities are visited, wanted {query.cities}")
    return HOLDS


def _gap(query: Query, day: Day, strict: bool) -> ConstraintOutcome:
    """Return whether a day has all cells that it needs."""
    for name in CELLS:
        if name not in day.values:
            return _failed(f"day {day.number} has no {name}")

    def absent(name: str) -> bool:
        # To the official evaluator a null is not absent.
        return not day.says(name) if strict else day.values[name] in ABSENT

    leaves = "from " in day.place
    # Any word that ends with `to` makes this a day of travel, as in `Sacramento (California)`.
    if (leaves or "to " in day.place) and absent("transportation"):
        return _failed(f"day {day.number} has no transportation")
    if not leaves and " to " not in day.place and absent("attraction"):
        return _failed(f"day {day.number} has no attraction")
    if day.number != query.days and absent("accommodation"):
        return _failed(f"day {day.number} has no accommodation")
    if not leaves and any(absent(meal) for meal in MEALS):
        return _failed(f"day {day.number} lacks a meal")
    return HOLDS


def within_current_city(
    query: Query, plan: Plan, database: Database, *, strict: bool
) -> ConstraintOutcome:
    """Return whether each day's transportation and places are in the cities of that day."""
    for day in plan.days:
        cities: Sequence[str] = day.route
        if len(cities) == 1 and not strict:
            # The official evaluator goes through the letters of a single city: transportation
            # has to hold each of them, a place any one, an accommodation the last.
            cities = [*set(cities[0]), *cities[0][-1:]]
        if day.says("transportation") and not all(
            _names(day, "transportation", city) for city in cities
        ):
            return _failed(f"day {day.number}: transportation leaves the day's cities")
        for meal in MEALS:
            if day.says(meal) and not any(_names(day, meal, city) for city in cities):
                return _failed(f"day {day.number}: {meal} is not in the day's cities")
        for sight in day.attractions(strict=strict):
            if not any(city in sight for city in cities):
                return _failed(f"day {day.number}: {shown(sight)} is not in the day's cities")
        if day.says("accommodation"):
            if not cities:
                raise UnreadablePlan(f"day {day.number}: current_city is empty")
            if not _names(day, "accommodation", cities[-1]):
                return _failed(f"day {day.number}: accommodation is not in the day's last city")
    return HOLDS


def _names(day: Day, name: str, city: str) -> bool:
    value = day.cell(name)
    # Searches lists and objects like texts, as the official evaluator does.
    if not isinstance(value, str | list | dict):
        raise UnreadablePlan(f"day {day.number}: {name} is no text")
    return city in value


def reasonable_city_route(
    query: Query, plan: Plan, database: Database, *, strict: bool
) -> ConstraintOutcome:
    """Return whether a plan is a round trip through known cities, each visited once."""
    cities: list[str] = []
    for day in plan.days:
        route = day.route
        if day.number == 1 and len(route) > 1 and route[0] != query.org:
            return _failed(f"day 1 starts at {shown(route[0])}, not at {query.org}")
        cities.extend(route)
    if cities[0] != cities[-1]:
        return _failed(f"it starts at {shown(cities[0])} and ends at {shown(cities[-1])}")
    # A first day in a single city may be anywhere for the official evaluator.
    if strict and cities[0] != query.org:
        return _failed(f"it starts at {shown(cities[0])}, not at {query.org}")
    if not _each_once(cities):
        return _failed("a city is visited twice, or only passed through")
    for place, city in enumerate(cities):
        if city not in database.states:
            return _failed(f"{shown(city)} is no city of the database")
        if place in (0, len(cities) - 1):
            continue
        # The official evaluator does not look where a trip of 3 days goes.
        inside = database.states[city] == query.dest if query.days > 3 else city == query.dest
        if not inside and (strict or query.days > 3):
            return _failed(f"{shown(city)} is not in {query.dest}")
    return HOLDS


def _each_once(cities: Sequence[str]) -> bool:
    """Return whether each city has one stay, of two places or more in the list.

    A stay at the first or the last place may be of one, and the last place may repeat a city. A
    trip that ends with two days in the city where it began fails.
    """
    if len(cities) < 3:
        return False
    visited: set[str] = set()
    place = 0
    for city, group in groupby(cities):
        length = len(list(group))
        last = place + length - 1
        if city in visited and place not in (0, len(cities) - 1):
            return False
        if length == 1 and 0 < last < len(cities) - 1:
            return False
        visited.add(city)
        place += length
    return True


def diverse_restaurants(
    query: Query, plan: Plan, database: Database, *, strict: bool
) -> ConstraintOutcome:
    """Return whether the plan names no restaurant twice."""
    seen: list[Any] = []
    for day in plan.days:
        for meal in MEALS:
            if not day.says(meal):
                continue
            # The official evaluator takes `Subway, Reno` and `Subway, Reno(Nevada)` for two.
            value = name_and_city(day.said(meal) or "") if strict else day.values[meal]
            if value in seen:
                return _failed(f"day {day.number}: {meal} is a repetition")
            seen.append(value)
    return HOLDS


def diverse_attractions(
    query: Query, plan: Plan, database: Database, *, strict: bool
) -> ConstraintOutcome:
    """Return whether the plan names no attraction twice."""
    seen: set[str | tuple[str, str]] = set()
    for day in plan.days:
        for sight in day.attractions(strict=strict):
            place = name_and_city(sight) if strict else sight
            if place in seen:
                return _failed(f"day {day.number}: {shown(sight)} is a repetition")
            seen.add(place)
    return HOLDS


def non_conflicting_transportation(
    query: Query, plan: Plan, database: Database, *, strict: bool
) -> ConstraintOutcome:
    """Return whether day 1 has transportation and nobody drives who also flies or takes taxis."""
    plan.days[0].cell("transportation")
    if not plan.days[0].says("transportation"):
        return _failed("day 1 has no transportation")
    modes = {mode_of(day.said("transportation") or "") for day in plan.days}
    if "self-driving" in modes and modes & {"flight", "taxi"}:
        return _failed("self-driving is mixed with flights or taxis")
    return HOLDS


def minimum_nights(
    query: Query, plan: Plan, database: Database, *, strict: bool
) -> ConstraintOutcome:
    """Return whether every stay is as long as its accommodation wants."""
    stays: list[str] = []
    for day in plan.days:
        if "accommodation" not in day.values:
            return _failed(f"day {day.number} has no accommodation")
        stay = day.values["accommodation"]
        if not isinstance(stay, str):
            raise UnreadablePlan(f"day {day.number}: accommodation is no text")
        stays.append(stay)
    for stay, group in groupby(stays):
        nights = len(list(group))
        if stay in ABSENT:
            continue
        rooms = found(database.rooms, name_and_city(stay), whole=strict)
        # The official evaluator looks at a stay only when exactly one name matches.
        judged = rooms if strict or len(rooms) == 1 else []
        if judged and all(nights < room.nights for room in judged):
            return _failed(f"{nights} nights at {shown(stay)}, wanted {judged[0].nights:g}")
    return HOLDS


COMMONSENSE = {
    "within_current_city": within_current_city,
    "within_sandbox": within_sandbox,
    "reasonable_city_route": reasonable_city_route,
    "diverse_restaurants": diverse_restaurants,
    "non_conflicting_transportation": non_conflicting_transportation,
    "diverse_attractions": diverse_attractions,
    "minimum_nights": minimum_nights,
    "complete_information": complete_information,
}
"""By the names of the paper's table of constraints."""
