"""Attempts whose history takes any course, held against what the engine was asked and gave.

The engine keeps all ids that it read and sampled. From these alone the sequences of an attempt are
made by hand here: a request that begins with all ids of the sequence so far goes on with it, and
any other one begins a sequence.

Invariants, for every history: no sampled token is lost, doubled or spelled anew; each sequence is
what the engine read and said in it, behind the sequence that it came of; the rows of an update are
those made by hand, in which each sampled token counts once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl
from hypothesis import example, given, settings
from hypothesis import strategies as st

from genenv_core.config.sections.rollout import RolloutConfig
from genenv_core.config.sections.updates import MixtureConfig
from genenv_core.epoch.agent_update import agent_rows
from genenv_core.epoch.attempts import attempt
from genenv_core.epoch.rows import frame
from genenv_core.play.attempt import AttemptBounds, Play
from genenv_core.play.chat import ChatFormat
from genenv_core.types import (
    Completion,
    FinishReason,
    FurtherSequence,
    Message,
    Observation,
    SampleRequest,
    SamplingParams,
    TaskDraft,
)
from tests.examples import many
from tests.mutations import mutation
from tests.unit.builders_engine import CHATML, tiny_tokenizer
from tests.unit.builders_rollout import EchoDomain
from tests.unit.builders_sequences import ForgetfulAgent
from tests.unit.epoch.builders_epoch import seed_for, seed_parts, task

ATTEMPT = "genenv_core/play/attempt.py"

END_ID = 1
CHAT = ChatFormat(tiny_tokenizer(CHATML), name="tiny")
IDS = ("prompt_ids", "token_ids", "logprobs", "loss_mask")
PLACES = ("sequence", "turn", "parent", "branch_turn")
WORDS = ("abba", "look at the cards", "b", "")


@dataclass(frozen=True)
class Step:
    """What one turn samples, how that ends, and what the environment answers."""

    ids: tuple[int, ...]
    finish: FinishReason = FinishReason.STOP
    answers: tuple[str, ...] = ("abba",)
    course: str = "on"  # or "anew", "done", "broken"


Histories = tuple[tuple[Step, ...], tuple[Step, ...]]
"""Of both attempts of a group; the last step of one is repeated."""


@dataclass
class Remembering:
    """An engine that follows the steps of each attempt, and keeps what it read and gave.

    What it gave ends where a sequence has `max_length` tokens: its session cuts the rest off.
    """

    histories: Histories
    max_length: int
    kept: dict[int, list[tuple[SampleRequest, Completion]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def sample(self, requests: Sequence[SampleRequest], params: SamplingParams) -> list[Completion]:
        return [self._sampled(request) for request in requests]

    def _sampled(self, request: SampleRequest) -> Completion:
        _, sample, turn = map(int, seed_parts(request.seed).split("/"))
        step = of_turn(self.histories[sample], turn)
        ids = step.ids if step.finish is FinishReason.LENGTH else (*step.ids, END_ID)
        if step.finish is FinishReason.ERROR:
            made = Completion((), (), FinishReason.ERROR, "no answer")
        else:
            logprobs = tuple(-(64 * turn + place + 1) / 1024 for place in range(len(ids)))
            made = Completion(ids, logprobs, step.finish)
        room = self.max_length - len(request.prompt_ids)
        given = made
        if len(ids) > room and made.token_ids:
            given = Completion(ids[:room], made.logprobs[:room], FinishReason.LENGTH)
        self.kept[sample].append((request, given))
        return made

    def close(self) -> None: ...


class WanderingDomain(EchoDomain):
    """Answers an attempt by its steps; the group's attempts begin in order."""

    def __init__(self, histories: Histories) -> None:
        super().__init__()
        self._waiting = iter(histories)

    def episode(self, draft: TaskDraft, seed: int) -> Any:
        return Wandering(next(self._waiting))


@dataclass
class Wandering:
    steps: tuple[Step, ...]
    turn: int = 0

    def step(self, action: str) -> Observation:
        one = of_turn(self.steps, self.turn)
        self.turn += 1
        if one.course == "broken":
            raise RuntimeError("the shelf fell over")
        answers = one.answers or ("abba",)
        messages: tuple[Message, ...] = tuple({"role": "user", "content": a} for a in answers)
        return Observation(messages, done=one.course == "done", anew=one.course == "anew")


def of_turn(steps: tuple[Step, ...], turn: int) -> Step:
    return steps[min(turn, len(steps) - 1)]


def by_hand(kept: list[tuple[SampleRequest, Completion]]) -> list[FurtherSequence]:
    """Return the sequences that requests and completions of an attempt make."""
    made: list[tuple[int, tuple[int, ...], list[int], list[float], list[int]]] = []
    for turn, (request, completion) in enumerate(kept):
        asked = request.prompt_ids
        if made and asked[: len(made[-1][1]) + len(made[-1][2])] == (*made[-1][1], *made[-1][2]):
            _, prompt, ids, logprobs, mask = made[-1]
            between = asked[len(prompt) + len(ids) :]
            ids += between
            logprobs += [0.0] * len(between)
            mask += [0] * len(between)
        else:
            made.append((turn, asked, [], [], []))
        _, _, ids, logprobs, mask = made[-1]
        ids += completion.token_ids
        logprobs += completion.logprobs
        mask += [1] * len(completion.token_ids)
    return [
        FurtherSequence(
            turn, 0, number - 1 if number else None, turn, prompt, tuple(ids), tuple(logprobs),
            tuple(mask),
        )
        for number, (turn, prompt, ids, logprobs, mask) in enumerate(made)
    ]  # fmt: skip


