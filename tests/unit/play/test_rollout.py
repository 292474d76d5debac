"""Chat formats and multi-turn rollouts.

Invariants: a policy's tokens are stored as sampled, never tokenised again; observation tokens have
loss mask 0 and logprob 0; completion + continuation equals the chat template's text; a failing
episode is one row, with its cause; what was lost is made again from the same seeds, and nothing
else is; the order is by task, then by sample index.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from genenv_core.domains.steps import EPISODE_TURN
from genenv_core.engines.protocol import Engine
from genenv_core.engines.retries import Retries
from genenv_core.engines.transformers.engine import TransformersEngine
from genenv_core.errors import ConfigError, DomainError
from genenv_core.ids import seed_from
from genenv_core.play.attempt import AttemptBounds, Play
from genenv_core.play.chat import ChatFormat
from genenv_core.play.driver import run_episodes
from genenv_core.types import (
    Cause,
    Completion,
    FinishReason,
    Observation,
    Rollout,
    SampleRequest,
    SamplingParams,
    TaskDraft,
)
from tests.mutations import mutation
from tests.unit.builders_engine import CHATML, spell, tiny_model, tiny_tokenizer, write_checkpoint
from tests.unit.builders_rollout import (
    EchoDomain,
    EchoEpisode,
    RecordingEngine,
    ScriptedEngine,
    flat,
)

ATTEMPT = "genenv_core/play/attempt.py"
DRIVER = "genenv_core/play/driver.py"

END_ID = 1
PARAMS = SamplingParams(max_tokens=30)


def draft_of(turns: int, prompt: str = "do it", **spec: object) -> TaskDraft:
    return TaskDraft(prompt, {"turns": turns, **spec}, "", prompt, "f", 1.0, prompt)


def chat_of(template: str | None = CHATML) -> ChatFormat:
    return ChatFormat(tiny_tokenizer(template), name="tiny")


def said(*token_ids: int, closed: bool = True) -> Completion:
    ids = (*token_ids, END_ID) if closed else token_ids
    return Completion(
        ids,
        tuple(-0.5 for _ in ids),
        FinishReason.STOP if closed else FinishReason.LENGTH,
    )


def rollouts(
    tasks: Sequence[tuple[str, TaskDraft]], engine: Engine, domain: EchoDomain, **changes: object
) -> list[Rollout]:
    bounds = AttemptBounds(**{"n": 2, "max_turns": 5, "max_length": 500, **changes})  # type: ignore[arg-type]
    return flat(run_episodes(tasks, Play(domain, engine, chat_of(), bounds, PARAMS, seed_from)))


@mutation(
    "observations are trained on", ATTEMPT,
    "self.loss_mask.extend([0] * len(between))", "self.loss_mask.extend([1] * len(between))",
)  # fmt: skip
@mutation(
    "a turn's logprobs are one token late", ATTEMPT, "self.logprobs.extend(completion.logprobs)",
    "self.logprobs.extend((0.0, *completion.logprobs[:-1]))",
)  # fmt: skip
@mutation(
    "all turns of an attempt have one seed", ATTEMPT,
    "seed=seed_of(self.task_id, self.sample_index, self.turns)",
    "seed=seed_of(self.task_id, self.sample_index, 0)",
    by="unit/play/test_rollout.py"
    "::test_attempts_of_quick_tools_go_in_step_and_keep_their_order_and_seeds",
)  # fmt: skip
def test_a_scripted_episode_gives_the_tokens_computed_by_hand() -> None:
    chat, domain = chat_of(), EchoDomain()
    engine = ScriptedEngine(lambda call, _: said(*spell("abba" if call == 0 else "ab")))
    (one,) = rollouts([("t1", draft_of(2))], engine, domain, n=1)

    text = "<|im_start|>user\ndo it<|im_end|>\n<|im_start|>assistant\n"
    between = "\n<|im_start|>tool\nturn 1: abba<|im_end|>\n<|im_start|>assistant\n"
    tokenizer = tiny_tokenizer()
    assert one.prompt_ids == tuple(tokenizer(text)["input_ids"])
    observation = tuple(tokenizer(between)["input_ids"])
    first, second = said(*spell("abba")), said(*spell("ab"))
    assert one.token_ids == first.token_ids + observation + second.token_ids
    assert one.loss_mask == (1,) * 5 + (0,) * len(observation) + (1,) * 3
    assert one.logprobs == (-0.5,) * 5 + (0.0,) * len(observation) + (-0.5,) * 3
    assert one.finish_reason is FinishReason.STOP
    assert one.turns == 2
    assert [message["role"] for message in one.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
    ]
    assert domain.episodes[0].seen == ["abba", "ab"]
    # The second turn's prompt is the first prompt and everything after it, as sampled.
    assert engine.calls[1][0][0].prompt_ids == one.prompt_ids + one.token_ids[:-3]
    assert engine.calls[0][1].stop_token_ids == chat.stop_token_ids == (END_ID,)
    # The script spells "abba" letter by letter; encoding the text would have used the merges.
    assert first.token_ids[:-1] != tuple(tokenizer("abba")["input_ids"])


def test_attempts_of_quick_tools_go_in_step_and_keep_their_order_and_seeds() -> None:
    domain = EchoDomain()
    engine = ScriptedEngine(lambda *_: said(*spell("ab")))
    tasks = [("z", draft_of(3)), ("a", draft_of(1)), ("m", draft_of(2))]
    made = rollouts(tasks, engine, domain, n=3)
    assert [(r.task_id, r.sample_index) for r in made] == [
        (task, index) for task in "zam" for index in range(3)
    ]
    assert [len(requests) for requests, _ in engine.calls] == [9, 6, 3]
    assert [r.turns for r in made] == [3, 3, 3, 1, 1, 1, 2, 2, 2]
    seeds = [request.seed for requests, _ in engine.calls for request in requests]
    assert len(set(seeds)) == 18
    assert seeds[9] == seed_from("z", 0, 1)
    assert domain.episodes[4].seed == seed_from("a", 1, EPISODE_TURN)


def test_failures_are_rows_and_others_go_on() -> None:
    def script(call: int, request: SampleRequest) -> Completion:
        if call == 1 and request.seed == seed_from("ok", 1, 1):
            return Completion((), (), FinishReason.ERROR, "too long")
        boom = call == 1 and request.seed == seed_from("ok", 0, 1)
        return said(*spell("boom" if boom else "ab"))

    tasks = [("ok", draft_of(3)), ("stuck", draft_of(1, unstartable=True))]
    made = rollouts(tasks, ScriptedEngine(script), EchoDomain(), n=3)
    causes = [one.cause for one in made]
    assert causes == [Cause.ENVIRONMENT, Cause.ENGINE, None, *[Cause.ENVIRONMENT] * 3]
    errors = [(r.finish_reason, r.error, r.turns) for r in made]
    assert errors[0] == (
        FinishReason.ERROR,
        "the environment failed: RuntimeError: the shelf fell over; in step, turn 2 of task ok, "
        "on boom",
        2,
    )
    assert errors[1] == (FinishReason.ERROR, "too long", 1)
    assert errors[2] == (FinishReason.STOP, "", 3)
    for reason, error, turns in errors[3:]:
        assert (reason, turns) == (FinishReason.ERROR, 0)
        assert "OSError: no room" in error
    for one in made:
        assert len(one.token_ids) == len(one.logprobs) == len(one.loss_mask)
    assert sum(made[0].loss_mask) == 3 + 5


class Flaky(ScriptedEngine):
    """Answers by seed, but fails at the first `fails` requests for each seed of `lost`."""

    def __init__(self, lost: set[int], fails: int) -> None:
        super().__init__(self.answer)
        self.lost, self.fails, self.asked = lost, fails, Counter[int]()

    def answer(self, _: int, request: SampleRequest) -> Completion:
        self.asked[request.seed] += 1
        if request.seed in self.lost and self.asked[request.seed] <= self.fails:
            return Completion((7,), (-1.0,), FinishReason.ERROR, "503: server gone")
        return said(*spell("ab" * (1 + request.seed % 3)))


class Unrepeatable(EchoDomain):
    """Says that it answers otherwise each time."""

    repeatable = False


LOST = {seed_from("a", 0, 0), seed_from("b", 1, 1), seed_from("b", 2, 2)}
"""Turns of three attempts at two tasks of three turns: the first, one amid, and the last."""


@mutation(
    "what was lost is not made again", DRIVER, "waiting.extend(driver.lost)", "driver.lost.clear()",
    by="unit/play/test_rollout.py::test_what_an_engine_lost_is_made_again_with_the_same_seeds",
)  # fmt: skip
@mutation("all attempts of a group are made again", DRIVER, "new if old.passing else old", "new")
@mutation(
    "a batch in which some came late has other bits", DRIVER,
    "if rounds.number and not _lost(held):", "if False:",
)  # fmt: skip
@mutation(
    "what cannot be repeated is made once more", DRIVER,
    " or not repeatable(play.domain)", "",
)  # fmt: skip
@pytest.mark.parametrize("open_attempts", [None, 3])
def test_what_an_engine_lost_is_made_again_with_the_same_seeds(open_attempts: int | None) -> None:
    tasks = [("a", draft_of(3)), ("b", draft_of(3))]
    bounds = AttemptBounds(n=3, max_turns=5, max_length=500)

    def played(engine: Flaky, retries: Retries, domain: EchoDomain | None = None) -> list[Rollout]:
        play = Play(domain or EchoDomain(), engine, chat_of(), bounds, PARAMS, seed_from)
        return flat(run_episodes(tasks, play, open_attempts=open_attempts, retries=retries))

    never = played(Flaky(set(), 0), Retries())
    assert not any(one.lost for one in never)
    engine = Flaky(LOST, 2)
    assert played(engine, Retries(2)) == never
    # Once more each, since bits depend on the whole batch.
    assert engine.asked[seed_from("a", 1, 0)] == 1 + 1  # of a group that lost another one
    assert engine.asked[seed_from("b", 1, 0)] == 3 + 1
    # Where attempts cannot be repeated, that would gain nothing.
    engine = Flaky(LOST, 2)
    assert played(engine, Retries(2), Unrepeatable()) == never
    assert engine.asked[seed_from("b", 1, 0)] == 3
    still = played(Flaky(LOST, 2), Retries(1))
    assert [one.lost for one in still] == [True, False, False, False, True, True]
    assert [one for one in still if not one.lost] == [
        one for one, left in zip(never, still, strict=True) if not left.lost
    ]
    assert [(one.cause, one.turns) for one in still if one.lost] == [
        (Cause.ENGINE, 0),
        (Cause.ENGINE, 1),
        (Cause.ENGINE, 2),
    ]


@mutation(
    "what the agent said wrong is the environment's failure", "genenv_core/domains/steps.py",
    "Cause.AGENT if isinstance(error, DomainError) else Cause.ENVIRONMENT", "Cause.ENVIRONMENT",
)  # fmt: skip
def test_what_the_agent_broke_is_final() -> None:
    class Strict(EchoDomain):
        def episode(self, draft: TaskDraft, seed: int) -> EchoEpisode:
            opened = super().episode(draft, seed)
            if len(self.episodes) == 1:  # it opens the second time
                raise ConnectionError("the warehouse is closed")
            return opened

        def refuse(self, action: str) -> Observation:
            raise DomainError("make one call")

    domain = Strict()
    bounds = AttemptBounds(n=1, max_turns=5, max_length=500)
    engine = ScriptedEngine(lambda *_: said(*spell("ab")))
    play = Play(domain, engine, chat_of(), bounds, PARAMS, seed_from)
    (one,) = flat(run_episodes([("t", draft_of(1))], play, retries=Retries(3)))
    assert (one.finish_reason, len(domain.episodes)) == (FinishReason.STOP, 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EchoEpisode, "step", Strict.refuse)
        (one,) = flat(run_episodes([("t", draft_of(1))], play, retries=Retries(3)))
    assert (one.cause, one.lost, len(domain.episodes)) == (Cause.AGENT, False, 4)
    refused = "the environment refused what the agent said: DomainError: make one call"
    assert one.error == f"{refused}; in step, turn 1 of task t, on ab"


def test_max_turns_ends_an_episode() -> None:
    engine = ScriptedEngine(lambda *_: said(*spell("ab")))
    (one,) = rollouts([("t", draft_of(9))], engine, EchoDomain(), n=1, max_turns=2)
    assert (one.finish_reason, one.turns) == (FinishReason.LENGTH, 2)
    assert one.messages[-1]["role"] == "tool"
    assert one.loss_mask[-1] == 1


@pytest.mark.slow
def test_max_length_is_never_exceeded() -> None:
    def script(call: int, request: SampleRequest) -> Completion:
        room = engine.calls[call][1].max_tokens
        return said(*spell("abbabba")[: room - 1])

    engine = ScriptedEngine(script)
    free = rollouts([("t", draft_of(9))], engine, EchoDomain(), n=1)[0]
    whole = len(free.prompt_ids) + len(free.token_ids)
    first_prompt = len(free.prompt_ids)
    assert whole > first_prompt + 60
    ends: set[tuple[FinishReason, int]] = set()
    for max_length in range(first_prompt + 1, whole):
        engine.calls.clear()
        (one,) = rollouts([("t", draft_of(9))], engine, EchoDomain(), n=1, max_length=max_length)
        assert first_prompt + len(one.token_ids) <= max_length
        assert one.finish_reason is FinishReason.LENGTH
        assert one.loss_mask[-1] == 1
        ends.add((one.finish_reason, one.turns))
    assert len(ends) > 2


def test_one_bound_serves_attempts_with_different_room() -> None:
    engine = ScriptedEngine(lambda *_: said(*spell("abcdefghab"), closed=True))
    tasks = [("short", draft_of(1)), ("long", draft_of(1, prompt="do it " * 3))]
    probe = rollouts(tasks, engine, EchoDomain(), n=1)
    limit = len(probe[1].prompt_ids) + 4
    cut, full = 1, 0
    made = rollouts(tasks, engine, EchoDomain(), n=1, max_length=limit)
    assert made[full].finish_reason is FinishReason.STOP
    assert made[cut].finish_reason is FinishReason.LENGTH
    assert made[cut].token_ids == made[full].token_ids[:4]
    assert len(made[cut].logprobs) == 4
    assert engine.calls[-1][1].max_tokens == min(30, limit - len(made[full].prompt_ids))


def test_a_prompt_without_room_is_an_error_row() -> None:
    engine = ScriptedEngine(lambda *_: said(5))
    made = rollouts([("t", draft_of(1))], engine, EchoDomain(), max_length=10)
    assert [r.finish_reason for r in made] == [FinishReason.ERROR] * 2
    assert "max_length 10" in made[0].error
    assert made[0].cause is Cause.AGENT and not made[0].lost
    assert engine.calls == []


@mutation(
    "a completion that was cut off is acted on", ATTEMPT,
    "        if completion.finish_reason is FinishReason.LENGTH:\n", "        if False:\n",
)  # fmt: skip
def test_a_truncated_completion_is_not_acted_on() -> None:
    domain = EchoDomain()
    engine = ScriptedEngine(lambda *_: said(*spell("ab"), closed=False))
    (one,) = rollouts([("t", draft_of(3))], engine, domain, n=1)
    assert one.finish_reason is FinishReason.LENGTH
    assert domain.episodes[0].seen == []
    assert one.messages[-1] == {"role": "assistant", "content": "ab"}


def test_a_domain_that_cannot_open_a_task_is_named() -> None:
    engine = ScriptedEngine(lambda *_: said(5))
    with pytest.raises(DomainError, match=r"echo.*t7.*KeyError"):
        rollouts([("t7", draft_of(1, broken=True))], engine, EchoDomain())
    for name in ("n", "max_turns", "max_length"):
        with pytest.raises(ConfigError, match=name):
            rollouts([("t", draft_of(1))], engine, EchoDomain(), **{name: 0})


def test_a_real_model_keeps_its_tokens_over_several_turns(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "agent", eos_probability=0.08)
    chat = ChatFormat.load(checkpoint)
    assert chat.stop_token_ids == (END_ID,)
    tokenizer = tiny_tokenizer()
    engine = RecordingEngine(TransformersEngine.load(checkpoint, threads=1))
    tasks = [(f"t{i}", draft_of(1 + i % 3, prompt="abba " * (1 + i))) for i in range(5)]
    bounds = AttemptBounds(n=4, max_turns=3, max_length=300)
    play = Play(EchoDomain(), engine, chat, bounds, PARAMS, seed_from)
    made = flat(run_episodes(tasks, play))
    assert {r.finish_reason for r in made} == {FinishReason.STOP, FinishReason.LENGTH}
    assert max(r.turns for r in made) == 3

    model = tiny_model(vocab_size=len(tokenizer), eos_probability=0.08)
    reencoded_otherwise = 0
    for one in made:
        position = 0
        for turn in range(one.turns):
            before = one.prompt_ids + one.token_ids[:position]
            answer = engine.answers[
                SampleRequest(before, seed_from(one.task_id, one.sample_index, turn))
            ]
            end = position + len(answer.token_ids)
            assert one.token_ids[position:end] == answer.token_ids
            assert one.logprobs[position:end] == answer.logprobs
            assert set(one.loss_mask[position:end]) == {1}
            text = chat.decode(answer.token_ids)
            again = tuple(tokenizer(text)["input_ids"])
            reencoded_otherwise += again != tuple(t for t in answer.token_ids if t != END_ID)
            position = end
            if turn + 1 < one.turns:
                gap = chat.continuation([one.messages[2 * turn + 2]], answer.token_ids)
                end = position + len(gap)
                assert one.token_ids[position:end] == gap
                assert set(one.loss_mask[position:end]) == {0}
                assert set(one.logprobs[position:end]) == {0.0}
                position = end
        assert position == len(one.token_ids)
        ids = torch.tensor([one.prompt_ids + one.token_ids])
        logprobs = model(ids).logits[0, len(one.prompt_ids) - 1 : -1].log_softmax(-1)
        for index, token in enumerate(one.token_ids):
            if one.loss_mask[index]:
                assert one.logprobs[index] == pytest.approx(float(logprobs[index, token]), abs=1e-4)
    assert reencoded_otherwise > 5
    assert flat(run_episodes(tasks, play)) == made
