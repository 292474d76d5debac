"""How true pi_env is in the place of the tools.

Invariants: a truthful, a noisy and a lying simulator come out in this order, on both embedded
domains, and the gate stops the lying one alone; schema, state and content each count on their own;
the truth is that of the domain's own episode after the steps that happened in the attempt, opened
with its seed; what pi_env was not asked for does not count, nor does an attempt that executes its
tools.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from genenv_core.algorithm.gates import agent_gate, env_gate
from genenv_core.algorithm.stats import mean
from genenv_core.config.sections.evaluation import GatesConfig
from genenv_core.domains.trails.wording import NO_CARD, TOOL, render_look
from genenv_core.play.fidelity import Answered, Fidelity, answered, fidelity
from genenv_core.types import Message, Observation, TaskDraft
from schemas.enums import Gate
from tests.mutations import mutation
from tests.unit.builders_fidelity import (
    DESK,
    DOMAINS,
    TRAILS,
    Simulates,
    lying,
    noisy,
    right_turns,
    simulated,
    truthful,
)
from tests.unit.builders_rollout import EchoDomain
from tests.unit.play.test_rollout import draft_of

FIDELITY = "genenv_core/play/fidelity.py"


def said(content: str, name: str = "", *, failed: bool = False) -> Observation:
    message: Message = {"role": "tool", "content": content}
    if name:
        message["name"] = name
    return Observation((message,), done=False, failed=failed)


END = Observation()


def of_simulator(domain: Any, says: Simulates) -> list[Answered]:
    rng = random.Random(0)
    found: list[Answered] = []
    for draft in domain.base_tasks(0, 60):
        messages = simulated(domain, draft, right_turns(domain, draft), says, rng)
        found += answered(domain, draft, 0, messages)
    return found


@mutation(
    "a perfect form makes up for false content", FIDELITY,
    "return (self.content or 0.0) if self.schema", "return 1.0 if self.schema",
)  # fmt: skip
@pytest.mark.parametrize("domain", DOMAINS, ids=lambda domain: domain.name)
def test_truthful_noisy_and_lying_come_out_in_this_order_and_the_gate_stops_the_lie(
    domain: Any,
) -> None:
    heard = {says: of_simulator(domain, says) for says in (truthful, noisy, lying)}
    calls = sum(len(right_turns(domain, draft)) - 1 for draft in domain.base_tasks(0, 60))
    assert {len(one) for one in heard.values()} == {calls}
    value = {says: mean([one.fidelity.value for one in found]) for says, found in heard.items()}
    assert value[truthful] == 1.0 and value[lying] == 0.0
    # A binomial of some hundred answers with p .7 has a standard error below .05.
    assert calls > 100 and value[noisy] == pytest.approx(0.7, abs=0.1)
    gates = GatesConfig()
    for says, expected in ((truthful, Gate.OPEN), (noisy, Gate.OPEN), (lying, Gate.FIDELITY)):
        metrics = {"fidelity": value[says]}
        assert env_gate({"kl_env": 0.0, **metrics}, gates).gate is expected
        learned = {"entropy": 1.0, "reward_std": 0.5, **metrics}
        assert agent_gate(learned, gates, validation=1.0, current=0.0).gate is expected


@mutation(
    "what happens beside the answer does not count", FIDELITY,
    "if self.schema and self.state else", "if self.schema else",
)  # fmt: skip
@mutation(
    "an answer of another tool is true", FIDELITY, "return not true or named <= true", "return True"
)
@pytest.mark.parametrize(
    ("answer", "truth", "expected", "value"),
    [
        (said("p q", "ship"), said("p q", "ship"), Fidelity(True, True, 1.0), 1.0),
        (said("p q"), said("p q", "ship"), Fidelity(True, True, 1.0), 1.0),  # names no tool
        (said("p q", "ship"), said("p q"), Fidelity(True, True, 1.0), 1.0),
        (said("x", failed=True), said("y", failed=True), Fidelity(False, True, None), 0.0),
        (said("x", failed=True), said("x"), Fidelity(False, False, None), 0.0),
        (said("p q", "ship"), said("p q", "pack"), Fidelity(True, False, 1.0), 0.0),
        (said("p q"), said("error", failed=True), Fidelity(True, False, None), 0.0),
        (said("p q"), END, Fidelity(True, False, None), 0.0),
        (said("p q"), Observation(said("p q").messages), Fidelity(True, False, 1.0), 0.0),
        (said("q c"), said("c d"), Fidelity(True, True, 0.5), 0.5),
        (said("b"), said("d"), Fidelity(True, True, 0.0), 0.0),
    ],
)
def test_schema_state_and_content_each_count(
    answer: Observation, truth: Observation, expected: Fidelity, value: float
) -> None:
    found = fidelity(answer, truth)
    assert found == expected and found.value == value


def test_several_true_answers_are_one_text() -> None:
    both = Observation((*said("p", "ship").messages, *said("q", "pack").messages), done=False)
    assert fidelity(said("p q", "pack"), both) == Fidelity(True, True, 1.0)
    assert fidelity(said("p", "pack"), both).content == pytest.approx(2 / 3)


class AlwaysAsks(EchoDomain):
    """Its episodes answer `turn N: abba`; pi_env is asked after each turn, even after the end."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_schema: dict[str, Any] = {}

    def tool_messages(self, draft: TaskDraft, messages: Sequence[Message]) -> list[Message] | None:
        if messages[-1]["content"] == "boom":
            raise KeyError("no such call")
        return None if messages[-1]["content"] == "bye" else [messages[-1]]


