"""Compares calls with gold, call by call and parameter by parameter, as the official checker does.

A call is `{function: {parameter: value}}`; gold's has a list of accepted values for each parameter.
Pure functions, for anyone to import; docs/benchmarks/bfcl.md says how they differ from bfcl-eval
2026.3.23.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from genenv_core.benchmarks.bfcl.categories import Language, Matching
from genenv_core.benchmarks.bfcl.faults import ErrorType, PredictionFault, Uncheckable, shown
from genenv_core.benchmarks.bfcl.kinds import Expected, Match, expected_of, match_kind, read
from genenv_core.benchmarks.bfcl.shapes import is_list, is_object
from genenv_core.benchmarks.bfcl.values import (
    compare_as_is,
    compare_dict,
    compare_dicts,
    compare_list,
    compare_string,
)
from genenv_core.types import JsonObject


def are_calls(prediction: object) -> bool:
    """Return whether a prediction is a list of calls, which may be empty."""
    return is_list(prediction) and all(
        is_object(call) and len(call) == 1 and is_object(next(iter(call.values())))
        for call in prediction
    )


def check_presence(prediction: object, kind: Matching) -> PredictionFault | None:
    """Return None for a call in relevance, or for no call in irrelevance; else the fault."""
    called = are_calls(prediction) and prediction != []
    if kind is Matching.RELEVANCE:
        return None if called else PredictionFault(ErrorType.CALL_ABSENT, "no function is called")
    return PredictionFault(ErrorType.CALL_PRESENT, "a function is called") if called else None


def check_calls(
    prediction: Any,
    functions: Sequence[JsonObject],
    gold: Sequence[JsonObject],
    kind: Matching,
    language: Language,
    underscores: bool = False,
) -> PredictionFault | None:
    """Return None when the calls are those of gold, else the first fault; never raises.

    With `underscores`, a call has underscores in place of the dots of a function's name.
    """
    if not are_calls(prediction):
        return PredictionFault(ErrorType.FORMAT, "no list of {function: {parameter: value}}")
    if len(prediction) != len(gold):
        return PredictionFault(
            ErrorType.CALL_COUNT, f"{len(prediction)} calls where gold has {len(gold)}"
        )
    if kind is Matching.SIMPLE:
        wanted = [(functions[0], gold[0])]
    else:
        described = {one["name"]: one for one in reversed(functions)}
        wanted = [(described[next(iter(call))], call) for call in gold]
    try:
        if kind is Matching.PARALLEL:
            return _check_any_order(prediction, wanted, language, underscores)
        return check_call(prediction[0], *wanted[0], language, underscores)
    except Uncheckable as error:
        return PredictionFault(ErrorType.UNCHECKABLE, f"the official checker raises here: {error}")


def _check_any_order(
    prediction: Sequence[JsonObject],
    wanted: Sequence[tuple[JsonObject, JsonObject]],
    language: Language,
    underscores: bool,
) -> PredictionFault | None:
    """Return None when each gold call in turn takes the first remaining call that fits."""
    left = dict(enumerate(prediction))
    for place, (function, gold) in enumerate(wanted):
        faults: dict[str, str] = {}
        for index, call in left.items():
            fault = check_call(call, function, gold, language, underscores)
            if fault is None:
                del left[index]
                break
            faults[str(index)] = fault.type.value
        else:
            reason = f"no call is gold's call {place}, of {shown(function['name'])}"
            more = {"gold_call": place, "faults_by_call": faults}
            return PredictionFault(ErrorType.UNMATCHED_CALL, reason, more)
    return None


def check_call(
    call: JsonObject,
    function: JsonObject,
    gold: JsonObject,
    language: Language,
    underscores: bool = False,
) -> PredictionFault | None:
    """Return None when a call is gold's call of a function, else the first fault.

    Raises Uncheckable where the official checker raises.
    """
    name: str = function["name"].replace(".", "_") if underscores else function["name"]
    if name not in call:
        return PredictionFault(ErrorType.FUNCTION_NAME, f"not a call of {shown(name)}")
    given: Mapping[str, Any] = call[name]
    accepted: Mapping[str, Sequence[Any]] = next(iter(gold.values()))
    described: Mapping[str, JsonObject] = function["parameters"]["properties"]
    for parameter in function["parameters"]["required"]:
        if parameter not in given:
            return _of(
                parameter, PredictionFault(ErrorType.REQUIRED_MISSING, "is required and missing")
            )
    for parameter, value in given.items():
        if parameter not in described or parameter not in accepted:
            return _of(
                parameter, PredictionFault(ErrorType.PARAMETER_UNKNOWN, "is not one of gold's")
            )
        fault = check_value(value, described[parameter], accepted[parameter], language)
        if fault:
            return _of(parameter, fault)
    for parameter, values in accepted.items():
        if parameter not in given and "" not in values:
            return _of(
                parameter, PredictionFault(ErrorType.PARAMETER_MISSING, "may not be left out")
            )
    return None


def check_value(
    value: Any, description: JsonObject, accepted: Sequence[Any], language: Language
) -> PredictionFault | None:
    """Return None when a parameter's value has its type and gold lists it."""
    expected = expected_of(description, language)
    if language is not Language.PYTHON and type(value) is not str:
        return PredictionFault(ErrorType.NO_SOURCE_TEXT, f"wanted source text, got {shown(value)}")
    value = read(value, expected, language)
    match match_kind(value, accepted, expected):
        case Match.NEITHER:
            return PredictionFault(ErrorType.TYPE, f"wanted {expected.name}, got {shown(value)}")
        case Match.OUTER:
            return PredictionFault(
                ErrorType.ELEMENT_TYPE, "an element's type is neither wanted nor gold's"
            )
        case Match.AS_GOLD:
            return compare_as_is(value, accepted)
        case Match.AS_DESCRIBED:
            return _compare(value, accepted, expected)


def _compare(value: Any, accepted: Sequence[Any], expected: Expected) -> PredictionFault | None:
    if expected.type is dict:
        return compare_dict(value, accepted)
    if expected.type is list and expected.element is dict:
        return compare_dicts(value, accepted)
    if expected.type is str:
        return compare_string(value, accepted)
    if expected.type is list:
        return compare_list(value, accepted)
    return compare_as_is(value, accepted)


def _of(parameter: str, fault: PredictionFault) -> PredictionFault:
    more = {"parameter": parameter[:80], **fault.more}
    return PredictionFault(fault.type, f"parameter {shown(parameter)}: {fault.reason}", more)
