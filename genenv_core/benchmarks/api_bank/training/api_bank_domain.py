"""API-Bank as a domain.

The download lacks the official training data. So genenv draws training requests for the official
APIs, with values of its own, and pi_env writes more of them. A user's own requests may take their
place.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from pydantic import Field

from genenv_core.benchmarks.api_bank import BENCHMARK
from genenv_core.benchmarks.api_bank.dialogues import GO_ON, written
from genenv_core.benchmarks.api_bank.scoring import RecordedCall
from genenv_core.benchmarks.api_bank.suite import ApiBank
from genenv_core.benchmarks.api_bank.tools import spelled
from genenv_core.benchmarks.api_bank.training.attempt import ApiRequest, entries
from genenv_core.benchmarks.api_bank.training.drawing import LEVELS, Docs
from genenv_core.benchmarks.api_bank.training.requests import ApiRequests, said_turns
from genenv_core.benchmarks.api_bank.training.wording import (
    ENV_RULES,
    OBSERVATION_SCHEMA,
    TOOL_RULES,
    listed,
)
from genenv_core.benchmarks.api_bank.training.writing import (
    WrittenRequest,
    as_calls,
    call_problem,
)
from genenv_core.benchmarks.training.benchmark_domain import BenchmarkOptions
from genenv_core.benchmarks.training.own_tasks import read_written, task_request
from genenv_core.benchmarks.training.rows import RowsOrDrawn
from genenv_core.domains.parts import draw_open, drawn_rate, with_rules
from genenv_core.domains.protocol import SeedExample, SolutionTurn
from genenv_core.domains.tool_calls import said
from genenv_core.errors import DataError
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

LISTED = 10
"""APIs that pi_env may write a request for."""


class ApiBankOptions(BenchmarkOptions, use_attribute_docstrings=True):
    """Options of the domain api_bank."""

    train: str | None = Field(default=None, min_length=1)
    """A JSONL file with request, api and arguments, to train on in place of drawn requests."""
    explain: bool = True
    """Whether prompts open with rules, and pi_env reads what APIs are for; false is for tiny models
    made for this domain. The benchmark's own items always open with rules."""