def transcript(*pairs: tuple[str, str | None]) -> list[Message]:
    """Return an attempt: (what the agent says, what pi_env answers; `!` for a failure)."""
    messages: list[Message] = [{"role": "user", "content": "do it"}]
    for text, answer in pairs:
        messages.append({"role": "assistant", "content": text})
        if answer is not None:
            seen: Message = {"role": "tool", "content": answer, "simulated": True}
            messages.append({**seen, "error": True} if answer == "!" else seen)
    return messages


def truths(
    *pairs: tuple[str, str | None], turns: int = 9
) -> tuple[list[tuple[int, str | None, bool]], AlwaysAsks]:
    domain = AlwaysAsks()
    found = answered(domain, draft_of(turns), 77, transcript(*pairs))
    told = [
        (one.turn, one.truth.messages[0]["content"] if one.truth.messages else None, one.truth.done)
        for one in found
    ]
    return told, domain


def test_the_truth_follows_the_agents_actions() -> None:
    told, domain = truths(("a", "turn 1: abba"), ("b", "a lie"), ("c", "turn 3: abba"))
    assert told == [
        (0, "turn 1: abba", False),
        (1, "turn 2: abba", False),
        (2, "turn 3: abba", False),
    ]
    (episode,) = domain.episodes
    assert (episode.seed, episode.seen) == (77, ["a", "b", "c"])


@mutation(
    "a step that failed in the attempt has happened", FIDELITY,
    "happened=not failed", "happened=True",
)  # fmt: skip
@mutation(
    "the true episode keeps a step that the attempt did not take", FIDELITY,
    "            self._episode = None  # it took", "            pass  # it took",
)  # fmt: skip
def test_a_step_that_failed_in_the_attempt_has_not_happened() -> None:
    told, domain = truths(("a", "ok"), ("b", "!"), ("c", "!"), ("d", "ok"))
    assert [content for _, content, _ in told] == [
        "turn 1: abba",
        "turn 2: abba",
        "turn 2: abba",
        "turn 2: abba",
    ]
    assert domain.episodes[-1].seen == ["a", "d"]


@mutation(
    "the true episode goes on after its end", FIDELITY,
    "self._ended = truth.done", "self._ended = False",
)  # fmt: skip
def test_after_the_true_end_nothing_is_true() -> None:
    told, _ = truths(("a", "ok"), ("b", "ok"), ("c", "ok"), turns=2)
    assert told == [(0, "turn 1: abba", False), (1, "turn 2: abba", True), (2, None, True)]
    # An end that failed in the attempt has not happened either.
    told, _ = truths(("a", "ok"), ("b", "!"), ("c", "ok"), turns=2)
    assert [content for _, content, _ in told] == ["turn 1: abba"] + ["turn 2: abba"] * 2


def test_an_episode_that_cannot_start_is_an_error() -> None:
    found = list(answered(AlwaysAsks(), draft_of(2, unstartable=True), 0, transcript(("a", "ok"))))
    assert [one.fidelity for one in found] == [Fidelity(True, False, None)]


@mutation(
    "pi_env answers for what it was not asked", FIDELITY,
    "if _is_asked(domain, draft, before):", "if True:",
)  # fmt: skip
def test_what_pi_env_was_not_asked_for_does_not_count() -> None:
    told, _ = truths(("a", "ok"), ("boom", "!"), ("b", "ok"), ("cut", None))
    assert [turn for turn, _, _ in told] == [0, 2]
    told, _ = truths(("a", "ok"), ("bye", None))
    assert [turn for turn, _, _ in told] == [0]


def test_an_attempt_with_executed_tools_has_none() -> None:
    draft = TRAILS.base_tasks(0, 1)[0]
    messages = simulated(TRAILS, draft, right_turns(TRAILS, draft), truthful, random.Random(0))
    assert list(answered(TRAILS, draft, 0, messages))
    for message in messages:
        message.pop("simulated", None)
    assert not list(answered(TRAILS, draft, 0, messages))
    assert not list(answered(EchoDomain(), draft_of(2), 0, transcript(("a", "ok"))))


def test_a_card_that_is_not_there_and_a_call_that_cannot_be_read() -> None:
    """On trails and desk: the truth of a wrong call is what the tool says to it."""
    draft = TRAILS.base_tasks(0, 1)[0]
    nobody = next(name for name in ("alex", "kim") if name not in draft.spec["cards"])
    messages: list[Message] = [
        *TRAILS.agent_messages(draft),
        {"role": "assistant", "content": render_look(nobody, "town")},
        {"role": "tool", "content": "oslo", "simulated": True},
        {"role": "assistant", "content": "<tool_call>oops"},
        {"role": "tool", "content": "error: what?", "simulated": True, "error": True},
    ]
    (one,) = answered(TRAILS, draft, 0, messages)
    assert one.truth.messages == ({"role": "tool", "name": TOOL, "content": NO_CARD},)
    assert one.fidelity.value == 0.0

    draft = DESK.base_tasks(0, 1)[0]
    messages = [
        *DESK.agent_messages(draft),
        {"role": "assistant", "content": "<tool_call>oops</tool_call>"},
        {"role": "tool", "content": "recorded", "name": "ship", "simulated": True},
    ]
    (one,) = answered(DESK, draft, 0, messages)
    assert one.truth.messages[0]["content"] == "error: malformed_call"
    assert one.fidelity == Fidelity(True, True, 0.0)
