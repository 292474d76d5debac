"""Draws requests for the official APIs, with values of genenv's own, in plain English.

The download gives an API's name and its arguments. An argument's name, declared type and format
decide which values the drawing takes; no official value is among them.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from genenv_core.benchmarks.training.invented import person, town, word
from genenv_core.types import JsonObject

LEVELS = 4
"""The highest level. 1: at most two arguments. 2: more. 3: as 2, with dates in words and an idle
sentence beside them. 4: two calls, the second of which needs the answer of the first."""

FORMATS = ("%Y-%m-%d %H:%M:%S", "%Y-%m-%d", "%m-%d")
"""Date formats that descriptions of arguments name, the longest first."""

Docs = Mapping[str, Mapping[str, Any]]

_YEAR = 2023
_VERBS = {
    **dict.fromkeys(("Add", "Book", "Open", "Register", "Send", "Record"), "a new"),
    **dict.fromkeys(("Modify", "Delete", "Query", "Get", "Cancel", "Play", "Check"), "the"),
}
_SPOKEN = {
    "on": "setting for on",
    "src": "text",
    "src_lang": "source language",
    "tgt_lang": "target language",
}
_IDLE = (
    "It is raining in {town} today.",
    "My neighbour {person} says hello.",
    "I will be in {town} later this week.",
    "Yesterday I met {person}.",
)
_FIRST_CALLS: Sequence[tuple[str, str]] = (
    ("GetUserToken", "token"),
    ("AppointmentRegistration", "appointment_id"),
)
"""APIs whose answer holds an argument of other APIs, and the name of that argument."""


@dataclass(frozen=True, slots=True)
class DrawnCall:
    """An API, its arguments, and what it answers."""

    api: str
    arguments: JsonObject
    answer: Any = "success"


@dataclass(frozen=True, slots=True)
class DrawnRequest:
    """A request and the calls that it asks for, in their order."""

    request: str
    calls: Sequence[DrawnCall]


def format_of(declared: Mapping[str, Any]) -> str:
    """Return the date format that an argument's description names, '' without one."""
    description = str(declared.get("description", ""))
    return next((form for form in FORMATS if form in description), "")


def draw(rng: random.Random, docs: Docs, level: int) -> DrawnRequest | None:
    """Return a request of a level from 1 to `LEVELS`; None where no API fits the level."""
    if level == LEVELS:
        return _chain(rng, docs)
    few = level == 1
    fitting = [doc for doc in docs.values() if (len(doc["input_parameters"]) <= 2) == few]
    if level == 3:
        fitting = [doc for doc in fitting if any(map(format_of, doc["input_parameters"].values()))]
    if not fitting:
        return None
    doc = rng.choice(fitting)
    asked, call = _asked(rng, doc, in_words=level == 3)
    if level == 3:
        idle = rng.choice(_IDLE).format(town=town(rng), person=person(rng))
        asked = f"{idle} {asked}" if rng.random() < 0.5 else f"{asked} {idle}"
    return DrawnRequest(asked, [call])


def _chain(rng: random.Random, docs: Docs) -> DrawnRequest | None:
    ways = [
        (docs[first], doc, key)
        for first, key in _FIRST_CALLS
        if first in docs
        for doc in docs.values()
        if key in doc["input_parameters"] and doc["name"] != first
    ]
    if not ways:
        return None
    first, second, key = rng.choice(ways)
    code = _code(rng)
    before, call = _asked(rng, first, in_words=False)
    after, last = _asked(rng, second, in_words=False, given={key: code})
    made = DrawnCall(call.api, call.arguments, {key: code})
    return DrawnRequest(f"{before} With the {_spoken(key)} of that, {_lower(after)}", [made, last])


def _asked(
    rng: random.Random,
    doc: Mapping[str, Any],
    *,
    in_words: bool,
    given: Mapping[str, Any] | None = None,
) -> tuple[str, DrawnCall]:
    """Return a request for one call; the request does not say the values in `given`."""
    arguments: JsonObject = dict(given or {})
    said: list[tuple[str, str]] = []
    moment = datetime(_YEAR, 1, 1) + timedelta(days=rng.randrange(300))
    for name, declared in doc["input_parameters"].items():
        if name in arguments:
            continue
        if form := format_of(declared):
            moment += timedelta(days=rng.randint(1, 20))  # an end comes after its beginning
            moment = moment.replace(hour=rng.randint(7, 21), minute=rng.choice((0, 15, 30, 45)))
            arguments[name] = moment.strftime(form)
            shown = _in_words(moment, form) if in_words else arguments[name]
        else:
            arguments[name], shown = _value(rng, name, declared)
        said.append((_spoken(name), shown))
    arguments = {name: arguments[name] for name in doc["input_parameters"]}
    return _sentence(rng, _task(doc["name"]), said), DrawnCall(doc["name"], arguments)


