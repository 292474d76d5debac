"""Judges a plan, constraint by constraint.

Constraints are those of the official evaluator (OSU-NLP-Group/TravelPlanner, evaluation/). Where it
stops with an exception on a plan, the constraint fails here, with a reason.
"""

from __future__ import annotations

from typing import Any, Protocol

from genenv_core.benchmarks.protocol import ItemVerdict
from genenv_core.benchmarks.travelplanner.constraints.commonsense import COMMONSENSE
from genenv_core.benchmarks.travelplanner.constraints.hard import HARD
from genenv_core.benchmarks.travelplanner.database import Database
from genenv_core.benchmarks.travelplanner.plan import (
    HOLDS,
    ConstraintOutcome,
    Plan,
    Query,
    UnreadablePlan,
    parsed,
)

BEFORE_HARD = ("complete_information", "within_sandbox")
"""The commonsense constraints that must hold before this module judges the hard ones."""

NOTHING = ConstraintOutcome(None, "no plan was delivered")
NOT_JUDGED = ConstraintOutcome(None, f"not judged unless {' and '.join(BEFORE_HARD)} hold")


class _Constraint(Protocol):
    def __call__(
        self, query: Query, plan: Plan, database: Database, *, strict: bool
    ) -> ConstraintOutcome: ...


def judged(query: Query, database: Database, prediction: Any, *, strict: bool) -> ItemVerdict:
    """Return the verdict on a plan; anything but a list of days fails every constraint."""
    if not prediction:
        outcomes = dict.fromkeys((*COMMONSENSE, *HARD), NOTHING)
    else:
        outcomes = _outcomes(query, database, prediction, strict=strict)
    parts: dict[str, Any] = {"delivered": bool(prediction)}
    for name, (passed, reason) in outcomes.items():
        parts[name] = {"passed": passed, "reason": reason}
    failed = [f"{name}: {why}" for name, (passed, why) in outcomes.items() if passed is False]
    valid = bool(prediction) and not failed
    reason = failed[0] if failed else "" if valid else NOTHING.reason
    return ItemVerdict(valid, float(valid), reason, parts)


def _outcomes(
    query: Query, database: Database, prediction: Any, *, strict: bool
) -> dict[str, ConstraintOutcome]:
    try:
        plan = parsed(prediction, query)
    except UnreadablePlan as error:
        commonsense = dict.fromkeys(COMMONSENSE, ConstraintOutcome(False, str(error)))
        return {**commonsense, **dict.fromkeys(HARD, NOT_JUDGED)}

    def outcome(constraint: _Constraint) -> ConstraintOutcome:
        # A plan that fails in mode official fails in mode strict as well.
        for closed in (False, True) if strict else (False,):
            try:
                found = constraint(query, plan, database, strict=closed)
            except UnreadablePlan as error:
                found = ConstraintOutcome(False, str(error))
            except RecursionError:
                found = ConstraintOutcome(False, "it is nested too deep")
            if found.passed is not True:
                return found
        return HOLDS

    outcomes = {name: outcome(constraint) for name, constraint in COMMONSENSE.items()}
    judged = all(outcomes[name].passed for name in BEFORE_HARD)
    for name, constraint in HARD.items():
        outcomes[name] = outcome(constraint) if judged else NOT_JUDGED
    return outcomes
