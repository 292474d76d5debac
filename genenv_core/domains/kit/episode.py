"""The turns of an attempt with tools, and the answer at its end.

The tools answer a turn with calls, one message for each call in their order. A turn without a call
ends the attempt; its text is the answer. `final_text` reads the answer from a transcript, so stored
attempts get the verdict that played ones get.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from genenv_core.domains.kit.answers import without_thought
from genenv_core.domains.kit.tools import Tools
from genenv_core.domains.tool_calls import in_order
from genenv_core.types import Message, Observation


@dataclass(frozen=True, slots=True)
class Bounds:
    """Most turns of one attempt, the last one included, and most calls of one turn."""

    turns: int = 16
    calls: int = 16


class ToolEpisode:
    """One attempt; its tools share `state`."""

    def __init__(self, tools: Tools, state: Any = None, bounds: Bounds | None = None) -> None:
        """Begin an attempt, with the default bounds for None."""
        self._tools, self._state = tools, state
        self._bounds = bounds or Bounds()
        self._turns = 0

    def step(self, action: str) -> Observation:
        """Return the tools' answers; a turn without calls, or the last turn, ends the attempt.

        It refuses the calls beyond the bound of a turn, and makes the others. Raises what a tool
        raises that could not reach its source (`UNREACHED`), and NoJson for a result that JSON
        cannot hold.
        """
        self._turns += 1
        _, calls = in_order(without_thought(action))
        if not calls:
            return Observation(done=True)
        most = self._bounds.calls
        why = f"this turn has more than {most} calls; make the others in the next one"
        messages = [self._tools.answer(call, self._state) for call in calls[:most]]
        messages += [self._tools.refused(call, why) for call in calls[most:]]
        return Observation(tuple(messages), done=self._turns >= self._bounds.turns)


def final_text(messages: Sequence[Message]) -> str | None:
    """Return the text of the agent's last turn, without its thought.

    None where a transcript has no answer: it ends with a turn of somebody else, or with a call.
    """
    if not messages or messages[-1]["role"] != "assistant":
        return None
    text, calls = in_order(without_thought(messages[-1]["content"]))
    return None if calls else text
