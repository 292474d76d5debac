"""A query, and a plan with its days."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, NamedTuple, cast

from genenv_core.benchmarks.travelplanner.text import from_to, without_state

MEALS = ("breakfast", "lunch", "dinner")
CELLS = ("transportation", *MEALS, "attraction", "accommodation")
ABSENT = ("", "-")
"""Texts of an empty cell."""

NOT_NEEDED = "You don't need to fill in the information for this or later days."
"""The current city of a day that is not part of the trip, as the official forms word it."""


@dataclass(frozen=True, slots=True)
class Query:
    """The demands on a trip; constraints that the query does not name are None.

    `dest` is a city for 3 days, else a state. `cities` is how many cities besides `org` the trip
    visits, `dates` has one for each of `days`, `budget` is in dollars for all people.
    """

    org: str
    dest: str
    days: int
    cities: int
    dates: Sequence[date]
    people: int
    budget: float
    level: str
    room_rule: str | None
    cuisines: Sequence[str] | None
    room_type: str | None
    transportation: str | None
    text: str = ""
    """The request in words."""

    @property
    def trip(self) -> tuple[str, str, date, int]:
        """Return what identifies a trip, whatever the demands: ends, first day, and days."""
        return self.org, self.dest, self.dates[0], self.days

    @property
    def hard_constraints(self) -> int:
        """Return how many hard constraints it has, the budget among them."""
        named = (self.room_rule, self.cuisines, self.room_type, self.transportation)
        return 1 + sum(constraint is not None for constraint in named)


class ConstraintOutcome(NamedTuple):
    """Whether a constraint holds, None when it does not apply, and the reason if not."""

    passed: bool | None
    reason: str = ""


HOLDS = ConstraintOutcome(True)


class UnreadablePlan(Exception):
    """A plan lacks what a constraint needs; the official evaluator stops here."""


def shown(value: object) -> str:
    """Return a value for a reason, on one line and short."""
    return repr(value[:80] if isinstance(value, str) else type(value).__name__)


@dataclass(frozen=True, slots=True)
class Day:
    """One day of a plan, `number` from 1, with any JSON as its values."""

    number: int
    values: Mapping[str, Any]

    def cell(self, name: str) -> Any:
        """Return a value; raises UnreadablePlan without one of this name."""
        if name not in self.values:
            raise UnreadablePlan(f"day {self.number} has no {name}")
        return self.values[name]

    def says(self, name: str) -> bool:
        """Return whether the value of this name is not null, 0, empty or `-`."""
        value = self.values.get(name)
        return bool(value) and value != "-"

    def said(self, name: str) -> str | None:
        """Return the text of a name, None for an empty one; raises UnreadablePlan for no text."""
        if not self.says(name):
            return None
        value = self.values[name]
        if not isinstance(value, str):
            raise UnreadablePlan(f"day {self.number}: {name} is no text")
        return value

    @property
    def place(self) -> str:
        """Return the text of its current city; raises UnreadablePlan without one."""
        value = self.cell("current_city")
        if not isinstance(value, str):
            raise UnreadablePlan(f"day {self.number}: current_city is no text")
        return value

    @property
    def route(self) -> tuple[str, ...]:
        """Return its city, or both cities of a day of travel, without states."""
        if "from" not in self.place:
            return (without_state(self.place),)
        ends = from_to(self.place)
        if ends is None:
            raise UnreadablePlan(f"day {self.number}: no cities in {shown(self.place)}")
        return without_state(ends[0]), without_state(ends[1])

    def attractions(self, *, strict: bool) -> list[str]:
        """Return the attractions; unless `strict`, without the text after the last `;`.

        The official evaluator never sees that text.
        """
        parts = (self.said("attraction") or "").split(";")
        if not strict:
            return parts[:-1]
        return [part.strip() for part in parts if part.strip() not in ABSENT]

    def ends(self) -> tuple[str, str] | None:
        """Return both ends of its transportation, else those of its current city."""
        transport = self.said("transportation")
        ends = from_to(transport) if transport else None
        ends = ends or from_to(self.place)
        return (without_state(ends[0]), without_state(ends[1])) if ends else None


@dataclass(frozen=True, slots=True)
class Plan:
    """The days of a plan that a query asks for, and the number of further days."""

    days: Sequence[Day]
    beyond: int = 0


def parsed(prediction: Any, query: Query) -> Plan:
    """Return the plan in a JSON value; raises UnreadablePlan unless it is a list of objects."""
    if not isinstance(prediction, list):
        raise UnreadablePlan(f"the plan is no list of days but {type(prediction).__name__}")
    values = cast("list[Any]", prediction)
    days: list[Day] = []
    for number, value in enumerate(values[: query.days], 1):
        if not isinstance(value, dict):
            raise UnreadablePlan(f"day {number} is no object but {type(value).__name__}")
        days.append(Day(number, cast("dict[str, Any]", value)))
    return Plan(days, sum(_is_day(value) for value in values[query.days :]))


def _is_day(value: Any) -> bool:
    if isinstance(value, dict):
        value = cast("dict[str, Any]", value).get("current_city", "")
    return bool(value) and value not in (*ABSENT, NOT_NEEDED)


def mode_of(transport: str) -> str:
    """Return `taxi`, `self-driving`, `flight` or '', the first of them that a text names."""
    lower = transport.lower()
    return next((mode for mode in ("taxi", "self-driving", "flight") if mode in lower), "")
