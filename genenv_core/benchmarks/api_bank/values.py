"""Brings values to their declared types, and compares them as the tools do."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, cast

from genenv_core.benchmarks.api_bank.parsing.reading import UnreadableError, read_list

Rule = Callable[[Any, Any], bool]
"""Whether a value counts as the gold one; both are of the declared type."""

_WORDS = {"true": True, "false": False}


def typed(value: Any, kind: str) -> Any:
    """Return a value as its declared type; raises UnreadableError for a value of another type.

    A number is digits, as the harness wants it: no sign, no exponent.
    """
    if kind in ("list", "list(str)"):
        return cast("list[Any]", value) if isinstance(value, list) else read_list(str(value))
    if kind not in ("int", "float", "bool"):
        return value
    text = str(value)
    try:
        if kind == "bool":
            return _WORDS[text.lower()]
        if kind == "int" and text.isdigit():
            return int(text)
        if kind == "float" and text.replace(".", "", 1).isdigit():
            return float(text)
    except (ValueError, KeyError):
        pass
    raise UnreadableError(f"no {kind}")


def exact(said: Any, gold: Any) -> bool:
    """Return whether both are the same."""
    return type(said) is type(gold) and said == gold


def compared(form: Callable[[str], Any]) -> Rule:
    """Return the rule that two texts count as the same when their forms are equal."""

    def rule(said: Any, gold: Any) -> bool:
        if not isinstance(said, str) or not isinstance(gold, str):
            return exact(said, gold)
        return form(said) == form(gold)

    return rule


def shared_words(said: Any, gold: Any) -> bool:
    """Return whether more than half of all words are common; words stand between single spaces."""
    if not isinstance(said, str) or not isinstance(gold, str):
        return False
    ours, theirs = set(said.split(" ")), set(gold.split(" "))
    return 2 * len(ours & theirs) > len(ours | theirs)


def shared_words_any_case(said: Any, gold: Any) -> bool:
    """Return `shared_words` of both in lower case."""
    return shared_words(str(said).lower(), str(gold).lower())


def anything(said: Any, gold: Any) -> bool:
    """Return True: the tool does not compare this argument."""
    return True


def any_text(said: Any, gold: Any) -> bool:
    """Return whether the value is a text that is not blank."""
    return isinstance(said, str) and bool(said.strip())


LOOSE = (shared_words, shared_words_any_case, anything, any_text)
"""The rules that mode strict replaces by `exact`."""


def same_receiver(said: Any, gold: Any) -> bool:
    """Return whether an address is the gold one; case counts before the @, where tools check it."""
    ours, theirs = str(said).strip(), str(gold).strip()
    return ours.lower() == theirs.lower() and ours.split("@")[0] == theirs.split("@")[0]


def same_readings(said: Any, gold: Any) -> bool:
    """Return whether two lists have the same names and values, as texts and in any order."""
    ours = _readings(said)
    return ours is not None and ours == _readings(gold)


def _readings(value: Any) -> list[tuple[str, str]] | None:
    if not isinstance(value, list):
        return None
    found: list[tuple[str, str]] = []
    for reading in cast("list[Any]", value):
        if not isinstance(reading, dict) or "name" not in reading or "value" not in reading:
            return None
        named = cast("dict[str, Any]", reading)
        found.append((str(named["name"]), str(named["value"])))
    return sorted(found)


def day(text: str) -> Any:
    """Return the day of a text such as 2023-4-1, or the text when it names none."""
    return _parsed(text, "%Y-%m-%d")


def time(text: str) -> Any:
    """Return the moment of a text such as 2023-4-1 9:00:00, or the text when it names none."""
    return _parsed(text, "%Y-%m-%d %H:%M:%S")


def day_of_year(text: str) -> Any:
    """Return the month and day of a text with or without a year, or the text."""
    found = day(text)
    if isinstance(found, str):
        found = _parsed(f"1900-{found}", "%Y-%m-%d")
    return (found.month, found.day) if isinstance(found, datetime) else text.strip()


def _parsed(text: str, form: str) -> datetime | str:
    """Return the moment, with the year padded to four digits first, as the tools do."""
    text = text.strip()
    year, *rest = text.split("-", 2)
    padded = "-".join([year.zfill(4), *rest]) if len(rest) == 2 and "-" not in rest[1] else text
    try:
        return datetime.strptime(padded, form)
    except ValueError:
        return text
