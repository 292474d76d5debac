"""Checks the form of the results of a domain's methods, and puts faults into words."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from genenv_core.canonical import canonical_json, place_of
from genenv_core.domains.steps import LONGER, storable, too_long
from genenv_core.errors import GenenvError
from genenv_core.play.asked import plain, shown, wrong_chance
from genenv_core.play.simulator import checked
from genenv_core.types import JsonObject, TaskDraft

ROLES = ("system", "user", "assistant", "tool")

HALVED = "which cannot be stored: a text has half of a surrogate pair"
WHOLE = "give whole characters: text.encode(errors='replace').decode() replaces halves"


@dataclass(frozen=True, slots=True)
class DomainFault:
    """What is wrong: the method or attribute, its value, and what to do."""

    method: str
    found: str
    remedy: str

    def __str__(self) -> str:
        """Return the fault as one line."""
        return f"{self.method}: {self.found}; {self.remedy}"


class StopChecking(Exception):
    """A fault that makes all further checks pointless."""

    def __init__(self, method: str, found: str, remedy: str) -> None:
        """Keep the fault."""
        self.fault = DomainFault(method, found, remedy)
        super().__init__(str(self.fault))


def field_of(value: object, name: str) -> object:
    """Return a field of a mapping, None for any other value."""
    return cast("dict[str, object]", value).get(name) if isinstance(value, dict) else None


def items_of(value: object) -> list[Any] | None:
    """Return a list, None for any other value."""
    return cast("list[Any]", value) if isinstance(value, list) else None


def of_schemas(method: str, tools: Sequence[object]) -> Iterator[DomainFault]:
    """Yield what is wrong with tools in OpenAI's form."""
    for tool in tools:
        function = field_of(tool, "function")
        name = field_of(function, "name")
        if not isinstance(name, str) or not name:
            yield DomainFault(
                method,
                f"has {shown(tool)}",
                'a tool is {"type": "function", "function": {"name", "description", "parameters"}}',
            )
            continue
        try:
            checked(cast("JsonObject", field_of(function, "parameters") or {}))
        except (ValueError, TypeError) as error:
            yield DomainFault(
                method, f"{name}: parameters are no JSON schema: {error}", "mend them"
            )


def of_messages(
    method: str, messages: object, *, may_be_empty: bool = False
) -> Iterator[DomainFault]:
    """Yield what is wrong with chat messages; raises Stop for a message that is too long."""
    remedy = 'return a list of {"role": "system|user|assistant|tool", "content": text}'
    given = items_of(messages)
    if given is None or not (given or may_be_empty):
        yield DomainFault(method, f"returned {shown(messages)}", remedy)
        return
    for message in given:
        text = field_of(message, "content")
        if field_of(message, "role") not in ROLES or not isinstance(text, str):
            yield DomainFault(method, f"has the message {shown(message)}", remedy)
        elif _halved(text):
            yield DomainFault(method, f"has the message {shown(message)}, {HALVED}", WHOLE)
        elif said := too_long([message]):
            raise StopChecking(method, said, LONGER if may_be_empty else "put less into it")


def _halved(text: str) -> bool:
    """Return whether a text has half of a surrogate pair, which no UTF-8 can hold."""
    return storable(text) != text


def changed(value: object, kept: object, path: str = "") -> str:
    """Return where a value differs after storage, '' where it does not."""
    if isinstance(value, dict) and isinstance(kept, dict):
        before, after = cast("dict[object, object]", value), cast("dict[object, object]", kept)
        if odd := [key for key in before if key not in after]:
            return f"{path or 'it'} has the key {shown(odd[0])}, which becomes a text"
        both = [(f"{path}[{place_of(key)}]", one, after[key]) for key, one in before.items()]
    elif isinstance(value, list) and isinstance(kept, list):
        items = zip(cast("list[object]", value), cast("list[object]", kept), strict=True)
        both = [(f"{path}[{place}]", one, same) for place, (one, same) in enumerate(items)]
    else:
        both = []
        if value != kept:
            return f"{path or 'it'} comes back changed from {shown(cast(object, value))}"
    return next(filter(None, (changed(one, same, at) for at, one, same in both)), "")


def check_fields(method: str, draft: TaskDraft) -> None:
    """Raise Stop for a task with a field of a wrong type or range, or that no file can hold."""
    for name in ("prompt", "ground_truth", "program", "family", "fingerprint"):
        value: Any = getattr(draft, name)
        if not isinstance(value, str) or (name in ("family", "fingerprint") and not value):
            raise StopChecking(method, f"a task's {name} is {shown(value)}", "make it a text")
        if _halved(value):
            raise StopChecking(method, f"a task's {name} is {shown(value)}, {HALVED}", WHOLE)
    difficulty: Any = draft.difficulty
    number = isinstance(difficulty, int | float) and not isinstance(difficulty, bool)
    if not number or not math.isfinite(difficulty):
        raise StopChecking(
            method,
            f"a task's difficulty is {shown(difficulty)}",
            f"make it a finite number{plain(difficulty)}",
        )
    if wrong := wrong_chance(draft.chance):
        raise StopChecking(method, wrong.found, wrong.remedy)
    try:
        kept = json.loads(canonical_json(draft.spec))
    except UnicodeEncodeError:
        raise StopChecking(
            method, f"a task's spec is {shown(draft.spec)}, {HALVED}", WHOLE
        ) from None
    except (TypeError, ValueError, RecursionError, GenenvError) as error:
        raise StopChecking(
            method,
            f"a task's spec is no JSON: {error}",
            "keep JSON in it: texts as keys, lists, texts, plain numbers, True, False and None",
        ) from None
    if kept != draft.spec:
        raise StopChecking(
            method,
            f"a task's spec comes back from storage otherwise: {changed(draft.spec, kept)}",
            "keep lists (no tuples), texts as keys, and plain numbers in it",
        )


def texts_of(method: str, given: object, *, least: int = 0) -> Sequence[str]:
    """Return a list of texts; raises Stop for any other value, and for fewer than `least`."""
    texts = cast("Sequence[object]", given) if isinstance(given, list | tuple) else None
    if texts is None or len(texts) < least or any(type(one) is not str for one in texts):
        raise StopChecking(
            method, f"returned {shown(cast(object, given))}", "return a list of texts"
        )
    return cast("Sequence[str]", texts)
