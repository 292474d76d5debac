"""Draws trips like an annotated one: the same way and plan, with other demands."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

from genenv_core.benchmarks.travelplanner.constraints.hard import RULES, total_cost
from genenv_core.benchmarks.travelplanner.database import Database
from genenv_core.benchmarks.travelplanner.plan import Query, parsed
from genenv_core.benchmarks.travelplanner.training.trips import (
    CITIES,
    CUISINES,
    LOCAL,
    PEOPLE,
    ROOM_TYPES,
    TRANSPORT,
    level_of,
)
from genenv_core.types import JsonObject


def variants(
    database: Database, query: Query, plan: Sequence[JsonObject], rng: random.Random
) -> Iterator[JsonObject]:
    """Yield rows with other demands, without end; the plan may keep them."""
    read = parsed(list(plan), query)
    while True:
        people = rng.randint(1, PEOPLE)
        named = rng.sample(LOCAL, rng.choice((0, 1, 1, 2, 3)))
        local: JsonObject = dict.fromkeys(LOCAL)
        choices: Mapping[str, Any] = {
            "house rule": rng.choice(RULES),
            "cuisine": rng.sample(CUISINES, rng.randint(1, 3)),
            "room type": rng.choice(ROOM_TYPES),
            "transportation": rng.choice(TRANSPORT),
        }
        local |= {name: choices[name] for name in named}
        cost = total_cost(replace(query, people=people), read, database, strict=False)
        budget = math.ceil(cost * rng.uniform(1.0, 1.5) / 100) * 100 or 100
        fields: JsonObject = {
            "org": query.org,
            "dest": query.dest,
            "days": query.days,
            "visiting_city_number": query.cities,
            "date": [day.isoformat() for day in query.dates],
            "people_number": people,
            "local_constraint": local,
            "budget": budget,
        }
        yield {**fields, "query": worded(fields, rng), "level": level_of(fields)}


def worded(fields: JsonObject, rng: random.Random) -> str:
    """Return a request in words for the fields of a row."""
    days, people, local = fields["days"], fields["people_number"], fields["local_constraint"]
    first, last = (_day(fields["date"][place]) for place in (0, -1))
    who = "one person" if people == 1 else f"{people} people"
    where = fields["dest"] if days == 3 else f"{CITIES[days]} cities in {fields['dest']}"
    opening = rng.choice(
        (
            f"Plan {days} days for {who}: we leave {fields['org']} for {where} on {first} and are "
            f"back on {last}.",
            f"{who.capitalize()} want to see {where}, from {first} to {last}, with {fields['org']} "
            f"as both start and end of these {days} days.",
            f"I need the plan of a trip of {days} days from {fields['org']} to {where}, {first} to "
            f"{last}, for {who}.",
        )
    )
    asked = [rng.choice(("Spend at most ${:,}.", "The budget is ${:,}.")).format(fields["budget"])]
    if local["house rule"]:
        asked.append(f"Where we stay, {local['house rule']} must be allowed.")
    if local["cuisine"]:
        asked.append(f"We want to eat {', '.join(local['cuisine'])} food on the way.")
    if local["room type"]:
        wanted = {"not shared room": "a room that is not shared"}
        asked.append(f"We stay in {wanted.get(local['room type'], 'a ' + local['room type'])}.")
    if local["transportation"]:
        asked.append(
            {"no flight": "We do not fly."}.get(local["transportation"], "We don't drive.")
        )
    return " ".join([opening, *asked])


def _day(text: str) -> str:
    day = date.fromisoformat(text)
    return f"{day:%B} {day.day}, {day.year}"
