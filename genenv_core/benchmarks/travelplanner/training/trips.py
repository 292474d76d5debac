"""Reads a trip that pi_env writes, and checks that its words say what its fields ask for.

A generation is a request in words, its demands as fields of the data set, and a plan.
"""

# jsonschema has no types.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from genenv_core.benchmarks.travelplanner.constraints.hard import RULES
from genenv_core.benchmarks.travelplanner.plan import CELLS, MEALS, Query
from genenv_core.benchmarks.travelplanner.suite import TravelPlanner
from genenv_core.benchmarks.travelplanner.text import name_and_city
from genenv_core.types import JsonObject

CITIES = {3: 1, 5: 2, 7: 3}
"""Cities to visit, by the days of a trip."""

PEOPLE = 8
LOCAL = ("house rule", "cuisine", "room type", "transportation")
CUISINES = ("American", "Chinese", "French", "Indian", "Italian", "Mediterranean", "Mexican")
ROOM_TYPES = ("entire room", "private room", "shared room", "not shared room")
TRANSPORT = ("no flight", "no self-driving")
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight")
LONGEST = 1000
"""Most letters of a request."""

SHORTEST_NAME = 6
"""Fewest letters of a place's name that a request may not say; shorter names may be mere words."""


_ANY = rf"(\d+|{'|'.join(WORDS)})"
_OTHER_NUMBERS = re.compile(
    rf"\$[\d,]+|\b(january|february|march|april) \d+|\b\d+(st|nd|rd|th)\b"
    rf"|\b{_ANY}[ -](days?|nights?|weeks?)\b|\b{_ANY} ([a-z]+ ){{0,2}}cit"
)
"""Numbers in a request, in lower case, that do not count the people."""


def _object(properties: Mapping[str, Any]) -> JsonObject:
    required = list(properties)
    return {
        "type": "object",
        "properties": dict(properties),
        "required": required,
        "additionalProperties": False,
    }


def _text(longest: int = 100) -> JsonObject:
    return {"type": "string", "minLength": 1, "maxLength": longest}


SCHEMA = _object(
    {
        "query": _text(LONGEST),
        "fields": _object(
            {
                "org": _text(),
                "dest": _text(),
                "days": {"enum": list(CITIES)},
                "visiting_city_number": {"enum": list(CITIES.values())},
                "date": {"type": "array", "items": _text(10), "minItems": 3, "maxItems": 7},
                "people_number": {"type": "integer", "minimum": 1, "maximum": PEOPLE},
                "local_constraint": _object(
                    {
                        "house rule": {"enum": [None, *RULES]},
                        "cuisine": {
                            "anyOf": [
                                {"type": "null"},
                                {
                                    "type": "array",
                                    "items": {"enum": list(CUISINES)},
                                    "minItems": 1,
                                    "maxItems": 4,
                                },
                            ]
                        },
                        "room type": {"enum": [None, *ROOM_TYPES]},
                        "transportation": {"enum": [None, *TRANSPORT]},
                    }
                ),
                "budget": {"type": "integer", "minimum": 1, "maximum": 1_000_000},
            }
        ),
        "plan": {
            "type": "array",
            "items": _object(
                {
                    "days": {"type": "integer"},
                    "current_city": _text(),
                    **{cell: _text(500) for cell in CELLS},
                }
            ),
            "minItems": 3,
            "maxItems": 7,
        },
    }
)
"""The JSON schema of a generation."""

_VALIDATOR = Draft202012Validator(SCHEMA)
SAID: Mapping[str, str] = {
    "smoking": "smok",
    "parties": "part(y|ies)",
    "children under 10": "child|kid",
    "visitors": "visitor|guest",
    "pets": r"\bpets?\b",
    "entire room": "entire",
    "private room": "private",
    "shared room": "shared",
    "not shared room": "(not|non|un|n't|avoid|without|no).{0,20}shar",
    "no flight": "flight|fly|air",
    "no self-driving": "driv",
}
"""How a request says each demand, as patterns in lower case."""


def fault(record: JsonObject) -> str:
    """Return where a generation breaks the schema, '' where it keeps it."""
    error = best_match(_VALIDATOR.iter_errors(record))
    if error is None:
        return ""
    return f"{'.'.join(map(str, error.absolute_path)) or 'it'}: {error.message[:120]}"


def row_of(record: JsonObject) -> JsonObject:
    """Return the row of the data set that a generation with the schema describes."""
    fields: JsonObject = record["fields"]
    numbers = ("days", "visiting_city_number", "people_number", "budget")
    whole = {name: int(fields[name]) for name in numbers}
    return {**fields, **whole, "query": record["query"], "level": level_of(fields)}


