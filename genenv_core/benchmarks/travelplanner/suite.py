"""TravelPlanner's items and verdicts.

Constraints and denominators are those of the official evaluator (OSU-NLP-Group/TravelPlanner,
evaluation/). Where it stops with an exception on a plan, the constraint fails here, with a reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from genenv_core.benchmarks.files import digest_of
from genenv_core.benchmarks.protocol import Benchmark, Composite, ItemVerdict, Ratio
from genenv_core.benchmarks.travelplanner.commonsense import COMMONSENSE
from genenv_core.benchmarks.travelplanner.database import Database, files_of, read_database
from genenv_core.benchmarks.travelplanner.hard import HARD
from genenv_core.benchmarks.travelplanner.plan import (
    HOLDS,
    Outcome,
    Plan,
    Query,
    Unreadable,
    parsed,
)
from genenv_core.benchmarks.travelplanner.queries import SPLITS, file_of, read_queries
from genenv_core.errors import ConfigError

MODES = {
    "official": "the rules of the official evaluator with all that it overlooks",
    "strict": "fails also what it overlooks, such as an attraction after the last semicolon",
}
BEFORE_HARD = ("complete_information", "within_sandbox")
"""The commonsense constraints without which no hard one is judged."""

NOTHING = Outcome(None, "no plan was delivered")
NOT_JUDGED = Outcome(None, f"not judged unless {' and '.join(BEFORE_HARD)} hold")


class _Constraint(Protocol):
    def __call__(
        self, query: Query, plan: Plan, database: Database, *, strict: bool
    ) -> Outcome: ...


class TravelPlanner:
    """The queries of one download; ids are `<split>/<idx>` with idx from 1."""

    composites: Sequence[Composite] = ()

    def __init__(self, queries: Mapping[str, Query], database: Database, digest: str) -> None:
        self.digest = digest
        self.queries = queries
        self.items: Mapping[str, str] = {item: item.partition("/")[0] for item in queries}
        self._database = database

    def judge(self, item: str, prediction: Any, mode: str) -> ItemVerdict:
        """Return the verdict on a plan; what is no list of days fails every constraint."""
        if not prediction:
            outcomes = dict.fromkeys((*COMMONSENSE, *HARD), NOTHING)
        else:
            outcomes = self._outcomes(self.queries[item], prediction, strict=mode == "strict")
        parts: dict[str, Any] = {"delivered": bool(prediction)}
        for name, (passed, reason) in outcomes.items():
            parts[name] = {"passed": passed, "reason": reason}
        failed = [f"{name}: {why}" for name, (passed, why) in outcomes.items() if passed is False]
        valid = bool(prediction) and not failed
        reason = failed[0] if failed else "" if valid else NOTHING.reason
        return ItemVerdict(valid, float(valid), reason, parts)

    def _outcomes(self, query: Query, prediction: Any, *, strict: bool) -> dict[str, Outcome]:
        try:
            plan = parsed(prediction, query)
        except Unreadable as error:
            commonsense = dict.fromkeys(COMMONSENSE, Outcome(False, str(error)))
            return {**commonsense, **dict.fromkeys(HARD, NOT_JUDGED)}

        def outcome(constraint: _Constraint) -> Outcome:
            # What fails in mode official fails in mode strict as well.
            for closed in (False, True) if strict else (False,):
                try:
                    found = constraint(query, plan, self._database, strict=closed)
                except Unreadable as error:
                    found = Outcome(False, str(error))
                except RecursionError:
                    found = Outcome(False, "it is nested too deep")
                if found.passed is not True:
                    return found
            return HOLDS

        outcomes = {name: outcome(constraint) for name, constraint in COMMONSENSE.items()}
        judged = all(outcomes[name].passed for name in BEFORE_HARD)
        for name, constraint in HARD.items():
            outcomes[name] = outcome(constraint) if judged else NOT_JUDGED
        return outcomes

    def measures(self, item: str, verdict: ItemVerdict) -> Mapping[str, Ratio]:
        """Return the six official rates of the item's split, and the last one by level.

        A constraint of the query that was not judged counts as failed in `hard micro`; a plan that
        was not judged by the hard constraints fails `hard macro`.
        """
        query, split = self.queries[item], self.items[item]
        passed = {name: verdict.parts.get(name, {}).get("passed") for name in (*COMMONSENSE, *HARD)}
        judged = all(passed[name] for name in BEFORE_HARD)
        right = sum(passed[name] is True for name in COMMONSENSE)
        kept = sum(passed[name] is True for name in HARD)
        broken = any(passed[name] is False for name in HARD)
        return {
            f"{split} delivery": (float(bool(verdict.parts.get("delivered"))), 1.0),
            f"{split} commonsense micro": (float(right), float(len(COMMONSENSE))),
            f"{split} commonsense macro": (float(right == len(COMMONSENSE)), 1.0),
            f"{split} hard micro": (float(kept), float(query.hard_constraints)),
            f"{split} hard macro": (float(judged and not broken), 1.0),
            f"{split} final": (float(bool(verdict.valid)), 1.0),
            f"{split} final {query.level}": (float(bool(verdict.valid)), 1.0),
        }


def load(data: Path) -> TravelPlanner:
    """Return the suite of a folder with the database and the queries of one split or both."""
    database = files_of(data)
    files = {split: path for split in SPLITS if (path := file_of(data, split))}
    if not files:
        raise ConfigError(
            f"--data {data}: it has no queries, such as validation.csv; "
            "docs/benchmarks/travelplanner.md says what it needs"
        )
    queries = {
        f"{split}/{index}": query
        for split, path in files.items()
        for index, query in sorted(read_queries(path).items())
    }
    return TravelPlanner(
        queries, read_database(data), digest_of(data, [*database, *files.values()])
    )


BENCHMARK = Benchmark("travelplanner", MODES, "the plan's list of days", load)
