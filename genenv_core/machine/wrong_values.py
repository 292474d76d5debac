"""Says to people what a refused value should be, without patterns and words of libraries."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_PATTERNS: dict[str, str] = {}

_ASKED = {
    "int_type": "a whole number, such as 4",
    "int_parsing": "a whole number, such as 4",
    "int_from_float": "a whole number, such as 4",
    "int_parsing_size": "a whole number of fewer digits",
    "float_type": "a number, such as 0.5",
    "float_parsing": "a number, such as 0.5",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "a text, in quotes where YAML reads something else",
    "dict_type": "a mapping, as in {{name: value}}",
    "mapping_type": "a mapping, as in {{name: value}}",
    "model_type": "a section with fields",
    "model_attributes_type": "a section with fields",
    "list_type": "a list, as in [a, b]",
    "tuple_type": "a list, as in [a, b]",  # nobody can write a tuple in YAML
    "greater_than": "more than {gt}",
    "greater_than_equal": "{ge} or more",
    "less_than": "less than {lt}",
    "less_than_equal": "{le} or less",
    "multiple_of": "a multiple of {multiple_of}",
    "enum": "{expected}",
    "literal_error": "{expected}",
    "string_too_short": "a text of at least {min_length} characters",
    "string_too_long": "a text of at most {max_length} characters",
    "too_short": "a list of at least {min_length}",
    "too_long": "a list of at most {max_length}",
}
"""Type of a pydantic error -> what the value should be, with the names of its context."""

OFFERED = 100
"""Most characters of a text that an error offers in place of a refused one."""


def worded(pattern: str, words: str) -> str:
    """Return the pattern of a field, after noting in words which texts fit it."""
    _PATTERNS[pattern] = words
    return pattern


def words_of(pattern: str) -> str | None:
    """Return in words which texts fit a pattern; None for one that `worded` has not seen."""
    return _PATTERNS.get(pattern)


def refuse_in_words(schema: dict[str, Any]) -> None:
    """Let the JSON schema of a field say its pattern in words, for checks by the schema alone.

    The error of a `const` is its text with "was expected", that of a `pattern` is the pattern.
    """
    pattern = schema.get("pattern", "")
    if words := words_of(pattern):
        del schema["pattern"]
        schema |= {"if": {"pattern": pattern}, "else": {"const": words}}


def refusal(item: ErrorDetails) -> str:
    """Return what one error of a ValidationError expected, and which value it got.

    It offers a near choice, or a text that would fit.
    """
    context = {name: _plain(value) for name, value in item.get("ctx", {}).items()}
    given = "nothing" if item["input"] is None else f"{item['input']!r:.200}"
    if item["type"] == "string_pattern_mismatch":
        pattern = str(context["pattern"])
        words = words_of(pattern) or f"a text that fits the regular expression {pattern}"
        return f"expected {words}, got {given}{_instead(fitting(pattern, str(item['input'])))}"
    if item["type"] in _ASKED:
        asked = _ASKED[item["type"]].format(**context)
        if item["type"] == "string_too_short" and context["min_length"] == 1:
            asked = "a text that is not empty"
        said = f"expected {asked}, got {given}"
        return said + closest(
            str(item["input"]), re.findall("'([^']*)'", str(context.get("expected", "")))
        )
    # Messages of a model's own validators, and rare errors in the words of pydantic.
    message = item["msg"].removeprefix("Value error, ")
    return f"{message[:1].lower()}{message[1:]}, got {given}"


def _plain(bound: Any) -> Any:
    """Return a bound as people write it: 1 for 1.0."""
    return int(bound) if isinstance(bound, float) and bound.is_integer() else bound


def closest(name: str, known: Iterable[str]) -> str:
    """Return "did you mean" with the nearest known name, '' when none is near."""
    by_letters = {one.lower(): str(one) for one in known}
    near = get_close_matches(name.lower(), by_letters, n=1, cutoff=0.5)
    return f" (did you mean {by_letters[near[0]]!r}?)" if near else ""


def fitting(pattern: str, text: str) -> str:
    """Return a text that a pattern takes, near to one that it refused; '' if it finds none."""
    return next((one for one in _near_to(text) if one and re.search(pattern, one)), "")


def _near_to(text: str) -> Iterator[str]:
    """Yield texts like one, the nearest ones first."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    for mark in ("-", "_", ""):
        # One mark takes the place of several characters, and the ends lose theirs.
        safe = re.sub(r"[^A-Za-z0-9._-]+", mark, plain.strip()).strip("._-")
        for length in (OFFERED, 63, 40):
            cut = safe[:length].rstrip("._-")
            yield from (cut, cut.lower())


def _instead(name: str) -> str:
    return f" ({name!r} would do)" if name else ""