class ApiBankDomain(RowsOrDrawn[ApiBankOptions]):
    """Calls of APIs and responses in dialogues, and requests for the same APIs."""

    benchmark = BENCHMARK
    options_type = ApiBankOptions
    code_version = "1"
    observation_schema = OBSERVATION_SCHEMA

    def __init__(self, options: ApiBankOptions) -> None:
        """Read the download and the user's requests; raises ConfigError or DataError."""
        super().__init__(options)
        self.take_rows(options.train)

    @cached_property
    def _bank(self) -> ApiBank:
        return cast(ApiBank, self.suite)

    def _draft(self, item: str, group: str) -> TaskDraft:
        """Return an item; its prompt is the text of all the user's turns."""
        users = [m["content"] for m in self.item(item).messages if m["role"] == "user"]
        said = "\n".join(text for text in users if text != GO_ON)
        return replace(super()._draft(item, group), prompt=said)

    @cached_property
    def _requests(self) -> ApiRequests:
        return ApiRequests(
            self._bank,
            self.mode,
            lambda draft: isinstance(self._unless_known(draft), TaskDraft),
            explained=self.options.explain,
        )

    def made(self, spec: JsonObject) -> ApiRequest:
        """Return a training request; raises DomainError for a broken spec."""
        return self._requests.made(spec)

    def highest(self) -> int:
        """Return the highest level of a drawn request, see `drawing.LEVELS`."""
        return LEVELS

    def draw_task(self, rng: random.Random, level: int) -> TaskDraft:
        """Return a random request of a level for any of the APIs."""
        return self._requests.draw(rng, self._requests.docs, level)

    def env_messages(self, context: Context) -> list[Message]:
        """Return pi_env's prompt: rules, APIs to choose from, the agent's success, and a base."""
        return self.asked_of_env(context.history, context.base)

    def env_grammar(self, context: Context) -> Grammar:
        """Return the JSON schema of a generation, the same for each context."""
        return Grammar("json", json.dumps(WrittenRequest.model_json_schema()))

    def read(self, text: str) -> list[TaskDraft | Rejected]:
        """Return the one request that the text spells, or why it spells no request."""
        found = read_written(WrittenRequest, text)
        return [found if isinstance(found, Rejected) else self._requests.draft_of(found)]

    def calls_of(self, draft: TaskDraft) -> Sequence[Call]:
        """Return the calls of the right answer."""
        if "calls" in draft.spec:
            return as_calls(draft.spec["calls"])
        gold = self._bank.gold[draft.spec["item"]]
        if not isinstance(gold, RecordedCall):
            return ()
        return (Call(gold.tool.name, dict(gold.arguments)),)

    def _unless_known(self, draft: TaskDraft) -> TaskDraft | Rejected:
        """Return the task unless any of its calls, or its text, repeats an item."""
        for call in self.calls_of(draft):
            if why := self._known.repeated(draft.prompt, [call]):
                return Rejected(Rejection.CONTAMINATED, why)
        return draft

    def answer_turns(self, draft: TaskDraft) -> list[str]:
        """Return the right calls, one a turn."""
        return said_turns(draft.spec)

    def solution(self, draft: TaskDraft) -> list[SolutionTurn]:
        """Return the right calls; each reveals what later calls need of its answer."""
        turns: list[SolutionTurn] = []
        calls = self.made(draft.spec).calls
        for place, text in enumerate(said_turns(draft.spec)):
            later = {
                value
                for call in calls[place + 1 :]
                for value in call["arguments"].values()
                if isinstance(value, str)
            }
            answer = written(calls[place]["answer"])
            known = [value for value in sorted(later) if value in answer]
            new = tuple(value for value in known if value not in draft.prompt)
            turns.append(SolutionTurn(text, new))
        return turns

    def tool_messages(self, draft: TaskDraft, messages: Sequence[Message]) -> list[Message] | None:
        """Return pi_env's prompt for the answer of a call; it shows the recorded answer.

        None where the attempt ends: at an item, after a wrong call, and after the last right one.
        """
        calls = draft.spec.get("calls")
        if not calls:
            return None
        request = self.made(draft.spec)
        spoken = [
            m["content"] for m in messages[len(request.messages) :] if m["role"] == "assistant"
        ]
        made = request.prediction([said(text) for text in spoken])
        if len(made) >= len(calls) or not request.are_right(made):
            return None
        answered = len(made) - len(entries(said(spoken[-1])))
        lines = [
            f"call: {spelled(call)} on record: {written(one['answer'])}"
            for call, one in zip(as_calls(calls), calls, strict=True)
        ]
        return self._with_rules(TOOL_RULES, "\n".join([*lines[answered : len(made)], "answer:"]))

    def one_writing(
        self, rng: random.Random, base_weights: Sequence[float], weights: Sequence[float]
    ) -> SeedExample:
        """Return a prompt of pi_env, and a request for some of the APIs that it lists."""
        history = AgentHistory(success_rate=drawn_rate(rng))
        base = self.draw_open(rng, base_weights)
        known = self._listed(base)
        new = draw_open(rng, weights, lambda level: self._requests.draw(rng, known, level))
        return self.asked_of_env(history, base), new.program

    def _listed(self, base: TaskDraft) -> Docs:
        """Return the APIs that pi_env may use, those of the base request among them."""
        apis = [call.name for call in self.calls_of(base)]
        named = self._requests.some(apis, base.fingerprint, LISTED)
        return {name: self._requests.docs[name] for name in named}

    def asked_of_env(self, history: AgentHistory, base: TaskDraft) -> list[Message]:
        """Return pi_env's prompt: rules, APIs to choose from, the agent's success, and a base."""
        known = listed(self._listed(base).values(), explained=self.options.explain)
        asked = f"APIs:\n{known}\n{task_request(history, base.program)}"
        return self._with_rules(ENV_RULES, asked)

    def _with_rules(self, rules: str, content: str) -> list[Message]:
        return with_rules(rules if self.options.explain else "", content)

    def row(self, path: Path, number: int, row: Any) -> TaskDraft:
        """Return the task of a user's row; the request may say the values in any words.

        Raises DataError for a row that spells no task or repeats an item.
        """
        found = read_written(WrittenRequest, json.dumps(row))
        draft = (
            found if isinstance(found, Rejected) else self._requests.draft_of(found, call_problem)
        )
        known = draft if isinstance(draft, Rejected) else self._unless_known(draft)
        if isinstance(known, Rejected):
            raise DataError(f"{path}, row {number}: {known.detail}; correct or remove the row")
        return known
