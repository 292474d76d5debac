"""The five hard constraints, each a function of a query, a plan and the database.

`judging.py` applies them to plans that are complete and within the sandbox. A constraint that the
query does not name does not apply. A place means the first one of the database whose name matches.
"""

from __future__ import annotations

import math

from genenv_core.benchmarks.travelplanner.constraints.commonsense import flight_number
from genenv_core.benchmarks.travelplanner.database import Database, Restaurant, Room, found
from genenv_core.benchmarks.travelplanner.plan import (
    HOLDS,
    MEALS,
    ConstraintOutcome,
    Day,
    Plan,
    Query,
    shown,
)
from genenv_core.benchmarks.travelplanner.text import name_and_city

IN_A_CAR = 5
IN_A_TAXI = 4
DRIVING = 0.05
"""Dollars for a km of self-driving; a km by taxi costs a dollar."""

RULES = ("smoking", "parties", "children under 10", "visitors", "pets")
NOT_ASKED = ConstraintOutcome(None, "the query does not ask for it")


def _restaurant(text: str, database: Database, *, strict: bool) -> Restaurant | None:
    return next(iter(found(database.restaurants, name_and_city(text), whole=strict)), None)


def _rooms(plan: Plan, database: Database, *, strict: bool) -> list[tuple[Day, Room]]:
    """Return the accommodation of each day that has one."""
    rooms: list[tuple[Day, Room]] = []
    for day in plan.days:
        stay = day.said("accommodation")
        if stay:
            matches = found(database.rooms, name_and_city(stay), whole=strict)
            rooms.extend((day, room) for room in matches[:1])
    return rooms


def budget(query: Query, plan: Plan, database: Database, *, strict: bool) -> ConstraintOutcome:
    """Return whether a plan costs no more than the query's budget."""
    cost = total_cost(query, plan, database, strict=strict)
    if cost > query.budget:
        return ConstraintOutcome(
            False, f"it costs {cost:g} dollars, the budget is {query.budget:g}"
        )
    return HOLDS


def total_cost(query: Query, plan: Plan, database: Database, *, strict: bool) -> float:
    """Return what a plan costs all people, in dollars."""
    cost = sum(_fare(query, day, database) for day in plan.days)
    for day in plan.days:
        meals = [
            _restaurant(said, database, strict=strict) for said in map(day.said, MEALS) if said
        ]
        cost += sum(meal.cost for meal in meals if meal) * query.people
    for _, room in _rooms(plan, database, strict=strict):
        cost += room.price * math.ceil(query.people / room.occupancy)
    return cost


def _fare(query: Query, day: Day, database: Database) -> float:
    """Return what a day's transportation costs all people; 0 without two ends."""
    transport = day.said("transportation")
    ends = day.ends() if transport else None
    if not transport or ends is None:
        return 0
    lower = transport.lower()
    if "flight number" in lower:
        # The first flight with the number sets the price, wherever it goes.
        flight = next(database.flights.numbered(flight_number(transport, day)), None)
        return flight.price * query.people if flight else 0
    length = database.roads.get(ends) or 0
    if "self-driving" in lower:
        return int(length * DRIVING) * math.ceil(query.people / IN_A_CAR)
    return int(length) * math.ceil(query.people / IN_A_TAXI) if "taxi" in lower else 0


def room_rule(query: Query, plan: Plan, database: Database, *, strict: bool) -> ConstraintOutcome:
    """Return whether every accommodation allows what the query wants to do there."""
    if query.room_rule is None:
        return NOT_ASKED
    for day, room in _rooms(plan, database, strict=strict):
        if query.room_rule in RULES and f"No {query.room_rule}" in room.rules:
            return ConstraintOutcome(
                False, f"day {day.number}: {shown(room.name)} says {room.rules}"
            )
    return HOLDS


def cuisine(query: Query, plan: Plan, database: Database, *, strict: bool) -> ConstraintOutcome:
    """Return whether some meal away from the origin has each wanted cuisine."""
    if not query.cuisines:
        return NOT_ASKED
    had: set[str] = set()
    for day in plan.days:
        for said in map(day.said, MEALS):
            if said is None:
                continue
            if name_and_city(said)[1] == query.org:
                # The day's later meals do not count either.
                break
            restaurant = _restaurant(said, database, strict=strict)
            if restaurant:
                had.update(one for one in query.cuisines if one in restaurant.cuisines)
    missing = [one for one in query.cuisines if one not in had]
    return ConstraintOutcome(False, f"no meal is {', '.join(missing)}") if missing else HOLDS


def room_type(query: Query, plan: Plan, database: Database, *, strict: bool) -> ConstraintOutcome:
    """Return whether every accommodation is of the wanted kind."""
    if query.room_type is None:
        return NOT_ASKED
    kinds = {
        "not shared room": ("Private room", "Entire home/apt"),
        "shared room": ("Shared room",),
        "private room": ("Private room",),
        "entire room": ("Entire home/apt",),
    }
    for day, room in _rooms(plan, database, strict=strict):
        if room.kind not in kinds.get(query.room_type, (room.kind,)):
            return ConstraintOutcome(
                False, f"day {day.number}: {shown(room.name)} is a {room.kind}"
            )
    return HOLDS


def transportation(
    query: Query, plan: Plan, database: Database, *, strict: bool
) -> ConstraintOutcome:
    """Return whether no day flies or drives where the query forbids it."""
    if query.transportation is None:
        return NOT_ASKED
    forbidden = {"no flight": "Flight", "no self-driving": "Self-driving"}.get(query.transportation)
    for day in plan.days:
        said = day.said("transportation")
        if not said or not forbidden:
            continue
        # The official evaluator does not know the word in other cases, such as `self-driving`.
        if forbidden in said or (strict and forbidden.lower() in said.lower()):
            return ConstraintOutcome(False, f"day {day.number}: {forbidden.lower()} is not wanted")
    return HOLDS


HARD = {
    "budget": budget,
    "room_rule": room_rule,
    "cuisine": cuisine,
    "room_type": room_type,
    "transportation": transportation,
}
