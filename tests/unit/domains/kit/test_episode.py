"""The turns of an attempt with tools.

Invariants: each call is answered, in order, and so is what was meant as one; a turn without a call
ends the attempt, and its text is the answer; turns and calls are bounded; calls in a thought are
not made; a transcript that ends otherwise has no answer.
"""

from __future__ import annotations

import pytest

from genenv_core.domains.kit import Bounds, ToolEpisode, Tools, final_text
from genenv_core.domains.kit.tools import call
from genenv_core.types import Message
from tests.mutations import mutation

EPISODE = "genenv_core/domains/kit/episode.py"


def add(held: list, number: int) -> int:  # pyright: ignore
    """Add a number to those held."""
    held.append(number)
    return sum(held)


def spell(word: str) -> str:
    """Spell a word."""
    return "-".join(word)


TOOLS = Tools(add, spell, state=list)
ADD = call(add, number=2)


def test_each_call_is_answered_in_order_and_shares_the_state() -> None:
    episode = ToolEpisode(TOOLS, [])
    text = f"so {ADD} then <tool_call>nonsense</tool_call>{call(spell, word='ab')}{ADD}<tool_call>"
    observed = episode.step(text)
    assert not observed.done
    assert [message["role"] for message in observed.messages] == ["tool"] * 5
    assert [message.get("name") for message in observed.messages] == [
        *("add", "unknown", "spell", "add", "unknown")
    ]
    told = [message["content"] for message in observed.messages]
    assert (told[0], told[2], told[3]) == ("2", "a-b", "4")
    assert told[1].startswith("error: ") and told[4].startswith("error: ")
    assert episode.step(ADD).messages[0]["content"] == "6"


@mutation(
    "calls in a thought are made", EPISODE,
    "_, calls = in_order(without_thought(action))", "_, calls = in_order(action)",
)  # fmt: skip
@pytest.mark.parametrize("text", ["", "4", f"<think>{ADD}</think>4", f"<think>{ADD}"])
def test_a_turn_without_a_call_ends_the_attempt(text: str) -> None:
    held: list[int] = []
    observed = ToolEpisode(TOOLS, held).step(text)
    assert observed.done and not observed.messages and held == []


@mutation(
    "a turn has as many calls as the agent likes", EPISODE,
    "for call in calls[:most]]", "for call in calls]",
)  # fmt: skip
def test_calls_of_a_turn_are_bounded() -> None:
    held: list[int] = []
    observed = ToolEpisode(TOOLS, held, Bounds(calls=2)).step(ADD * 3)
    assert held == [2, 2] and not observed.done
    assert observed.messages[2] == {
        "role": "tool",
        "name": "add",
        "content": "error: this turn has more than 2 calls; make the others in the next one",
    }


@mutation(
    "an attempt has as many turns as the agent likes", EPISODE,
    "done=self._turns >= self._bounds.turns", "done=False",
)  # fmt: skip
def test_turns_are_bounded() -> None:
    episode = ToolEpisode(TOOLS, [], Bounds(turns=3))
    assert [episode.step(ADD).done for _ in range(3)] == [False, False, True]


@mutation("a call is an answer", EPISODE, "return None if calls else text", "return text")
@pytest.mark.parametrize(
    ("role", "content", "answer"),
    [
        ("assistant", " 4 m ", "4 m"),
        ("assistant", f"<think>\n{ADD}</think>\n4", "4"),
        ("assistant", f"so it is 5</think>{'4'}", "4"),
        ("assistant", "<think> and then", ""),
        ("assistant", f"4 {ADD}", None),
        ("assistant", "4 <tool_call>", None),
        ("tool", "4", None),
        ("user", "4", None),
    ],
)
def test_the_answer_is_the_last_turn_without_a_call(
    role: str, content: str, answer: str | None
) -> None:
    last: Message = {"role": role, "content": content}  # pyright: ignore
    assert final_text([{"role": "user", "content": "?"}, last]) == answer
    assert final_text([]) is None
