"""A training request as an agent attempts it: the right calls, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from genenv_core.benchmarks.api_bank.dialogues import written
from genenv_core.benchmarks.api_bank.tools import spelled
from genenv_core.benchmarks.protocol import ItemVerdict
from genenv_core.types import JsonObject, Message, Observation, Said

JudgeCall = Callable[[int, Any, str], ItemVerdict]
"""(which of the right calls, from 0; the text of a call; mode) -> verdict."""

RULES = (
    "You are an assistant that calls APIs for its user. The current year is 2023. Make the API "
    "calls that the request needs, one a turn, and say nothing to the user. Give each call the "
    "arguments that it needs and no others; the values come from the user or from earlier answers, "
    "in the format that the API asks for."
)


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request, its right calls in order, and the answer of each call."""

    request: str
    calls: Sequence[Mapping[str, Any]]
    tools: Sequence[JsonObject]
    judge_call: JudgeCall
    explained: bool = True
    """Whether the rules open the attempt."""

    @property
    def messages(self) -> Sequence[Message]:
        """The rules, where `explained`, and the request."""
        user: Message = {"role": "user", "content": self.request}
        return ({"role": "system", "content": RULES}, user) if self.explained else (user,)

    def begin(self, seed: int) -> Calling:
        """Return a fresh attempt; nothing in it is random."""
        return Calling(self)

    def prediction(self, said: Sequence[Said]) -> list[str]:
        """Return the calls of all turns in the official spelling; a turn without calls is its text.

        Text that was meant as a call and cannot be read stays as it is, so it counts as a wrong
        call.
        """
        return [entry for turn in said for entry in entries(turn)]

    def are_right(self, made: Sequence[str]) -> bool:
        """Return whether these texts are the first right calls, as the APIs compare calls."""
        return len(made) <= len(self.calls) and all(
            self.judge_call(place, text, "match").valid for place, text in enumerate(made)
        )

    def judge(self, prediction: Any, mode: str) -> ItemVerdict:
        """Return whether a list of texts has exactly the right calls, in their order."""
        if not isinstance(prediction, list):
            return ItemVerdict(False, reason="the prediction is no list of calls")
        texts = cast("list[Any]", prediction)
        for place, text in enumerate(texts[: len(self.calls)]):
            found = self.judge_call(place, text, mode)
            if not found.valid:
                return found
        if len(texts) != len(self.calls):
            return ItemVerdict(False, reason=f"{len(texts)} calls for {len(self.calls)}")
        return ItemVerdict(True, 1.0)


class Calling:
    """One attempt. A wrong call ends it, and so does the last right one."""

    def __init__(self, request: ApiRequest) -> None:
        self._request = request
        self._made: list[str] = []

    def answer(self, said: Said) -> Observation:
        """Return the calls' answers; after the last right call or a wrong one, the attempt ends."""
        request, begun = self._request, len(self._made)
        made = [*self._made, *entries(said)]
        if len(made) >= len(request.calls) or not request.are_right(made):
            return Observation()
        self._made = made
        answers: list[Message] = [
            {"role": "tool", "name": call["api"], "content": written(call["answer"])}
            for call in request.calls[begun : len(made)]
        ]
        return Observation(tuple(answers), done=False)


def entries(said: Said) -> list[str]:
    """Return what one turn adds to a prediction: at least one text."""
    return [*map(spelled, said.calls), *said.malformed] or [said.text]
