"""TravelPlanner as a domain: validation queries to evaluate on, and its train split to train on.

A training task is a request, its demands as fields, and a plan that passes the evaluator. A hash
holds out one annotated query in five, with all tasks for the same trip.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any, Literal

from genenv_core.benchmarks.training.benchmark_domain import ITEM, BenchmarkDomain, BenchmarkOptions
from genenv_core.benchmarks.training.generations import read_object
from genenv_core.benchmarks.travelplanner import BENCHMARK
from genenv_core.benchmarks.travelplanner.playing import SOLE, SUBMIT, Trip
from genenv_core.benchmarks.travelplanner.queries import query_of
from genenv_core.benchmarks.travelplanner.reference import Part, looked_up, shown
from genenv_core.benchmarks.travelplanner.suite import TravelPlanner
from genenv_core.benchmarks.travelplanner.training.annotated_queries import (
    TrainTrips,
    difficulty_of,
    submitted,
)
from genenv_core.benchmarks.travelplanner.training.trips import SCHEMA, fault, row_of
from genenv_core.domains.kit.known_items import KnownItems
from genenv_core.domains.parts import TooFewTasks, env_request, with_rules
from genenv_core.domains.protocol import SeedExample, SolutionTurn
from genenv_core.domains.tool_calls import written
from genenv_core.errors import DomainError
from genenv_core.ids import seed_from
from genenv_core.types import (
    AgentHistory,
    Call,
    Context,
    Grammar,
    JsonObject,
    Message,
    Rejected,
    Rejection,
    TaskDraft,
)

EVALUATED = "validation"

RULES = (
    "You write tasks for an agent that plans trips. A task is a request in words, what it asks for "
    "as fields, and a plan that keeps all of it; the agent sees the request and has to find such a "
    "plan. You are given what the database has for the base task's cities. Vary the base: ask for "
    "another budget, number of people, rule, cuisine, kind of room or way to travel, and change "
    "the plan where it has to. A trip of 3 days visits one city, of 5 days two cities of a state, "
    "of 7 days three. The request says in words all that the fields ask for, and nothing of the "
    "plan. You are also told the success of the agent on its recent tasks (none: not known yet). "
    "Aim for tasks that it solves half of the time: harder ones where it solves more, easier ones "
    "where it solves less. Write one JSON object and nothing else, no copy of the base, with this "
    "JSON schema:\n"
)


class TravelPlannerOptions(BenchmarkOptions):
    """Options of the domain travelplanner."""

    stage: Literal["sole", "two_stage"] = SOLE
    """How the agent plays a request: sole gives it the reference information, two_stage gives it
    tools to look that up."""


class TravelPlannerDomain(BenchmarkDomain[TravelPlannerOptions]):
    """The domain: items are validation queries, tasks are queries like the train split's."""

    benchmark = BENCHMARK
    options_type = TravelPlannerOptions
    code_version = "1"

    def __init__(self, options: TravelPlannerOptions) -> None:
        """Read the download; raises ConfigError or DataError."""
        super().__init__(options)
        assert isinstance(self.suite, TravelPlanner) and self.suite.tables
        self._trips, self._tables = self.suite, self.suite.tables
        self._train = TrainTrips(self.suite, self.mode, self._admits)
        self._parts = lru_cache(maxsize=512)(self._looked_up)

    def protocol(self) -> JsonObject:
        """Return the stage, and how many items it can play and how many it leaves out."""
        playable = len(self._playable)
        left_out = len(self._validation) - playable
        return {"stage": self.options.stage, "items": playable, "left_out": left_out}

    def items(self) -> list[TaskDraft]:
        """Return the validation queries; stage sole needs recorded reference information."""
        return [self._draft(item, EVALUATED) for item in self._playable]

    def item(self, item: str) -> Trip:
        """Return a query, to play as the options say; raises DataError where data is missing."""
        return self._trips.playable(item, self.options.stage)

    def made(self, spec: JsonObject) -> Trip:
        """Return a trip to train on; raises DomainError for a broken spec."""
        try:
            query, wanted = query_of(spec["query"]), tuple(map(str, spec["reference"]))
        except (KeyError, TypeError, ValueError, SyntaxError, AttributeError) as error:
            raise DomainError(
                f"travelplanner: the spec {str(spec)[:120]} has no query and reference; it was not "
                "made by this domain"
            ) from error
        return self._trips.trip(query, self._parts(wanted) if self._alone else None)

    def base_tasks(self, seed: int, count: int) -> list[TaskDraft]:
        """Return annotated queries, and variants of them where `count` is larger.

        Raises ConfigError where there are fewer tasks.
        """
        return self._drawn(seed, count, self._train.open, "base_tasks")

    def heldout_tasks(self, seed: int, count: int) -> list[TaskDraft]:
        """Return held-out annotated queries, and variants of them where `count` is larger.

        Raises ConfigError where there are fewer tasks.
        """
        settings = "validation_tasks or data.test_tasks"
        return self._drawn(seed, count, self._train.heldout, settings)

    def env_messages(self, context: Context) -> list[Message]:
        """Return pi_env's prompt: schema, data of the base task's cities, and the base task."""
        return self._env_prompt(context.history, context.base)

    def env_grammar(self, context: Context) -> Grammar:
        """Return the JSON schema of a generation, the same for each context."""
        return Grammar("json", json.dumps(SCHEMA))

    def read(self, text: str) -> list[TaskDraft | Rejected]:
        """Return the task that a JSON object describes, or why it describes no task."""
        record = read_object(text, frozenset(SCHEMA["properties"]))
        if isinstance(record, Rejected):
            return [record]
        wrong = fault(record)
        if wrong:
            return [Rejected(Rejection.UNPARSEABLE, wrong)]
        row = row_of(record)
        try:
            query = query_of(row)
        except ValueError as error:
            return [Rejected(Rejection.OUT_OF_RANGE, str(error)[:200])]
        return [self._train.checked(row, query, record["plan"])]

    def calls_of(self, draft: TaskDraft) -> list[Call]:
        """Return the call that submits the plan; () for an item, whose plan is not public."""
        if ITEM in draft.spec:
            return []
        return [Call(SUBMIT, {"plan": json.loads(draft.program)["plan"]})]

    def solution(self, draft: TaskDraft) -> list[SolutionTurn]:
        """Return the one turn that submits the plan."""
        return [SolutionTurn(draft.ground_truth)]

    def trivial_answers(self, draft: TaskDraft) -> list[str]:
        """Return texts that answer nothing, empty plans, and the plan without its last day."""
        plan: list[Any] = [] if ITEM in draft.spec else json.loads(draft.program)["plan"]
        nothing: list[list[Any]] = [[], [{}], [{}] * 7, plan[:-1]]
        return [*super().trivial_answers(draft), *map(submitted, nothing)]

    def agent_examples(self, seed: int, count: int) -> list[SeedExample]:
        """Return requests with their plans; in stage two_stage the look-ups come first."""
        rng = random.Random(seed_from("travelplanner", "agent_examples", seed))
        drafts = itertools.islice(self._train.tasks(rng, self._train.open), count)
        return [(self._looked_at(draft), draft.ground_truth) for draft in drafts]

    def env_examples(self, seed: int, count: int, easy_skew: float) -> list[SeedExample]:
        """Return prompts of pi_env, each with a variant of its base; more skew, fewer demands."""
        rng = random.Random(seed_from("travelplanner", "env_examples", seed))
        examples: list[SeedExample] = []
        while len(examples) < count:
            item = rng.choice(self._train.open)
            base, found = self._train.annotated(item), self._train.variant(item, rng)
            if found is None or (found.family[:4] != "easy" and rng.random() < easy_skew):
                continue
            rate = None if rng.random() < 0.1 else rng.randint(0, 10) / 10
            prompt = self._env_prompt(AgentHistory(success_rate=rate), base)
            examples.append((prompt, found.program))
        return examples

    @property
    def _alone(self) -> bool:
        return self.options.stage == SOLE

    @cached_property
    def _validation(self) -> list[str]:
        return [item for item, split in self.suite.items.items() if split == EVALUATED]

    @cached_property
    def _playable(self) -> list[str]:
        items = self._validation
        return [item for item in items if not self._alone or self._trips.reference(item)]

    def _draft(self, item: str, group: str) -> TaskDraft:
        query = self._trips.queries[item]
        return TaskDraft(
            prompt=query.text,
            spec={ITEM: item},
            ground_truth="",
            program="",
            family=group,
            difficulty=difficulty_of(query),
            fingerprint=f"{self.name} {item}",
        )

    def _looked_up(self, wanted: tuple[str, ...]) -> Sequence[Part]:
        return looked_up(self._tables, wanted)

    @cached_property
    def _known(self) -> KnownItems:
        """The words of all validation queries, also of those that stage sole cannot play."""
        return KnownItems((item, self._trips.queries[item].text, ()) for item in self._validation)

    @cached_property
    def _known_trips(self) -> dict[tuple[Any, ...], str]:
        return {self._trips.queries[item].trip: item for item in self._validation}

    def _unless_known(self, draft: TaskDraft) -> TaskDraft | Rejected:
        item = self._known_trips.get(query_of(draft.spec["query"]).trip)
        if item:
            return Rejected(Rejection.CONTAMINATED, f"it is the trip of item {item}")
        return super()._unless_known(draft)

    def _admits(self, task: TaskDraft) -> bool:
        return isinstance(self._unless_known(task), TaskDraft)

    def _drawn(self, seed: int, count: int, items: Sequence[str], setting: str) -> list[TaskDraft]:
        rng = random.Random(seed_from("travelplanner", setting, seed))
        drafts = list(itertools.islice(self._train.tasks(rng, items), count))
        if len(drafts) < count:
            raise TooFewTasks(
                f"travelplanner: the train split of this download makes {len(drafts)} tasks, "
                f"{count} wanted: it needs queries with annotated plans (docs/benchmarks/"
                f"travelplanner.md), or a lower data.{setting}",
                len(drafts),
            )
        return drafts

    def _looked_at(self, draft: TaskDraft) -> list[Message]:
        """Return the opening messages; in stage two_stage, the look-ups of the reference follow."""
        messages = self.agent_messages(draft)
        if self._alone:
            return messages
        episode = self.episode(draft, 0)
        for says in _look_ups(draft.spec["reference"]):
            observation = episode.step(says)
            messages += [Message(role="assistant", content=says), *observation.messages]
        return messages

    def _env_prompt(self, history: AgentHistory, base: TaskDraft) -> list[Message]:
        parts = [shown(self._parts(tuple(map(str, base.spec.get("reference", ())))))]
        if history.by_family:
            families = sorted(history.by_family.items())
            rates = (f"{family} {right}/{tries}" for family, (right, tries) in families)
            parts.append(f"success by kind: {', '.join(rates)}")
        parts.append(env_request(history.success_rate, base.program))
        return with_rules(f"{RULES}{json.dumps(SCHEMA)}", "\n\n".join(parts))


def _look_ups(reference: Sequence[str]) -> list[str]:
    """Return turns that look up the headings: all of one city, or of one way, in one turn."""
    turns: dict[str, list[str]] = {}
    for heading in reference:
        kind, _, rest = heading.partition(" in " if " in " in heading else " from ")
        way, _, day = rest.partition(" on ")
        origin, _, destination = way.partition(" to ")
        ends = {"origin": origin, "destination": destination}
        name, arguments = {
            "Attractions": ("AttractionSearch", {"city": rest}),
            "Restaurants": ("RestaurantSearch", {"city": rest}),
            "Accommodations": ("AccommodationSearch", {"city": rest}),
            "Flight": ("FlightSearch", {**ends, "date": day}),
        }.get(kind, ("GoogleDistanceMatrix", {**ends, "mode": kind.lower()}))
        turns.setdefault(way, []).append(written({"name": name, "arguments": arguments}))
    return ["".join(calls) for calls in turns.values()]
