"""Logprobs of given tokens.

Invariants: they are those with which the same tokens are sampled, at any temperature; the nucleus
counts, and what is outside of it is impossible; neighbours, order and batches change nothing but
rounding, also where an architecture takes no padding; bad ids are an error.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from genenv_core.engines.protocol import ScoresTokens, TokenSequence
from genenv_core.engines.transformers import token_logprobs
from genenv_core.engines.transformers.engine import TransformersEngine
from genenv_core.engines.transformers.sampling import choose_tokens, sampling_logprobs
from genenv_core.errors import EngineError
from genenv_core.types import SamplingParams
from tests.mutations import mutation
from tests.unit.builders_engine import EOS_ID, VOCAB_SIZE, random_prompts, requests_of, tiny_model


@pytest.fixture(scope="module")
def engine() -> TransformersEngine:
    return TransformersEngine(tiny_model(), threads=1)


def sampled(
    engine: TransformersEngine, params: SamplingParams
) -> tuple[list[TokenSequence], list[list[float]]]:
    requests = requests_of(random_prompts(12, shortest=3, longest=30))
    answers = engine.sample(requests, params)
    sequences = [
        TokenSequence(r.prompt_ids, a.token_ids) for r, a in zip(requests, answers, strict=True)
    ]
    return sequences, [list(answer.logprobs) for answer in answers]


@mutation(
    "scored tokens are off by one", "genenv_core/engines/transformers/token_logprobs.py",
    "logits[place, first - 1 : first - 1 + len(tokens)]",
    "logits[place, first : first + len(tokens)]",
)  # fmt: skip
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_tokens_have_the_logprobs_that_they_were_sampled_with(
    engine: TransformersEngine, temperature: float
) -> None:
    assert isinstance(engine, ScoresTokens)
    params = SamplingParams(20, temperature, stop_token_ids=(EOS_ID,))
    sequences, logprobs = sampled(engine, params)
    for found, known in zip(engine.logprobs(sequences, params), logprobs, strict=True):
        np.testing.assert_allclose(found, known, atol=1e-4)


def test_neighbours_change_nothing_but_rounding(
    engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = SamplingParams(20, stop_token_ids=(EOS_ID,))
    sequences, _ = sampled(engine, params)
    together = engine.logprobs(sequences, params)
    alone = [engine.logprobs([sequence], params)[0] for sequence in sequences]
    backwards = engine.logprobs(sequences[::-1], params)[::-1]
    monkeypatch.setattr(token_logprobs, "PREFILL_TOKENS", 60)
    batched = engine.logprobs(sequences, params)
    for others in (alone, backwards, batched):
        for left, right in zip(together, others, strict=True):
            np.testing.assert_allclose(left, right, atol=1e-5)
    assert backwards == together  # what is computed does not depend on the order


@pytest.mark.parametrize("top_p", [1.0, 0.7])
def test_the_distribution_is_the_one_that_is_drawn_from(top_p: float) -> None:
    torch.manual_seed(0)
    logits, draws = torch.randn(1, 12) * 2, 20_000
    params = SamplingParams(1, 0.8, top_p)
    uniforms = torch.rand(draws, dtype=torch.float64)
    tokens, _ = choose_tokens(logits.expand(draws, -1), uniforms, params)
    drawn = np.bincount(tokens.numpy(), minlength=12) / draws
    probabilities = sampling_logprobs(logits, params).exp().numpy()[0]
    assert probabilities.sum() == pytest.approx(1)
    assert np.abs(drawn - probabilities).max() < 0.015  # four standard errors
    outside = probabilities == 0
    assert outside.any() == (top_p < 1) and drawn[outside].sum() == 0


def test_a_token_outside_of_the_nucleus_is_impossible(engine: TransformersEngine) -> None:
    sequences = [TokenSequence((2, 3, 4), tuple(range(VOCAB_SIZE - 40, VOCAB_SIZE)))]
    (found,) = engine.logprobs(sequences, SamplingParams(1, top_p=0.05))
    assert -math.inf in found


def test_bad_ids_are_an_error(engine: TransformersEngine) -> None:
    params = SamplingParams(1)
    with pytest.raises(EngineError, match=f"token id {VOCAB_SIZE}"):
        engine.logprobs([TokenSequence((2,), (VOCAB_SIZE,))], params)
    with pytest.raises(EngineError, match="prompt is empty"):
        engine.logprobs([TokenSequence((), ())], params)
    with pytest.raises(EngineError, match="temperature above 0"):
        engine.logprobs([TokenSequence((2,), (3,))], SamplingParams(1, 0.0))
    closed = TransformersEngine(tiny_model(), threads=1)
    closed.close()
    with pytest.raises(EngineError, match="after close"):
        closed.logprobs([TokenSequence((2,), (3,))], params)