def payload(one: FurtherSequence) -> list[list[Any]]:
    return [list(getattr(one, name)) for name in IDS]


steps = st.builds(
    Step,
    st.lists(st.integers(3, 162), min_size=1, max_size=6).map(tuple),
    st.sampled_from([FinishReason.STOP] * 9 + [FinishReason.LENGTH, FinishReason.ERROR]),
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(tuple),
    st.sampled_from(["on"] * 4 + ["anew"] * 4 + ["done", "broken"]),
)
attempts = st.lists(steps, min_size=1, max_size=6).map(tuple)
ANEW = Step((20, 21), course="anew")
LONG = (ANEW, Step((30,), answers=("abba",) * 3), ANEW, ANEW, Step((40,), course="done"))


@mutation(
    "a sampled token is lost where the conversation begins anew", ATTEMPT,
    "            loss_mask=tuple(self.loss_mask),",
    "            loss_mask=tuple(self.loss_mask[:-1] + [0]),",
)  # fmt: skip
@mutation(
    "a new sequence repeats what was sampled before it", ATTEMPT,
    "self.token_ids, self.logprobs, self.loss_mask = [], [], []", "pass",
)  # fmt: skip
@mutation(
    "what was sampled is spelled anew", ATTEMPT,
    "self.token_ids.extend(completion.token_ids)",
    "self.token_ids.extend(chat.completion(chat.decode(completion.token_ids)))",
)  # fmt: skip
@settings(max_examples=many(400))
@given(st.tuples(attempts, attempts), st.integers(1, 7), st.integers(40, 400), st.integers(1, 3))
@example((LONG, (Step((50, 51), course="done"),)), 7, 400, 1)
@example((LONG, LONG), 3, 400, 1)
@example((LONG, (*LONG[:2], Step((3,), FinishReason.LENGTH))), 7, 400, 1)
@example((LONG, (ANEW, Step((3,), FinishReason.ERROR))), 7, 400, 1)
@example((LONG, (ANEW, Step((3,), course="broken"), *LONG[:3])), 7, 150, 2)
@example(((Step((3,)),), (Step((3, 3), answers=("abba", "look at the cards", "")),)), 2, 81, 1)
def test_every_history_keeps_each_sampled_token_once(
    histories: Histories, max_turns: int, max_length: int, max_errors: int
) -> None:
    engine = Remembering(histories, max_length)
    bounds = AttemptBounds(2, max_turns, max_length, max_errors)
    play = Play(WanderingDomain(histories), engine, CHAT, bounds, SamplingParams(9), lambda *_: 0)
    ((_, tables),) = attempt(
        ForgetfulAgent(play),
        [task("a")],
        {0: range(1)},
        RolloutConfig(n=2, max_tokens=9),
        epoch=2,
        scope="0123456789",
        policy_version=1,
        decode=CHAT.decode,
        seed_for=seed_for,
    )
    hands = [by_hand(engine.kept[sample]) for sample in range(2)]
    traces = tables["traces"]
    more = tables.get("trace_sequences", frame("trace_sequences", []))
    ids, learned = traces["trace_id"].to_list(), list[tuple[Any, ...]]()
    for sample, (trace, hand) in enumerate(zip(ids, hands, strict=True)):
        first = tables["trace_tokens"].row(sample, named=True)
        rows = [first, *more.filter(trace_id=trace).iter_rows(named=True)]
        sampled = [
            token
            for row in rows
            for token, mask in zip(row["token_ids"], row["loss_mask"], strict=True)
            if mask
        ]
        kept = engine.kept[sample]
        assert sampled == [token for _, made in kept for token in made.token_ids]
        if not hand:  # its first prompt left no room
            assert len(rows) == 1
            continue
        assert [[row[name] for name in IDS] for row in rows] == [payload(one) for one in hand]
        assert [[row[name] for name in PLACES] for row in rows[1:]] == [
            [number, one.turn, one.parent, one.branch_turn] for number, one in enumerate(hand)
        ][1:]
        asked = range(1, len(kept))
        anew = [turn for turn in asked if of_turn(histories[sample], turn - 1).course == "anew"]
        assert anew == [one.turn for one in hand[1:]]
        learned += [("g", *payload(one), float(sample), number) for number, one in enumerate(hand)]
    if traces["cause"].is_in(["environment", "engine"]).any() or not all(hands):
        return  # an attempt says nothing of the agent: the group has no signal, and trains nothing
    pool = frame("d_train", [
        {"trace_id": trace, "epoch": 2, "task_id": "t", "group_id": "g", "policy_version": 1,
         "source": "new", "reward": float(sample), "success": sample == 1}
        for sample, trace in enumerate(ids)
    ])  # fmt: skip
    made = agent_rows(
        pool, pool.clear(), tables["trace_tokens"], traces, epoch=2, policy_version=1,
        mixture=MixtureConfig(new=1, base=0, history=0), max_groups=4,
        advantages=lambda groups: [[-0.5, 0.5] for _ in groups], seed=0, sequences=more,
    )  # fmt: skip
    training = made.training.drop("truncated")
    if "sequence" not in training.columns:  # each attempt has one
        training = training.with_columns(sequence=pl.lit(0, pl.Int64))
    assert training.rows() == learned
    assert made.samples.select("row_id", "advantage").rows() == [(ids[0], -0.5), (ids[1], 0.5)]
