"""What pi_env writes, a request and the call that it asks for, and what makes it a sound task."""

# jsonschema has no types.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, cast

from jsonschema.exceptions import best_match
from jsonschema.validators import Draft202012Validator
from pydantic import BaseModel, ConfigDict, Field

from genenv_core.benchmarks.api_bank.dialogues import written
from genenv_core.benchmarks.api_bank.tools import schema
from genenv_core.benchmarks.api_bank.training.drawing import Docs, format_of
from genenv_core.benchmarks.training.words import says
from genenv_core.types import Call, JsonObject, Rejected, Rejection

DEEPEST = 4
"""Levels of lists and records in an argument; the official ones have two."""

_NUMBERS = tuple(
    "zero one two three four five six seven eight nine ten eleven twelve".split()  # noqa: SIM905
)
_SPELLED = ("<tool_call>", '"arguments"')
_GROUPS = {
    "account": "Token|User$|Account|Password|Info",
    "calendar": "Agenda|Reminder|Meeting|Alarm",
    "health": "Health|Registration|Symptom|Emergency",
    "home": "Scene|Switch",
    "money": "Balance|Stock|Tax|Salary",
    "travel": "Hotel|Flight|Travel|Weather|Restaurants|Geocoding",
}


class EarlierCall(BaseModel, use_attribute_docstrings=True):
    """A call that has to be made first, and what it answers."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    api: str = Field(max_length=60)
    """The API's name."""
    arguments: dict[str, Any]
    """Its arguments."""
    answer: str | dict[str, Any]
    """What it answers; a later call needs something of it that the request does not say."""


class WrittenRequest(BaseModel, use_attribute_docstrings=True):
    """A generation of pi_env."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    request: str = Field(min_length=10, max_length=800)
    """What the user asks for, in plain English, with all values that the calls need."""
    api: str = Field(max_length=60)
    """The name of the API to call in the end."""
    arguments: dict[str, Any]
    """Its arguments, in the formats that it asks for."""
    before: list[EarlierCall] = Field(default=[], max_length=3)
    """Calls that have to be made first, in their order."""

    def program(self) -> str:
        """Return the one spelling of this generation."""
        values = self.model_dump(exclude_defaults=True)
        return json.dumps(values, ensure_ascii=False, separators=(",", ":"))

    def calls(self) -> list[JsonObject]:
        """Return all calls with their answers, in order."""
        last = {"api": self.api, "arguments": self.arguments, "answer": "success"}
        return [*(one.model_dump() for one in self.before), last]


Problem = Callable[[WrittenRequest, Docs], Rejected | None]
"""`problem`, or `call_problem` for requests that a user vouches for. Both return None for a sound
one."""


@dataclass(frozen=True, slots=True)
class Measures:
    """A request's family, and its difficulty."""

    family: str
    difficulty: float


def problem(found: WrittenRequest, docs: Docs) -> Rejected | None:
    """Return what makes a generation unsound, None for a sound request.

    In a sound request all APIs exist and take these arguments. The request says the values that
    they need and gives no call away. A later call needs the answer of each earlier one.
    """
    calls = found.calls()
    for call in calls:
        if wrong := _wrong_call(call, docs):
            return wrong
    if given := _given_away(found.request, [call["api"] for call in calls]):
        return Rejected(Rejection.LEAKS_ANSWER, f"the request has {given!a}, as the call has")
    known = found.request
    for place, call in enumerate(calls):
        if unsaid := _unsaid(call, docs, known):
            where = "the request does not say" if not place else "nothing before says"
            return Rejected(Rejection.INCONSISTENT, f"{where} {unsaid}")
        later = [leaf for other in calls[place + 1 :] for leaf in _leaves(other["arguments"])]
        answer = written(call["answer"])
        if later and not any(_says(answer, one) and not _says(known, one) for one in later):
            return Rejected(
                Rejection.INCONSISTENT, f"no later call needs what {call['api']} answers"
            )
        known += f"\n{answer}"
    return None


def call_problem(found: WrittenRequest, docs: Docs) -> Rejected | None:
    """Return why the calls themselves are wrong, None for right ones; ignores the request."""
    wrong = (_wrong_call(call, docs) for call in found.calls())
    return next((one for one in wrong if one), None)