def level_of(fields: JsonObject) -> str:
    """Return the level: easy has no demand but the budget, medium one more, hard several more."""
    named = sum(fields["local_constraint"][name] is not None for name in LOCAL)
    return ("easy", "medium", "hard")[min(named, 2)]


def unknown(suite: TravelPlanner, query: Query) -> str:
    """Return which end, day or number of a trip is impossible, '' where all are possible."""
    states = suite.database.states
    if query.cities != CITIES[query.days]:
        return f"a trip of {query.days} days visits {CITIES[query.days]} cities"
    if query.org not in states:
        return f"there is no city {query.org[:60]!r}"
    if query.dest not in (states if query.days == 3 else states.values()):
        kind = "city" if query.days == 3 else "state"
        return f"there is no {kind} {query.dest[:60]!r} to visit for {query.days} days"
    first, last = suite.database.flights.dates
    if any(
        day != query.dates[0] + timedelta(days=number) for number, day in enumerate(query.dates)
    ):
        return "the dates are not one day after the other"
    if not first <= query.dates[0] <= query.dates[-1] <= last:
        return f"the dates are not from {first} to {last}"
    return ""


def unsaid(query: Query) -> list[str]:
    """Return the demands of a query that its words do not say."""
    text = query.text
    lower = text.casefold()
    asked = {
        "org": query.org in text,
        "dest": query.dest in text,
        "days": _says_days(query, lower),
        "visiting_city_number": query.cities == 1 or _says_cities(query.cities, lower),
        "people_number": query.people == 1 or _says_people(query.people, lower),
        "budget": any(
            re.search(rf"(?<![\d,]){number}(?![\d,]*\d)", text)
            for number in (f"{query.budget:,.0f}", f"{query.budget:.0f}")
        ),
    }
    for value in (query.room_rule, query.room_type, query.transportation):
        if value is not None:
            asked[value] = bool(re.search(SAID[value], lower))
    for cuisine in query.cuisines or ():
        asked[cuisine] = cuisine.casefold() in lower
    return [name for name, said in asked.items() if not said]


def _number(number: int) -> str:
    return f"({number}|{WORDS[number]})"


def _says_cities(number: int, lower: str) -> bool:
    return bool(re.search(rf"\b{_number(number)} ([a-z]+ ){{0,2}}cit", lower))


def _says_people(number: int, lower: str) -> bool:
    """Return whether a text has the number outside of its days, dates, cities and dollars."""
    rest = _OTHER_NUMBERS.sub(" ", lower)
    pair = number == 2 and bool(re.search(r"\b(couple|pair|duo)\b", rest))
    return pair or bool(re.search(rf"\b{_number(number)}\b", rest))


def _says_days(query: Query, lower: str) -> bool:
    """Return whether a text says the first day, and either the last day or the number of days."""
    first, last = query.dates[0], query.dates[-1]
    began = rf"\b({first:%B} {first.day}|{first.day}(st|nd|rd|th))(?!\d)".casefold()
    if f"{first:%B}".casefold() not in lower or not re.search(began, lower):
        return False
    long = rf"\b{_number(query.days)}[ -]days?"
    return bool(
        re.search(long, lower)
        or (query.days == 7 and "week" in lower)
        or re.search(rf"\b{last.day}(st|nd|rd|th)?\b", lower)
    )


def told(query: Query, plan: Sequence[JsonObject]) -> str:
    """Return a place or flight of the plan that the words of a query name, '' without one."""
    lower = query.text.casefold()
    for day in plan:
        cells = [str(day[name]) for name in (*MEALS, "accommodation")]
        for text in [*cells, *str(day["attraction"]).split(";")]:
            name = name_and_city(text)[0]
            ends = (query.org, query.dest)
            known = len(name) < SHORTEST_NAME or any(name in end for end in ends)
            if not known and name.casefold() in lower:
                return name
        number = re.search(r"\bF\d{3,}\b", str(day["transportation"]))
        if number and number[0].casefold() in lower:
            return number[0]
    return ""


def days_of(plan: Sequence[JsonObject]) -> list[JsonObject]:
    """Return a plan's days with only the cells of a record, in the record's order."""
    return [
        {
            name: day.get(name, number if name == "days" else "-")
            for name in ("days", "current_city", *CELLS)
        }
        for number, day in enumerate(plan, start=1)
    ]


def program_of(row: JsonObject, plan: Sequence[JsonObject]) -> str:
    """Return a trip as pi_env writes it."""
    fields = {name: row[name] for name in SCHEMA["properties"]["fields"]["properties"]}
    return json.dumps({"query": row["query"], "fields": fields, "plan": plan}, ensure_ascii=False)
