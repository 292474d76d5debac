"""The faults of a prediction: the vocabulary of BFCL's verdicts."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from genenv_core.types import JsonObject

SHOWN = 80
"""Most characters of a prediction that a reason repeats."""


class ErrorType(StrEnum):
    """The first rule that a prediction breaks; the official checker has the same distinctions."""

    FORMAT = "format"
    CALL_COUNT = "call_count"
    FUNCTION_NAME = "function_name"
    REQUIRED_MISSING = "required_missing"
    PARAMETER_UNKNOWN = "parameter_unknown"
    PARAMETER_MISSING = "parameter_missing"
    TYPE = "type"
    ELEMENT_TYPE = "element_type"
    NO_SOURCE_TEXT = "no_source_text"
    STRING = "string"
    LIST = "list"
    DICT_KEY = "dict_key"
    DICT_VALUE = "dict_value"
    DICT_NOT_LISTED = "dict_not_listed"
    DICTS_COUNT = "dicts_count"
    DICTS_NOT_LISTED = "dicts_not_listed"
    VALUE = "value"
    UNMATCHED_CALL = "unmatched_call"
    CALL_PRESENT = "call_present"
    CALL_ABSENT = "call_absent"
    UNCHECKABLE = "uncheckable"
    TURN_COUNT = "turn_count"
    TURN_EMPTY = "turn_empty"
    STATE = "state"
    RESPONSE = "response"
    TOO_LONG = "too_long"


@dataclass(frozen=True, slots=True)
class PredictionFault:
    """Why a prediction is wrong; `more` holds further parts of the verdict, as plain JSON."""

    type: ErrorType
    reason: str
    more: JsonObject = field(default_factory=dict[str, Any])


class Uncheckable(ValueError):
    """The official checker raises on such a value; the prediction counts as wrong."""


def shown(value: object) -> str:
    """Return the start of a text or number in ASCII, of anything else its type's name."""
    if isinstance(value, str):
        return ascii(value[:SHOWN])
    # Python makes no decimal form of a longer integer.
    if isinstance(value, int) and abs(value) < 10**SHOWN:
        return str(value)
    return str(value) if value is None or isinstance(value, float) else type(value).__name__
