"""Makes requests into tasks: drawn ones, those that pi_env wrote, and a user's own."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from genenv_core.benchmarks.api_bank.dialogues import SEARCHER
from genenv_core.benchmarks.api_bank.loading import DOCS
from genenv_core.benchmarks.api_bank.parsing.reading import UnreadableError
from genenv_core.benchmarks.api_bank.scoring import RecordedCall, recorded
from genenv_core.benchmarks.api_bank.suite import ApiBank, judged_call
from genenv_core.benchmarks.api_bank.tools import schema
from genenv_core.benchmarks.api_bank.training.attempt import ApiRequest
from genenv_core.benchmarks.api_bank.training.drawing import Docs, draw
from genenv_core.benchmarks.api_bank.training.writing import (
    EarlierCall,
    Problem,
    WrittenRequest,
    measures,
    problem,
)
from genenv_core.benchmarks.protocol import ItemVerdict
from genenv_core.domains.parts import TRIES
from genenv_core.domains.tool_calls import said, written
from genenv_core.errors import ConfigError, DomainError
from genenv_core.ids import seed_from
from genenv_core.types import JsonObject, Rejected, Rejection, TaskDraft

OFFERED = 4
"""APIs that the agent may choose from in a training task."""

_CONDITIONAL = "ForgotPassword"
"""An API that genenv leaves out: only prose says which of its arguments go together."""


class ApiRequests:
    """Makes requests for the APIs of a download; where levels share a name, levels 1 and 2 win.

    Args:
        bank: the download.
        mode: how to judge calls.
        fits: whether a drawn task may be used; small numbers alone can make a call an official
            one.
        explained: whether the rules open an attempt.
    """

    def __init__(
        self,
        bank: ApiBank,
        mode: str,
        fits: Callable[[TaskDraft], bool],
        *,
        explained: bool = True,
    ) -> None:
        self._bank, self._mode, self._fits, self._explained = bank, mode, fits, explained
        sets = bank.download.docs
        merged = {**sets.get("lv3", {}), **sets.get("lv1_lv2", {})}
        self.docs: Docs = {
            name: doc
            for name, doc in sorted(merged.items())
            if doc["input_parameters"] and name not in (SEARCHER, _CONDITIONAL)
        }

    def made(self, spec: JsonObject) -> ApiRequest:
        """Return a task to attempt; raises DomainError for a broken spec."""
        try:
            calls = [dict(call) for call in spec["calls"]]
            golds = [self._gold(call) for call in calls]
            tools = [schema(self.docs[name]) for name in spec["tools"]]
            judge = partial(self._judge_call, golds)
            return ApiRequest(str(spec["request"]), calls, tools, judge, self._explained)
        except (KeyError, TypeError, ValueError, StopIteration, UnreadableError) as error:
            raise DomainError(
                f"api_bank: the spec {str(spec)[:120]} has no request, calls and tools of this "
                "download; it was not made by this domain"
            ) from error

    def draft_of(self, found: WrittenRequest, check: Problem = problem) -> TaskDraft | Rejected:
        """Return the task that a generation spells, or why it spells no task."""
        if wrong := check(found, self.docs):
            return wrong
        calls = found.calls()
        spelling = json.dumps([[c["api"], c["arguments"]] for c in calls], sort_keys=True)
        spec = {
            "request": found.request,
            "calls": calls,
            "tools": self.some([call["api"] for call in calls], spelling, OFFERED),
        }
        truth = "\n".join(said_turns(spec))
        try:
            request = self.made(spec)
        except DomainError as error:
            return Rejected(Rejection.INCONSISTENT, f"{error.__cause__!a}"[:200])
        verdict = request.judge(request.prediction([said(truth)]), self._mode)
        if not verdict.valid:
            return Rejected(Rejection.REJECTS_GROUND_TRUTH, verdict.reason)
        measured = measures(found, self.docs)
        return TaskDraft(
            prompt=found.request,
            spec=spec,
            ground_truth=truth,
            program=found.program(),
            family=measured.family,
            difficulty=measured.difficulty,
            fingerprint=spelling,
        )

    def draw(self, rng: random.Random, docs: Docs, level: int) -> TaskDraft:
        """Return a drawn task for some of the APIs; of a lower level where no API fits this one.

        Raises ConfigError without APIs to make requests for.
        """
        for drawing in range(TRIES):
            drawn = draw(rng, docs, max(1, level - drawing // 20))
            if drawn is None:
                continue
            *before, last = drawn.calls
            made = WrittenRequest(
                request=drawn.request,
                api=last.api,
                arguments=last.arguments,
                before=[
                    EarlierCall(api=one.api, arguments=one.arguments, answer=one.answer)
                    for one in before
                ],
            )
            draft = self.draft_of(made)
            if isinstance(draft, TaskDraft) and self._fits(draft):
                return draft
        raise ConfigError(f"api_bank: {DOCS} of the download has no APIs to make requests for")

    def some(self, apis: Sequence[str], of: str, count: int) -> list[str]:
        """Return these APIs and further ones, `count` in all, in alphabetical order.

        The text `of` decides the further ones.
        """
        named = list(dict.fromkeys(apis))
        others = [name for name in self.docs if name not in named]
        random.Random(seed_from("api_bank", "some", of)).shuffle(others)
        return sorted([*named, *others[: max(0, count - len(named))]])

    def _gold(self, call: Mapping[str, Any]) -> RecordedCall:
        """Return the right call, to compare a call by its arguments alone.

        The official databases know none of its values, so the tool's needs of them do not apply.
        """
        tools = self._bank.download.tools
        key = next(key for key in ("lv1_lv2", "lv3") if call["api"] in tools.get(key, {}))
        tool = tools[key][call["api"]]
        return recorded(replace(tool, rules=replace(tool.rules, need=None)), call["arguments"])

    def _judge_call(
        self, golds: Sequence[RecordedCall], place: int, text: Any, mode: str
    ) -> ItemVerdict:
        return judged_call(text, golds[place], self._bank.download.state, mode)


def said_turns(spec: JsonObject) -> list[str]:
    """Return the right calls as the agent says them, one a turn."""
    return [
        written({"name": call["api"], "arguments": call["arguments"]}) for call in spec["calls"]
    ]
