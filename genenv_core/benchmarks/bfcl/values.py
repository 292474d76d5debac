"""Compares values with those that gold lists for a parameter.

`listed` are gold's values, any of which is right; "" among them says that a call may omit the
parameter. The comparison is that of the official checker (bfcl-eval 2026.3.23), its oddities
included: numbers inside lists and dicts compare as in Python, so that True is 1 there, and a text
where gold should hold a list counts as the list of its characters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from genenv_core.benchmarks.bfcl.faults import ErrorType, PredictionFault, Uncheckable, shown
from genenv_core.benchmarks.bfcl.shapes import is_list, is_object

_IGNORED = str.maketrans({"'": '"', **dict.fromkeys(" ,./-_*^")})


def plain(text: str) -> str:
    """Return a text in the form to compare: lower case, one kind of quote, no ` ,./-_*^`."""
    return text.translate(_IGNORED).lower()


def compare_string(value: str, listed: Sequence[Any]) -> PredictionFault | None:
    """Return None when gold lists the text, as `plain` has it, else the fault."""
    if plain(value) in [plain(gold) for gold in listed if isinstance(gold, str)]:
        return None
    return PredictionFault(ErrorType.STRING, f"gold does not list the text {shown(value)}")


def compare_list(value: Sequence[Any], listed: Sequence[Any]) -> PredictionFault | None:
    """Return None when gold lists a list with the same elements in the same order."""
    said = [_plain_text(element) for element in value]
    if said in [[_plain_text(element) for element in _elements(gold)] for gold in listed]:
        return None
    return PredictionFault(ErrorType.LIST, f"gold does not list this list of {len(value)}")


def compare_dict(value: Mapping[str, Any], listed: Sequence[Any]) -> PredictionFault | None:
    """Return None when one of the dicts that gold lists allows each key's value.

    Such a dict has a list of values for each key; "" among those says that the key is optional. The
    fault is that of the last dict.
    """
    fault: PredictionFault | None = PredictionFault(
        ErrorType.DICT_NOT_LISTED, "gold lists no dict here"
    )
    for gold in listed:
        if gold == "":
            continue
        fault = _compare_keys(value, gold)
        if fault is None:
            return None
    return fault


def compare_dicts(value: Sequence[Any], listed: Sequence[Any]) -> PredictionFault | None:
    """Return None when gold lists a list of dicts that allows the dict at each place."""
    fault: PredictionFault | None = PredictionFault(
        ErrorType.DICTS_NOT_LISTED, "gold lists no list of dicts here"
    )
    for gold in map(_elements, listed):
        if len(value) != len(gold):
            fault = PredictionFault(
                ErrorType.DICTS_COUNT, f"{len(value)} dicts where gold has {len(gold)}"
            )
            continue
        faults = (compare_dict(said, [one]) for said, one in zip(value, gold, strict=True))
        fault = next((found for found in faults if found), None)
        if fault is None:
            return None
    return fault


def compare_as_is(value: object, listed: Sequence[Any]) -> PredictionFault | None:
    """Return None when gold lists an equal value."""
    if value in listed:
        return None
    return PredictionFault(ErrorType.VALUE, f"gold does not list {shown(value)}")


def _compare_keys(value: object, gold: object) -> PredictionFault | None:
    if not is_object(value) or not is_object(gold):
        raise Uncheckable("a list of dicts has an element that is no dict")
    faults = (_compare_key(key, said, gold) for key, said in value.items())
    fault = next((found for found in faults if found), None)
    for key, values in gold.items():
        if key not in value and "" not in _listed(values):
            return PredictionFault(ErrorType.DICT_KEY, f"the dict's key {shown(key)} is missing")
    return fault


def _compare_key(key: str, value: object, allowed: Mapping[str, Any]) -> PredictionFault | None:
    if key not in allowed:
        return PredictionFault(ErrorType.DICT_KEY, f"gold's dict has no key {shown(key)}")
    if _plain_text(value) in [_plain_text(one) for one in _elements(allowed[key])]:
        return None
    return PredictionFault(
        ErrorType.DICT_VALUE, f"gold does not list {shown(value)} for key {shown(key)}"
    )


def _plain_text(value: Any) -> Any:
    return plain(value) if isinstance(value, str) else value


def _listed(values: object) -> Sequence[Any]:
    # `"" in "text"` is true: a key whose gold is a text is always optional.
    return [""] if isinstance(values, str) else _elements(values)


def _elements(gold: object) -> Sequence[Any]:
    if is_list(gold) or isinstance(gold, str):
        return gold
    raise Uncheckable("gold has no list here")
