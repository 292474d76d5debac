"""The types that descriptions name, and the check whether a value has its type.

Types are exact: a boolean is no integer. An integer passes for a float in Python; a tuple passes
for a list where the description names a tuple. A value may instead have the type of the first value
that gold lists: so gold allows a variable's name in place of a literal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from genenv_core.benchmarks.bfcl.categories import Language
from genenv_core.benchmarks.bfcl.faults import Uncheckable
from genenv_core.benchmarks.bfcl.languages.java import java_value
from genenv_core.benchmarks.bfcl.languages.javascript import javascript_value
from genenv_core.benchmarks.bfcl.shapes import is_list, is_object
from genenv_core.types import JsonObject

TYPES: Mapping[Language, Mapping[str, type]] = {
    Language.PYTHON: {
        "string": str,
        "any": str,
        "integer": int,
        "float": float,
        "boolean": bool,
        "array": list,
        "tuple": list,
        "dict": dict,
    },
    Language.JAVA: {
        **dict.fromkeys(("String", "any", "char"), str),
        **dict.fromkeys(("byte", "short", "integer", "long"), int),
        **dict.fromkeys(("float", "double"), float),
        "boolean": bool,
        **dict.fromkeys(("Array", "ArrayList", "Queue", "Stack"), list),
        "Set": set,
        **dict.fromkeys(("HashMap", "Hashtable"), dict),
    },
    Language.JAVASCRIPT: {
        **dict.fromkeys(("String", "any"), str),
        **dict.fromkeys(("integer", "Bigint"), int),
        "float": float,
        "Boolean": bool,
        "array": list,
        "dict": dict,
    },
}
"""The Python type of a value, by the name of its type in a description."""

WITH_ELEMENTS: Mapping[Language, Sequence[str]] = {
    Language.PYTHON: ("array", "tuple"),
    Language.JAVA: ("Array", "ArrayList"),
    Language.JAVASCRIPT: ("array",),
}
"""The types whose description also names the type of the elements."""


@dataclass(frozen=True, slots=True)
class Expected:
    """A described type: its name and its Python type, and those of its elements, if any."""

    name: str
    type: type
    element_name: str | None = None
    element: type | None = None


class Match(Enum):
    """Which type a value has."""

    AS_DESCRIBED = auto()
    AS_GOLD = auto()
    """Gold's values have another type than the described one: the value compares as it is."""
    OUTER = auto()
    """The described type, but an element of a wrong one."""
    NEITHER = auto()


def expected_of(description: JsonObject, language: Language) -> Expected:
    """Return the type that a parameter's description names; raises Uncheckable for others."""
    types = TYPES[language]
    name: Any = description.get("type")
    if not isinstance(name, str) or name not in types:
        raise Uncheckable(f"the description's type is {name!r}")
    if name not in WITH_ELEMENTS[language]:
        return Expected(name, types[name])
    items = description.get("items")
    element: Any = items.get("type") if is_object(items) else None
    if not isinstance(element, str) or element not in types:
        raise Uncheckable(f"the description's type of elements is {element!r}")
    return Expected(name, types[name], element, types[element])


def read(value: Any, expected: Expected, language: Language) -> Any:
    """Return a value ready to compare: read from source text, or as the float that is due."""
    if language is Language.JAVA:
        return java_value(value, expected.name, expected.element_name)
    if language is Language.JAVASCRIPT:
        return javascript_value(value, expected.name, expected.element_name)
    if expected.name == "tuple" and type(value) is tuple:
        as_list: list[Any] = list(value)  # pyright: ignore[reportUnknownArgumentType]
        return as_list
    if expected.name == "float" and type(value) is int:
        try:
            return float(value)
        except OverflowError as error:
            raise Uncheckable("an integer that no float holds") from error
    return value


def match_kind(value: Any, accepted: Sequence[Any], expected: Expected) -> Match:
    """Return whether a value has the described type, or that of gold's first value."""
    of_gold = _type_of_gold(accepted)
    if type(value) is expected.type:
        element = expected.element
        if element is None or any(_elements_match(value, gold, element) for gold in accepted):
            return Match.AS_DESCRIBED if of_gold in (None, expected.type) else Match.AS_GOLD
        return Match.OUTER if of_gold is expected.type else Match.NEITHER
    return Match.AS_GOLD if of_gold is type(value) else Match.NEITHER


def _elements_match(value: Sequence[Any], gold: Any, element: type) -> bool:
    """Return whether each element has the described type, or that of this list's first in gold."""
    if not is_list(gold):
        return True
    of_gold = _type_of_gold(gold)
    return all(type(one) in (element, of_gold) for one in value)


def _type_of_gold(listed: Sequence[Any]) -> type[Any] | None:
    """Return the type of the first value that does not say "may be left out"."""
    types: list[type[Any]] = [type(gold) for gold in listed if gold != ""]
    return types[0] if types else None
