"""An item as a model attempts it: the recorded dialogue so far, and one turn.

The official test files say whether a call or a response comes next. The system message says it
here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from genenv_core.benchmarks.api_bank.tools import spelled
from genenv_core.benchmarks.protocol import ItemVerdict
from genenv_core.types import JsonObject, Message, Observation, Said

_WHO = "You are an assistant that calls APIs for its user. "
_YEAR = "The current year is 2023. "

ASK_CALL = (
    f"{_WHO}{{year}}Make the API call that comes next, and say nothing to the user. Make one call "
    "with the arguments that it needs and no others; the values come from the user or from earlier "
    "answers, in the format that the API asks for.{search}"
)
ASK_RESPONSE = (
    f"{_WHO}{{year}}The APIs have answered. Tell the user what came of it, in a sentence or two. "
    "Make no call."
)
_SEARCH = " Where no API fits, call ToolSearcher with keywords that say what the API should do."


def rules(kind: str, *, searches: bool = False, dated: bool = True) -> str:
    """Return the system message of an item: the kind is call or response."""
    year = _YEAR if dated else ""
    if kind == "call":
        return ASK_CALL.format(year=year, search=_SEARCH if searches else "")
    return ASK_RESPONSE.format(year=year)


@dataclass(frozen=True, slots=True)
class DialogueSample:
    """One call or response of a dialogue, with all that came before."""

    messages: Sequence[Message]
    tools: Sequence[JsonObject]
    kind: str
    verdict: Callable[[Any, str], ItemVerdict]

    def begin(self, seed: int) -> DialogueAttempt:
        """Return a fresh attempt; nothing in it is random."""
        return DialogueAttempt()

    def prediction(self, said: Sequence[Said]) -> str:
        """Return the first call of the first turn in the official spelling, else its text.

        Where a response is asked for, the text comes first.
        """
        if not said:
            return ""
        first = said[0]
        if not first.calls or (self.kind == "response" and first.text):
            return first.text
        return spelled(first.calls[0])

    def judge(self, prediction: Any, mode: str) -> ItemVerdict:
        """Return the verdict on any JSON value as the call or response."""
        return self.verdict(prediction, mode)


class DialogueAttempt:
    """An attempt that any turn ends: what comes after it in the dialogue is an item of its own."""

    def answer(self, said: Said) -> Observation:
        """Return the end."""
        return Observation()