def _sentence(rng: random.Random, task: str, said: Sequence[tuple[str, str]]) -> str:
    pattern = rng.randrange(3)
    if not said:
        return f"Please {task}."
    if pattern == 0:
        facts = " ".join(f"Let the {name} be {value}." for name, value in said)
        return f"Please {task}. {facts}"
    if pattern == 1:
        facts = "; ".join(f"{name}: {value}" for name, value in said)
        return f"I want to {task}. {facts[0].upper()}{facts[1:]}."
    facts = " and ".join(f"{value} as the {name}" for name, value in said)
    return f"Can you {task}? Take {facts}."


def _task(api: str) -> str:
    """Return what an API does, read from its name: AddAgenda gives "add a new agenda"."""
    words = re.findall(r"[A-Z][a-z]+|[A-Z]+(?![a-z])", api) or [api]
    rest = " ".join(words[1:]).lower()
    if words[0] in _VERBS and rest:
        return f"{words[0].lower()} {_VERBS[words[0]]} {rest}"
    return f"use the {' '.join(words).lower()}"


def _spoken(name: str) -> str:
    return _SPOKEN.get(name, name.replace("_", " "))


def _lower(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:] if not sentence.startswith("I ") else sentence


def _value(rng: random.Random, name: str, declared: Mapping[str, Any]) -> tuple[Any, str]:
    """Return a value for an argument without a date format, and its words in the request."""
    kind = str(declared.get("type"))
    if kind == "int":
        number = rng.randint(2, 60)
        return number, str(number)
    if kind == "float":
        value = rng.randint(10, 890) / 10
        return value, str(value)
    if kind == "bool":
        value = rng.random() < 0.5
        return value, str(value).lower()
    if kind == "list" and name in _RECORDS:
        records = _RECORDS[name](rng)
        return records, ", ".join(" ".join(record.values()) for record in records)
    if kind in ("list", "list(str)"):
        names = [person(rng) for _ in range(rng.randint(2, 3))]
        return names, ", ".join(names)
    text = _text(rng, name, str(declared.get("description", "")))
    return text, text


def _in_words(moment: datetime, form: str) -> str:
    ending = (
        "th" if 10 < moment.day < 14 else {1: "st", 2: "nd", 3: "rd"}.get(moment.day % 10, "th")
    )
    day = f"{moment:%B} {moment.day}{ending}"
    if "%H" not in form:
        return day
    return f"{moment.hour % 12 or 12}:{moment:%M} {'am' if moment.hour < 12 else 'pm'} on {day}"


def _devices(rng: random.Random) -> list[dict[str, str]]:
    kinds = rng.sample(("lamp", "fan", "heater", "kettle", "radio", "curtain"), rng.randint(2, 3))
    return [{"name": kind, "description": f"in the {town(rng)} room"} for kind in kinds]


def _readings(rng: random.Random) -> list[dict[str, str]]:
    kinds = rng.sample(("pulse", "weight", "steps", "glucose", "temperature"), 2)
    return [{"name": kind, "value": str(rng.randint(30, 199))} for kind in kinds]


_RECORDS: Mapping[str, Callable[[random.Random], list[dict[str, str]]]] = {
    "devices": _devices,
    "health_data": _readings,
}


def _text(rng: random.Random, name: str, description: str) -> str:
    if "token" in name or name.endswith("_id") or "password" in name or name == "account":
        return _code(rng)
    if name in ("email", "receiver", "recipient"):
        return f"{word(rng).lower()}@{word(rng).lower()}.example"
    if name == "url":
        ending = next((end for end in (".txt", ".jpg", ".wav") if end in description), ".txt")
        return f"http://{word(rng).lower()}.example/{word(rng).lower()}{ending}"
    if name == "formula":
        return f"({rng.randint(2, 99)} + {rng.randint(2, 99)}) * {rng.randint(2, 9)}"
    if "doctor" in name:
        return f"Dr. {word(rng)}"
    if name in ("username", "user_name"):
        return word(rng).lower()
    if name == "stock_code":
        return "".join(rng.choices("ABCDEFGHKLMNPQRSTUVWXYZ", k=5))
    if name in ("patient_name", "member_name") or "holder" in description:
        return person(rng)
    if name in ("location", "address", "source", "destination"):
        return f"{rng.choice(('Hall', 'Room', 'Square', 'Station'))} {town(rng)}"
    if name.endswith("_lang"):
        return rng.choice(("Danish", "Estonian", "Icelandic", "Basque", "Welsh"))
    what = ("ballad", "essay", "map", "report", "song", "talk", "tale", "visit")
    return f"{rng.choice(what)} of {word(rng)} and {word(rng)}"


def _code(rng: random.Random) -> str:
    return "".join(rng.choices("abcdefghkmnpqrstuvwxyz23456789", k=12))
