"""Runs a prediction's calls and gold's side by side, and compares them after each turn.

After a turn with a call of gold's, the public attributes of every instance must be the same. The
results of gold's calls in the turn must be among those of the model's calls so far, as often and in
any order. docs/benchmarks/bfcl.md says what differs from bfcl-eval 2026.3.23.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Any

from genenv_core.benchmarks.bfcl.faults import ErrorType, PredictionFault, shown
from genenv_core.benchmarks.bfcl.shapes import is_list
from genenv_core.benchmarks.bfcl.turns.backends import Backends, Side
from genenv_core.benchmarks.bfcl.turns.rows import TurnsRow

MOST_CALLS = 2_000
"""Most calls of a prediction; gold has 35 at most, and an official run 20 steps a turn."""

MOST_CHARACTERS = 1_000_000
"""Most characters of all calls of a prediction together."""

LONG_RESULT = 1_000
"""Characters of a result above which its digest stands for it."""

Turns = list[list[list[str]]]
"""Calls by turn and step."""


def check_turns(prediction: object, row: TurnsRow, backends: Backends) -> PredictionFault | None:
    """Return None when every turn ends as gold's does, else the first fault; never raises."""
    if not is_list(prediction):
        return PredictionFault(ErrorType.FORMAT, "no list of turns")
    if len(prediction) != len(row.gold):
        counts = f"{len(prediction)} turns where gold has {len(row.gold)}"
        return PredictionFault(ErrorType.TURN_COUNT, counts)
    if not all(isinstance(turn, list | str | dict) for turn in prediction):
        return PredictionFault(
            ErrorType.UNCHECKABLE, "the official checker raises here: a turn is no list"
        )
    turns = [steps_of(turn) for turn in prediction]
    sizes = [len(call) for turn in turns for step in turn for call in step]
    if len(sizes) > MOST_CALLS or sum(sizes) > MOST_CHARACTERS:
        most = f"{MOST_CALLS} calls or {MOST_CHARACTERS} characters"
        return PredictionFault(ErrorType.TOO_LONG, f"more than {most}")
    try:
        with backends.fresh():
            return _compare(turns, row, backends)
    except Exception as error:  # a scenario that does not load, states without a comparison
        why = f"the official checker raises here: {type(error).__name__}"
        return PredictionFault(ErrorType.UNCHECKABLE, why)


def steps_of(turn: object) -> list[list[str]]:
    """Return the steps of a turn that hold a call; a step is a list of texts."""
    return [step for step in turn if _are_calls(step)] if is_list(turn) else []


def _are_calls(step: object) -> bool:
    return is_list(step) and step not in ([], [""]) and all(isinstance(one, str) for one in step)


def _compare(turns: Turns, row: TurnsRow, backends: Backends) -> PredictionFault | None:
    model, gold = (
        backends.side(row.classes, row.config, row.long, f"{who}_{row.id}")
        for who in ("model", "model_ground_truth")
    )
    given: Counter[str] = Counter()
    for number, (steps, wanted) in enumerate(zip(turns, row.gold, strict=True)):
        given.update(_mark(model.run(call)) for step in steps for call in step)
        results = [gold.run(call) for call in wanted]
        if not wanted:
            continue
        if not steps:
            return _fault(ErrorType.TURN_EMPTY, number, "nothing is called")
        fault = _state(model, gold, number) or _responses(given, results, number)
        if fault is not None:
            return fault
    return None


def _state(model: Side, gold: Side, turn: int) -> PredictionFault | None:
    for name in gold.instances:
        reached = model.state(name)
        differ = [key for key, value in gold.state(name).items() if reached[key] != value]
        if differ:
            reason = f"{name} differs from gold's in {', '.join(differ)}"
            return _fault(ErrorType.STATE, turn, reason, instance=name, attributes=differ)
    return None


def _responses(given: Counter[str], wanted: list[str], turn: int) -> PredictionFault | None:
    missing = Counter(map(_mark, wanted)) - given
    if not missing:
        return None
    first = next(place for place, result in enumerate(wanted) if _mark(result) in missing)
    reason = f"no call gave what gold's call {first} gives: {shown(wanted[first])}"
    return _fault(ErrorType.RESPONSE, turn, reason, gold_call=first, missing=missing.total())


def _mark(result: str) -> str:
    """Return a result, or the digest of a long one."""
    if len(result) <= LONG_RESULT:
        return result
    return hashlib.sha256(result.encode(errors="surrogatepass")).hexdigest()


def _fault(kind: ErrorType, turn: int, reason: str, **more: Any) -> PredictionFault:
    return PredictionFault(kind, f"turn {turn}: {reason}", {"turn": turn, **more})
