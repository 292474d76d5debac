"""The probability of the reference answer.

Invariants: it is the share of sampled attempts that say just this; turns and observations of a
dialogue are in it, and all sequences of one that begins anew; an answer that does not fit into the
bounds is impossible; a domain or an engine without the means gives None; an answer that the domain
itself does not accept is an error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from genenv_core.domains.desk import DeskDomain
from genenv_core.domains.desk.desk_domain import DeskOptions
from genenv_core.engines.protocol import TokenSequence
from genenv_core.engines.transformers.engine import TransformersEngine
from genenv_core.errors import DomainError
from genenv_core.play.answer import answer_probabilities
from genenv_core.play.attempt import AttemptBounds, Play
from genenv_core.play.chat import ChatFormat
from genenv_core.play.driver import run_episodes
from genenv_core.types import Message, Observation, SamplingParams, TaskDraft, Verdict
from tests.mutations import mutation
from tests.unit.builders_engine import tiny_model, tiny_tokenizer
from tests.unit.builders_rollout import EchoDomain, EchoEpisode, ScriptedEngine

ANSWER = "genenv_core/play/answer.py"

CHAT = ChatFormat(tiny_tokenizer(), name="tiny")
DESK = DeskDomain()


def draft(answer: str, turns: int = 1) -> TaskDraft:
    return TaskDraft("say it", {"turns": turns}, answer, answer, "k1", 1.0, answer)


class Says(EchoDomain):
    """A domain whose answer is the ground truth, in each turn."""

    def answer_turns(self, draft: TaskDraft) -> list[str]:
        return [draft.ground_truth] * draft.spec["turns"]

    def score(self, draft: TaskDraft, messages: Sequence[Message]) -> Verdict:
        said = [m["content"] for m in messages if m["role"] == "assistant"]
        right = said == self.answer_turns(draft)
        return Verdict(float(right), right, "" if right else "another word")


class Halves:
    """An engine that gives every token the probability one half."""

    def __init__(self) -> None:
        self.asked: list[TokenSequence] = []

    def logprobs(self, sequences: Sequence[TokenSequence], params: Any) -> list[list[float]]:
        self.asked = list(sequences)
        return [[float(np.log(0.5))] * len(sequence.token_ids) for sequence in sequences]


def play(domain: Any, engine: Any, max_tokens: int = 20, **bounds: int) -> Play:
    limits = AttemptBounds(**{"n": 3, "max_turns": 9, "max_length": 999, **bounds})
    params = SamplingParams(max_tokens)
    return Play(domain, engine, CHAT, limits, params, lambda task, sample, turn: sample)


@pytest.mark.slow
def test_it_is_the_share_of_attempts_that_say_just_this() -> None:
    engine = TransformersEngine(tiny_model(spread=3.0, eos_probability=0.5), threads=1)
    n = 3000
    how = Play(
        Says(),
        engine,
        CHAT,
        AttemptBounds(n=n, max_turns=1, max_length=99),
        SamplingParams(6),
        lambda task, sample, turn: sample,
    )
    ((_, rollouts),) = run_episodes([("t", draft("?"))], how)
    said = Counter(rollout.token_ids for rollout in rollouts)
    checked = 0
    for token_ids, count in said.most_common(12):
        text = CHAT.decode(token_ids)
        if CHAT.completion(text) != token_ids:
            continue  # cut off, or spelled in another way
        (probability,) = answer_probabilities([("t", draft(text))], how) or [None]
        assert probability is not None
        assert count / n == pytest.approx(probability, abs=4 * (probability / n) ** 0.5)
        checked += 1
    assert checked >= 3


@mutation(
    "observations are in the probability of the answer", ANSWER,
    "strict=True) if mask]", "strict=True)]",
)  # fmt: skip
def test_sampled_tokens_of_all_turns_count_and_no_others() -> None:
    engine = Halves()
    found = answer_probabilities([("a", draft("no")), ("b", draft("no", 3))], play(Says(), engine))
    assert found == [pytest.approx(0.5**3), pytest.approx(0.5**9)]  # n, o and the end, each turn
    one, three = engine.asked
    assert len(one.token_ids) == 3
    assert "turn 2: abba" in CHAT.decode(three.token_ids)


class SaysAnew(Says):
    """A domain whose episodes begin anew after each step."""

    def episode(self, draft: TaskDraft, seed: int) -> EchoEpisode:
        whole = super().episode(draft, seed)
        answered = whole.step

        def step(action: str) -> Observation:
            seen = answered(action)
            again: Message = {"role": "user", "content": f"again, after {len(whole.seen)}"}
            return seen if seen.done else Observation((again,), done=False, anew=True)

        whole.step = step
        return whole


@mutation(
    "the last sequence alone is in the probability of the answer", ANSWER,
    "for one in made.sequences]", "for one in made.sequences[-1:]]",
)  # fmt: skip
def test_sampled_tokens_of_all_sequences_count() -> None:
    engine = Halves()
    tasks = [("a", draft("no")), ("b", draft("no", 3))]
    found = answer_probabilities(tasks, play(SaysAnew(), engine))
    assert found == [pytest.approx(0.5**3), pytest.approx(0.5**9)]
    assert [len(one.token_ids) for one in engine.asked] == [3, 3, 3, 3]
    assert "again, after 2" in CHAT.decode(engine.asked[3].prompt_ids)


@mutation(
    "an answer that does not fit is possible", ANSWER,
    "len(ids) > play.params.max_tokens", "len(ids) > 10 * play.params.max_tokens",
)  # fmt: skip
@pytest.mark.parametrize("bounds", [{"max_turns": 2}, {"max_length": 40}, {"max_tokens": 2}])
def test_an_answer_that_does_not_fit_is_impossible(bounds: dict[str, int]) -> None:
    tasks = [("long", draft("no", 3)), ("short", draft("", 1))]
    assert answer_probabilities(tasks, play(Says(), Halves(), **bounds)) == [0.0, 0.5]


def test_domains_and_engines_without_the_means_give_none() -> None:
    tasks = [("t", draft("no"))]
    assert answer_probabilities(tasks, play(EchoDomain(), Halves())) is None
    assert answer_probabilities(tasks, play(Says(), ScriptedEngine(lambda *_: None))) is None  # pyright: ignore[reportArgumentType]


class Wrong(Says):
    def score(self, draft: TaskDraft, messages: Sequence[Message]) -> Verdict:
        return Verdict(0.0, False, "another word")


class Endless(Says):
    def answer_turns(self, draft: TaskDraft) -> list[str]:
        return [draft.ground_truth]


class Raises(Says):
    def answer_turns(self, draft: TaskDraft) -> list[str]:
        raise KeyError("answer")


@pytest.mark.parametrize(
    ("domain", "why"),
    [(Wrong(), "another word"), (Endless(), "goes on after it"), (Raises(), "KeyError: 'answer'")],
)
def test_an_answer_that_is_not_accepted_is_an_error(domain: Says, why: str) -> None:
    with pytest.raises(DomainError, match=f"domain echo: its answer_turns .* task t: .*{why}"):
        answer_probabilities([("t", draft("no", 2))], play(domain, Halves()))


@pytest.mark.parametrize("dialogue", [False, True])
def test_desk_accepts_the_answer_that_it_writes(dialogue: bool) -> None:
    desk = DeskDomain(DeskOptions(dialogue=dialogue))
    drafts = desk.heldout_tasks(0, 30)
    tasks = [(d.program, d) for d in drafts]
    engine = Halves()
    found = answer_probabilities(tasks, play(desk, engine, max_tokens=999, max_length=99_999))
    assert found is not None and all(0 < value < 1e-3 for value in found)
    for item, sequence in zip(drafts, engine.asked, strict=True):
        text = CHAT.decode(sequence.token_ids)
        if dialogue:
            assert text.count("recorded") == len(item.spec["calls"]) and "done" in text
        else:
            assert text == item.ground_truth
