"""A query as a model plays it; the tool `submit_plan` ends the attempt.

In sole-planning the request comes with its reference information, and the model has only to submit.
In two stages the model first looks things up in the database. The answer to an invalid call says
what is wrong, and the model can repeat the call. A wrong plan in a valid call counts as submitted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from genenv_core.benchmarks.protocol import ItemVerdict
from genenv_core.benchmarks.travelplanner.database import Database
from genenv_core.benchmarks.travelplanner.judging import judged
from genenv_core.benchmarks.travelplanner.plan import CELLS, Query
from genenv_core.benchmarks.travelplanner.reference import Part, shown
from genenv_core.benchmarks.travelplanner.tables import MODES, Tables
from genenv_core.types import Call, JsonObject, Message, Observation, Said

SOLE, TWO_STAGE = "sole", "two_stage"
TURNS = {SOLE: 4, TWO_STAGE: 30}
"""Most turns by stage. The official agent has 30 steps; in sole-planning the further turns let a
model repeat an invalid call."""

CALLS = 10
"""Most calls of one turn that an attempt carries out."""

SUBMIT = "submit_plan"
ASKED = f"Call the tool {SUBMIT} with the plan."
MALFORMED = f'Error: a call is a JSON object with "name" and "arguments". {ASKED}'
IGNORED = f"Error: not carried out; make at most {CALLS} calls in a turn, {SUBMIT} as the last one."

RULES = (
    f"You plan trips. Answer by calling the tool {SUBMIT} once, with one object for each day of "
    "the trip. Use only flights, places and prices that you were given. A cell in which there is "
    'nothing to say is "-". How cells are written:\n'
    '- current_city: the city, as "Reno", or on a day of travel "from Reno to Boise".\n'
    '- transportation: "Flight Number: F0000001, from Reno to Boise, Departure Time: 08:10, '
    'Arrival Time: 09:20", or "Self-driving, from Reno to Boise, duration: 6 hours 30 mins, '
    'distance: 680 km, cost: 34", or the same with "Taxi".\n'
    '- breakfast, lunch, dinner, accommodation: the name, a comma and the city, as "Blue Door, '
    'Boise".\n'
    '- attraction: one or more, each with its city and a semicolon: "Old Fort, Boise;River Walk, '
    'Boise;".\n'
    "A trip begins and ends in the city where it starts. It keeps to the budget, which is for all "
    "people. No restaurant and no attraction comes twice, nobody who drives also flies or takes a "
    "taxi, and a stay is at least as long as the accommodation wants. Days in one city have three "
    "meals and an attraction, and every night but the last day's has an accommodation."
)
LOOK_UP = (
    " Look up what you need with the other tools first. Names of cities are written as the tools "
    "write them, without the state; dates as 2022-03-16."
)

_DAY: JsonObject = {
    "type": "object",
    "properties": {
        "days": {"type": "integer", "description": "The number of the day, from 1."},
        "current_city": {"type": "string"},
        **{cell: {"type": "string"} for cell in CELLS},
    },
    "required": ["days", "current_city", *CELLS],
}


def _tool(name: str, description: str, arguments: JsonObject) -> JsonObject:
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": arguments,
                "required": list(arguments),
                "additionalProperties": False,
            },
        },
    }


def _text(description: str, **more: Any) -> JsonObject:
    return {"type": "string", "description": description, **more}


_CITY = {"city": _text("A city, such as Reno.")}
_ENDS = {
    "origin": _text("The city where the way begins."),
    "destination": _text("The city where it ends."),
}
SUBMIT_TOOL = _tool(
    SUBMIT,
    "Submit the plan, which ends the task.",
    {"plan": {"type": "array", "items": _DAY, "minItems": 1}},
)
SEARCHES: Sequence[JsonObject] = (
    _tool(
        "FlightSearch",
        "Find the flights of a day from one city to another.",
        {**_ENDS, "date": _text("The day, such as 2022-03-16.")},
    ),
    _tool("AttractionSearch", "Find the attractions of a city.", _CITY),
    _tool("RestaurantSearch", "Find the restaurants of a city.", _CITY),
    _tool("AccommodationSearch", "Find the accommodations of a city.", _CITY),
    _tool(
        "GoogleDistanceMatrix",
        "Find how far a city is from another by road, how long it takes and what it costs.",
        {**_ENDS, "mode": _text("How one travels.", enum=list(MODES))},
    ),
    _tool("CitySearch", "Find the cities of a state.", {"state": _text("A state of the USA.")}),
)
_ARGUMENTS: dict[str, list[str]] = {
    tool["function"]["name"]: tool["function"]["parameters"]["required"] for tool in SEARCHES
}


@dataclass(frozen=True)
class Trip:
    """A query to play, as `Playable`: with its reference information, or with tables to look up."""

    query: Query
    database: Database
    parts: Sequence[Part] | None
    tables: Tables | None

    @property
    def messages(self) -> Sequence[Message]:
        """The rules and the request, in sole-planning behind its reference information."""
        rules, content = RULES + LOOK_UP, self.query.text
        if self.parts is not None:
            rules = RULES
            content = f"{shown(self.parts)}\n\nRequest: {content}"
        return {"role": "system", "content": rules}, {"role": "user", "content": content}

    @property
    def tools(self) -> Sequence[JsonObject]:
        """The tool that submits; in two stages also the tools that look things up."""
        return [SUBMIT_TOOL] if self.parts is not None else [*SEARCHES, SUBMIT_TOOL]

    def begin(self, seed: int) -> TripPlaying:
        """Return a fresh attempt; nothing in it is random."""
        return TripPlaying(None if self.parts is not None else self.tables)

    def prediction(self, said: Sequence[Said]) -> list[JsonObject] | None:
        """Return the plan of the first valid submission, None without one."""
        for turn in said[: TURNS[TWO_STAGE] if self.parts is None else TURNS[SOLE]]:
            for call in turn.calls[:CALLS]:
                if call.name == SUBMIT and not _wrong_plan(call):
                    return call.arguments["plan"]
        return None

    def judge(self, prediction: Any, mode: str) -> ItemVerdict:
        """Return the verdict on a plan."""
        return judged(self.query, self.database, prediction, strict=mode == "strict")


class TripPlaying:
    """One attempt at a query."""

    def __init__(self, tables: Tables | None) -> None:
        """Take the tables to look up, None in sole-planning."""
        self._tables = tables
        self._turns = 0
        self._most = TURNS[SOLE] if tables is None else TURNS[TWO_STAGE]
        self._submitted = False

    def answer(self, said: Said) -> Observation:
        """Return the tools' answers; raises DataError where a file cannot be read."""
        messages: list[Message] = []
        submitted = self._submitted
        for number, call in enumerate(said.calls):
            if submitted or number >= CALLS:
                content = IGNORED
            elif call.name == SUBMIT:
                wrong = _wrong_plan(call)
                submitted = not wrong
                content = wrong or "The plan is submitted."
            else:
                content = self._looked_up(call)
            messages.append(_told(call, content))
        messages += [Message(role="tool", name=SUBMIT, content=MALFORMED) for _ in said.malformed]
        self._submitted = submitted
        self._turns += 1
        done = submitted or self._turns >= self._most
        if not messages and not done:
            messages = [Message(role="user", content=ASKED)]
        return Observation(tuple(messages), done=done)

    def _looked_up(self, call: Call) -> str:
        tables = self._tables
        known = _ARGUMENTS if tables else {}
        wanted = known.get(call.name)
        if tables is None or wanted is None:
            names = ", ".join([*known, SUBMIT])
            return f"Error: there is no tool {call.name[:60]!r}; there is {names}."
        given = call.arguments
        if sorted(given) != sorted(wanted) or not all(isinstance(v, str) for v in given.values()):
            return f"Error: {call.name} takes {', '.join(wanted)}, each a text."
        texts = [_printable(str(given[name])[:100].strip()) for name in wanted]
        search: dict[str, Callable[..., str]] = {
            "FlightSearch": tables.flights,
            "AttractionSearch": tables.attractions,
            "RestaurantSearch": tables.restaurants,
            "AccommodationSearch": tables.accommodations,
            "GoogleDistanceMatrix": tables.road,
            "CitySearch": tables.cities,
        }
        if call.name == "GoogleDistanceMatrix" and texts[-1] not in MODES:
            return f"Error: mode is one of {', '.join(MODES)}."
        return search[call.name](*texts) or "Error: there is no such state."


def _told(call: Call, content: str) -> Message:
    known = call.name == SUBMIT or call.name in _ARGUMENTS
    return {"role": "tool", "name": call.name if known else SUBMIT, "content": content}


def _printable(text: str) -> str:
    """Return a text without lone surrogates, which a model may write and no file can hold."""
    return text.encode("utf-8", "replace").decode()


def _wrong_plan(call: Call) -> str:
    """Return why a call submits no plan, '' if it submits one."""
    plan = call.arguments.get("plan")
    if len(call.arguments) != 1 or not isinstance(plan, list):
        return f'Error: {SUBMIT} has one argument, "plan", which is a list of days.'
    days = cast("list[Any]", plan)
    if not days or not all(isinstance(day, dict) for day in days):
        return "Error: a plan is a list of one object for each day, and has at least one."
    return ""
