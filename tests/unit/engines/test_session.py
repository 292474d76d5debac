"""Sessions: requests that join an engine's work while others are under way.

Invariants: a completion has the tokens that `sample` gives, whenever its request joins and beside
any others; when a prompt begins with known ids only its rest is computed, and the logprobs are
those of a plain forward pass; equal prompts are computed once; a bad request is one bad completion;
broken weights are an error that names the request.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from queue import SimpleQueue

import pytest
import torch

from genenv_core.engines.protocol import Continuous, Session
from genenv_core.engines.sessions import BatchSession, Mailbox, RemoteSession, open_session
from genenv_core.engines.transformers.continuous import ContinuousSession
from genenv_core.errors import EngineError
from genenv_core.types import Completion, FinishReason, SampleRequest, SamplingParams
from tests.mutations import mutation
from tests.unit.builders_engine import (
    GREEDY,
    PARAMS,
    VOCAB_SIZE,
    assert_close_to_forward,
    engine_of,
    random_prompts,
    requests_of,
    tiny_model,
)
from tests.unit.builders_rollout import ScriptedEngine
from tests.waiting import BOUND_S

CONTINUOUS = "genenv_core/engines/transformers/continuous.py"


def session_of(
    model: object, params: SamplingParams = PARAMS, **settings: int
) -> ContinuousSession:
    session = engine_of(model, **settings).open_session(params)
    assert isinstance(session, ContinuousSession)
    return session


def drained(session: Session) -> dict[int, Completion]:
    """Advance a session until nothing is under way; returns its completions."""
    done: dict[int, Completion] = {}
    while session.computes:
        done.update(session.advance())
    return done


@mutation(
    "rows keep the draws of those that left",
    CONTINUOUS,
    "(self._tokens, self._logprobs, self._uniforms):",
    "(self._tokens, self._logprobs):",
)
@pytest.mark.slow
def test_requests_that_join_late_get_the_tokens_of_one_batch(model: torch.nn.Module) -> None:
    requests = requests_of(random_prompts(5, shortest=3, longest=60, seed=5), samples=3)
    nucleus = replace(PARAMS, temperature=0.7, top_p=0.9)
    for params, every in ((PARAMS, 1), (PARAMS, 4), (GREEDY, 4), (nucleus, 1)):
        expected = engine_of(model).sample(requests, params)
        session = session_of(model, params)
        done: dict[int, Completion] = {}
        for tag, request in enumerate(requests):
            session.submit(tag, request, params.max_tokens)
            if tag % every == 0:
                done.update(session.advance())
        done.update(drained(session))
        answers = [done[tag] for tag in range(len(requests))]
        assert [a.token_ids for a in answers] == [a.token_ids for a in expected]
        assert [a.finish_reason for a in answers] == [a.finish_reason for a in expected]
        assert_close_to_forward(model, requests, answers, params.temperature)


@mutation(
    "rows join without room",
    CONTINUOUS,
    "self._waiting[:free], self._waiting[free:]",
    "self._waiting, []",
)
def test_rows_wait_where_there_is_no_room(model: torch.nn.Module) -> None:
    requests = requests_of(random_prompts(8, shortest=3, longest=30, seed=6), samples=2)
    session = session_of(model, max_batch_rows=5)
    for tag, request in enumerate(requests):
        session.submit(tag, request, PARAMS.max_tokens)
    done = drained(session)
    expected = engine_of(model).sample(requests, PARAMS)
    assert [done[tag].token_ids for tag in range(16)] == [a.token_ids for a in expected]


@mutation(
    "a conversation is computed anew",
    CONTINUOUS,
    "        if stopped:\n",
    "        if not stopped:\n",
)
@pytest.mark.slow
def test_of_a_longer_prompt_only_what_is_new_is_computed(model: torch.nn.Module) -> None:
    session = session_of(model)
    prompts = [tuple(p) for p in random_prompts(6, shortest=20, longest=40, seed=7)]
    went_on = [False] * len(prompts)
    for turn in range(3):
        for tag, prompt in enumerate(prompts):
            session.submit(tag, SampleRequest(prompt, seed=10 * tag + turn), 40)
        before = session.computed_tokens
        done = drained(session)
        for tag, prompt in enumerate(prompts):
            request = SampleRequest(prompt, seed=10 * tag + turn)
            assert_close_to_forward(model, [request], [done[tag]])
            assert done[tag].token_ids == engine_of(model).sample([request], PARAMS)[0].token_ids
        if turn:
            # Five ids of the observation and the one that ended the completion; a completion that
            # was cut is no conversation that goes on, and its prompt was made anew.
            fresh = sum(6 if one else len(p) for one, p in zip(went_on, prompts, strict=True))
            assert session.computed_tokens - before == fresh
        went_on = [done[tag].finish_reason is FinishReason.STOP for tag in range(len(prompts))]
        assert sum(went_on) > 2
        prompts = [
            prompt + done[tag].token_ids + (5, 6, 7, 8, 9) for tag, prompt in enumerate(prompts)
        ]


@mutation(
    "another beginning is taken for the same",
    CONTINUOUS,
    "same = min(common_tokens([ids, row.prompt]), len(row.prompt) - 1)",
    "same = min(len(ids), len(row.prompt) - 1)",
)
def test_a_prompt_that_begins_otherwise_uses_what_is_equal(model: torch.nn.Module) -> None:
    session = session_of(model)
    prompt = tuple(random_prompts(1, shortest=30, longest=30, seed=8)[0])
    session.submit(0, SampleRequest(prompt, 0), 40)
    assert drained(session)[0].finish_reason is FinishReason.STOP
    other = (*prompt[:20], 9, 8, 7)
    before = session.computed_tokens
    session.submit(0, SampleRequest(other, 0), 40)
    done = drained(session)[0]
    assert session.computed_tokens - before == 3
    assert_close_to_forward(model, [SampleRequest(other, 0)], [done])
    session.forget(0)
    before = session.computed_tokens
    session.submit(0, SampleRequest((*other, *done.token_ids, 4), 0), 40)
    drained(session)
    assert session.computed_tokens - before == len(other) + len(done.token_ids) + 1


@mutation(
    "equal prompts are computed each",
    CONTINUOUS,
    "if not known and row.prompt in first_of:",
    "if known and row.prompt in first_of:",
)
def test_equal_prompts_are_computed_once(model: torch.nn.Module) -> None:
    session = session_of(model)
    requests = requests_of(random_prompts(3, shortest=10, longest=10), samples=8)
    for tag, request in enumerate(requests):
        session.submit(tag, request, PARAMS.max_tokens)
    done = drained(session)
    assert session.computed_tokens == 30
    expected = engine_of(model).sample(requests, PARAMS)
    assert [done[tag].token_ids for tag in range(24)] == [a.token_ids for a in expected]


def test_each_request_has_its_own_bound(model: torch.nn.Module) -> None:
    session = session_of(model)
    requests = requests_of(random_prompts(6, shortest=5, longest=30))
    whole = engine_of(model).sample(requests, PARAMS)
    for tag, request in enumerate(requests):
        session.submit(tag, request, tag + 1)
    done = drained(session)
    for tag, one in enumerate(whole):
        assert done[tag].token_ids == one.token_ids[: tag + 1]


def test_bad_requests_fail_alone(model: torch.nn.Module) -> None:
    session = session_of(model)
    good = SampleRequest((3, 4, 5), 1)
    session.submit(0, SampleRequest((), 0), 40)
    session.submit(1, good, 40)
    session.submit(2, SampleRequest((5, VOCAB_SIZE), 0), 40)
    session.submit(3, good, 41)
    done = drained(session)
    assert [done[tag].finish_reason is FinishReason.ERROR for tag in range(4)] == [1, 0, 1, 1]
    assert "empty" in done[0].error and "220" in done[2].error and "41" in done[3].error
    assert done[1].token_ids == engine_of(model).sample([good], PARAMS)[0].token_ids


def test_broken_weights_name_the_request() -> None:
    broken = tiny_model()
    broken.get_input_embeddings().weight[9] = math.nan
    session = session_of(broken)
    session.submit(7, SampleRequest((9,), 0), 40)
    with pytest.raises(EngineError, match=r"request 7 .* NaN"):
        drained(session)


@mutation(
    "what is kept has no bound",
    CONTINUOUS,
    "while self._kept_tokens > KEPT_TOKENS:",
    "while self._kept_tokens < 0:",
)
def test_what_is_kept_is_bounded(model: torch.nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genenv_core.engines.transformers.continuous.KEPT_TOKENS", 100)
    session = session_of(model, GREEDY)
    prompts = [tuple(p) for p in random_prompts(8, shortest=30, longest=30, seed=3)]
    for tag, prompt in enumerate(prompts):
        session.submit(tag, SampleRequest(prompt, 0), 40)
        drained(session)
    kept = session._kept
    assert 0 < sum(len(ids) for ids, _ in kept.values()) <= 100
    assert max(kept) == 7 and 0 not in kept


def test_every_kind_of_engine_has_a_session(model: torch.nn.Module) -> None:
    mailbox: Mailbox = SimpleQueue()
    engine = engine_of(model)
    assert isinstance(engine, Continuous)
    assert isinstance(open_session(engine, PARAMS, mailbox), ContinuousSession)

    def script(_: int, request: SampleRequest) -> Completion:
        return Completion((request.seed,) * 5, (-1.0,) * 5, FinishReason.STOP)

    scripted = ScriptedEngine(script)
    session = open_session(scripted, PARAMS, mailbox)
    assert isinstance(session, BatchSession)
    for tag in range(3):
        session.submit(tag, SampleRequest((1,), tag), 40 if tag else 3)
    done = drained(session)
    assert [len(done[tag].token_ids) for tag in range(3)] == [3, 5, 5]
    (batch,) = scripted.calls  # what waits is one batch, sampled with the largest bound
    assert len(batch[0]) == 3 and batch[1].max_tokens == 40
    assert isinstance(open_session(Remote(), PARAMS, mailbox), RemoteSession)


def answers(session: Session, mailbox: Mailbox) -> Sequence[tuple[int, Completion]]:
    mailbox.get(timeout=BOUND_S)()
    return session.advance()


class Remote(ScriptedEngine):
    """Answers through futures, as a remote engine does."""

    def __init__(self) -> None:
        super().__init__(lambda *_: Completion((), (), FinishReason.ERROR, "not to be called"))
        self.futures: list[Future[Completion]] = []

    def submit(self, request: SampleRequest, params: SamplingParams) -> Future[Completion]:
        self.calls.append(([request], params))
        self.futures.append(Future())
        return self.futures[-1]


def test_remote_answers_come_in_any_order_and_close_cancels_the_rest() -> None:
    mailbox: Mailbox = SimpleQueue()
    engine = Remote()
    session = open_session(engine, PARAMS, mailbox)
    assert isinstance(session, RemoteSession)
    for tag in range(4):
        session.submit(tag, SampleRequest((1,), tag), 3 + tag)
    assert [params.max_tokens for _, params in engine.calls] == [3, 4, 5, 6]
    done = Completion((5,), (-1.0,), FinishReason.STOP)
    engine.futures[2].set_result(done)
    engine.futures[0].set_result(done)
    assert session.advance() == []
    for _ in range(2):
        mailbox.get(timeout=BOUND_S)()
    assert session.advance() == [(2, done), (0, done)]
    engine.futures[3].set_exception(EngineError("the server is gone"))
    with pytest.raises(EngineError, match="the server is gone"):
        answers(session, mailbox)
    session.close()
    assert engine.futures[1].cancelled()