def measures(found: WrittenRequest, docs: Docs) -> Measures:
    """Return family and difficulty.

    The family is the group of the last API, and whether there are earlier calls. The difficulty is
    the number of arguments, plus the values that the request says in other words, plus 3 for each
    earlier call.
    """
    calls = found.calls()
    text = "\n".join([found.request, *(written(call["answer"]) for call in calls[:-1])])
    arguments = sum(len(call["arguments"]) for call in calls)
    said = [_says(text, leaf) for call in calls for leaf in _leaves(call["arguments"])]
    group = next((name for name, of in _GROUPS.items() if re.search(of, found.api)), "other")
    family = f"{group} chain" if found.before else group
    return Measures(family, float(arguments + said.count(False) + 3 * len(found.before)))


def as_calls(calls: Sequence[Mapping[str, Any]]) -> list[Call]:
    """Return the calls of a spec."""
    return [Call(call["api"], call["arguments"]) for call in calls]


def _wrong_call(call: Mapping[str, Any], docs: Docs) -> Rejected | None:
    name, arguments = call["api"], call["arguments"]
    if name not in docs:
        return Rejected(Rejection.UNKNOWN_TOOL, f"there is no API {name!a}")
    if _too_deep(arguments):
        return Rejected(Rejection.OUT_OF_RANGE, f"{name}: more than {DEEPEST} levels of lists")
    parameters = schema(docs[name])["function"]["parameters"]
    error: Any = best_match(Draft202012Validator(parameters).iter_errors(arguments))
    if error is not None:
        return Rejected(Rejection.INCONSISTENT, f"{name}: {error.message[:120]!a}")
    for key, value in arguments.items():
        form = format_of(docs[name]["input_parameters"][key])
        if form and not _is_date(value, form):
            detail = f"{name}: {key} is {value[:40]!a}, which has not the format {form}"
            return Rejected(Rejection.INCONSISTENT, detail)
    return None


def _given_away(request: str, apis: Sequence[str]) -> str:
    """Return the first part of a call's spelling that a request has, '' without one.

    A name of one word is plain English, so it counts only with a parenthesis behind it.
    """
    names = [name for name in apis if sum(letter.isupper() for letter in name) > 1]
    spelled = [mark for mark in _SPELLED if mark in request]
    named = [name for name in names if re.search(rf"\b{re.escape(name)}\b", request)]
    called = [f"{name}(" for name in apis if f"{name}(" in request]
    return next(iter([*spelled, *called, *named]), "")


def _unsaid(call: Mapping[str, Any], docs: Docs, known: str) -> str:
    """Return the first argument whose value the known text lacks, '' where it has all."""
    for key, value in call["arguments"].items():
        form = format_of(docs[call["api"]]["input_parameters"][key])
        right = _says_day(known, value, form) if form else None
        if right is None:
            right = all(_says(known, leaf) for leaf in _leaves(value))
        if not right:
            return f"{key} {str(value)[:60]!a} of {call['api']}"
    return ""


def _leaves(value: Any) -> Iterator[str | int | float]:
    """Yield the texts and numbers of a value; a request may say booleans in any words."""
    stack = [value]
    while stack:
        one = stack.pop()
        if isinstance(one, dict):
            stack += cast(JsonObject, one).values()
        elif isinstance(one, list):
            stack += cast("list[Any]", one)
        elif isinstance(one, str | int | float) and not isinstance(one, bool):
            yield one


def _says(text: str, value: str | float) -> bool:
    """Return whether a text says a value, in any case and as whole words or digits."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    shown = [str(value)]
    if isinstance(value, int) and 0 <= value < len(_NUMBERS):
        shown.append(_NUMBERS[value])
    return any(says(_plain(text), _plain(one)) for one in shown)


@lru_cache(maxsize=64)
def _plain(text: str) -> str:
    """Return a text in lower case with single blanks.

    The cache helps because `_says` looks for many values in one text.
    """
    return " ".join(text.casefold().split())


def _says_day(text: str, value: str, form: str) -> bool:
    """Return whether a text says a date itself, or the number of its day."""
    day = rf"(?<!\w)0?{_moment(value, form).day}(?:st|nd|rd|th)?(?!\w)"
    return _says(text, value) or re.search(day, text, re.I) is not None


def _is_date(value: Any, form: str) -> bool:
    try:
        return isinstance(value, str) and bool(_moment(value, form))
    except ValueError:
        return False


def _moment(value: str, form: str) -> datetime:
    if "%Y" in form:
        return datetime.strptime(value, form)
    # A leap year: otherwise 29 February would be no day.
    return datetime.strptime(f"2024-{value}", f"%Y-{form}")


def _too_deep(value: Any) -> bool:
    level: list[Any] = [value]
    for _ in range(DEEPEST + 1):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner += cast(JsonObject, one).values()
            elif isinstance(one, list):
                inner += cast("list[Any]", one)
        level = inner
    return bool(level)
