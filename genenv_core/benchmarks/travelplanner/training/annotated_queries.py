"""The annotated queries of TravelPlanner's train split, and tasks like them.

A hash of its id holds out one annotated query in five, together with all others for the same trip.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

from genenv_core.benchmarks.travelplanner.plan import Query, UnreadablePlan, parsed
from genenv_core.benchmarks.travelplanner.playing import SUBMIT
from genenv_core.benchmarks.travelplanner.queries import query_of
from genenv_core.benchmarks.travelplanner.reference import headings
from genenv_core.benchmarks.travelplanner.suite import TravelPlanner
from genenv_core.benchmarks.travelplanner.training.trips import (
    days_of,
    program_of,
    told,
    unknown,
    unsaid,
)
from genenv_core.benchmarks.travelplanner.training.variants import variants
from genenv_core.domains.parts import in_heldout
from genenv_core.domains.tool_calls import written
from genenv_core.types import JsonObject, Rejected, Rejection, TaskDraft

SPLIT = "train"
TRIES = 200
"""Variants of one annotated query to look at before giving up on one that its plan keeps."""


class TrainTrips:
    """Tasks to train on; `admits` says whether a task repeats no item of the benchmark."""

    def __init__(
        self, suite: TravelPlanner, mode: str, admits: Callable[[TaskDraft], bool]
    ) -> None:
        """Take a suite, and read no query yet."""
        self._suite, self._mode, self._admits = suite, mode, admits

    @cached_property
    def open(self) -> list[str]:
        """The annotated queries that are not held out, and whose trip no held-out one shares."""
        return [item for item in self._all if self._query(item).trip not in self._kept]

    @cached_property
    def heldout(self) -> list[str]:
        """The annotated queries that are held out."""
        return [item for item in self._all if in_heldout(item)]

    def annotated(self, item: str) -> TaskDraft:
        """Return an annotated query as a task, in the form that pi_env would write."""
        query = self._query(item)
        row: JsonObject = {
            "org": query.org,
            "dest": query.dest,
            "days": query.days,
            "visiting_city_number": query.cities,
            "date": [day.isoformat() for day in query.dates],
            "people_number": query.people,
            "local_constraint": {
                "house rule": query.room_rule,
                "cuisine": None if query.cuisines is None else list(query.cuisines),
                "room type": query.room_type,
                "transportation": query.transportation,
            },
            "budget": int(query.budget),
            "query": query.text,
            "level": query.level,
        }
        return _task(row, query, self._plan(item))

    def variant(self, item: str, rng: random.Random) -> TaskDraft | None:
        """Return a task for the same trip and plan, None after `TRIES` variants without one."""
        plan, database = self._plan(item), self._suite.database
        rows = variants(database, self._query(item), plan, rng)
        for row in itertools.islice(rows, TRIES):
            query = query_of(row)
            if self._suite.trip(query, ()).judge(plan, self._mode).valid:
                task = _task(row, query, plan)
                if self._admits(task):
                    return task
        return None

    def tasks(self, rng: random.Random, items: Sequence[str]) -> Iterator[TaskDraft]:
        """Yield the annotated queries in random order, and then distinct variants without end."""
        order = rng.sample(list(items), len(items))
        seen: set[str] = set()
        yield from map(self.annotated, order)
        while order:
            found = [self.variant(item, rng) for item in order]
            order = [item for item, task in zip(order, found, strict=True) if task]
            for task in found:
                if task and task.fingerprint not in seen:
                    seen.add(task.fingerprint)
                    yield task

    def checked(
        self, row: JsonObject, query: Query, plan: list[JsonObject]
    ) -> TaskDraft | Rejected:
        """Return the task of a row and of a plan that keeps it, or why the two make no task."""
        wrong = unknown(self._suite, query)
        if wrong:
            return Rejected(Rejection.OUT_OF_RANGE, wrong)
        missing = unsaid(query)
        if missing:
            return Rejected(Rejection.INCONSISTENT, f"query does not say {', '.join(missing)}")
        said = told(query, plan)
        if said:
            return Rejected(Rejection.LEAKS_ANSWER, f"query says {said[:100]!r}")
        if query.trip in self._kept:
            return Rejected(Rejection.IN_HELDOUT, "it is the trip of a held-out query")
        verdict = self._suite.trip(query, ()).judge(plan, self._mode)
        if not verdict.valid or len(plan) != query.days:
            why = verdict.reason or f"{len(plan)} days, wanted {query.days}"
            return Rejected(Rejection.REJECTS_GROUND_TRUTH, why[:200])
        return _task(row, query, plan)

    @cached_property
    def _all(self) -> list[str]:
        """The annotated queries that pass with their plans and share no trip with an item."""
        items = [item for item, split in self._suite.items.items() if split == SPLIT]
        return [
            item
            for item in items
            if self._suite.plans.of(item)
            and self._suite.judge(item, self._plan(item), self._mode).valid
            and self._admits(self.annotated(item))
        ]

    @cached_property
    def _kept(self) -> set[tuple[Any, ...]]:
        return {self._query(item).trip for item in self.heldout}

    def _query(self, item: str) -> Query:
        return self._suite.queries[item]

    def _plan(self, item: str) -> list[JsonObject]:
        days = self._query(item).days
        return days_of((self._suite.plans.of(item) or [])[:days])


def submitted(plan: Sequence[Any]) -> str:
    """Return the call that submits a plan, as the agent writes it."""
    return written({"name": SUBMIT, "arguments": {"plan": list(plan)}})


def difficulty_of(query: Query) -> float:
    """Return the days of a trip, plus the number of its demands beside the budget."""
    return float(query.days + query.hard_constraints - 1)


def _task(row: JsonObject, query: Query, plan: Sequence[JsonObject]) -> TaskDraft:
    plan = days_of(plan)
    try:
        reference = headings(parsed(plan, query), row["date"])
    except UnreadablePlan:
        reference = []  # of a plan that does not pass
    return TaskDraft(
        prompt=query.text,
        spec={"query": row, "reference": reference},
        ground_truth=submitted(plan),
        program=program_of(row, plan),
        family=f"{query.level} {query.days} days",
        difficulty=difficulty_of(query),
        fingerprint=f"travelplanner {json.dumps(row, sort_keys=True)}",
    )
