"""Choosing tokens: hand-computed draws, top-p sets, and random streams that belong to a seed."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from genenv_core.engines.transformers.sampling import choose_tokens, uniform_streams
from genenv_core.types import SamplingParams
from tests.examples import many
from tests.mutations import mutation

SAMPLING = "genenv_core/engines/transformers/sampling.py"


@mutation(
    "sampled logprobs are of the largest logit", SAMPLING,
    "logprobs.gather(1, tokens).squeeze(1)", "logprobs.max(dim=1).values",
)  # fmt: skip
@mutation(
    "the nucleus leaves out the token that fills it", SAMPLING,
    "ranked.cumsum(dim=-1, dtype=torch.float64) - ranked",
    "ranked.cumsum(dim=-1, dtype=torch.float64)",
)  # fmt: skip
def test_choosing_by_hand_computed_numbers() -> None:
    logits = torch.tensor([[0.1, 0.2, 0.0, 0.7]]).log().expand(5, 4)
    uniforms = torch.tensor([0.0, 0.0999, 0.1001, 0.2999, 1 - 2**-53], dtype=torch.float64)
    tokens, logprobs = choose_tokens(logits, uniforms, SamplingParams(1))
    assert tokens.tolist() == [0, 0, 1, 1, 3]
    assert logprobs.exp().tolist() == pytest.approx([0.1, 0.1, 0.2, 0.2, 0.7], abs=1e-6)
    # Mass 0.8 needs the tokens of 0.7 and 0.2; logprobs stay those before the truncation.
    tokens, logprobs = choose_tokens(logits, uniforms, SamplingParams(1, top_p=0.8))
    assert tokens.tolist() == [1, 1, 1, 3, 3]
    assert logprobs.exp().tolist() == pytest.approx([0.2, 0.2, 0.2, 0.7, 0.7], abs=1e-6)
    # Temperature 0.5 squares: 0.01, 0.04, 0, 0.49 of 0.54.
    tokens, logprobs = choose_tokens(logits, uniforms, SamplingParams(1, temperature=0.5))
    assert tokens.tolist() == [0, 3, 3, 3, 3]
    assert math.exp(float(logprobs[4])) == pytest.approx(0.49 / 0.54, abs=1e-6)


@given(st.integers(0, 10_000), st.sampled_from([0.05, 0.3, 0.7, 0.95]))
@settings(max_examples=many(30))
def test_top_p_draws_from_the_smallest_sufficient_set(seed: int, top_p: float) -> None:
    rng = np.random.default_rng(seed)
    logits = torch.from_numpy(rng.normal(0, 2, size=(64, 11)))
    uniforms = torch.from_numpy(rng.random(64))
    tokens, logprobs = choose_tokens(logits, uniforms, SamplingParams(1, top_p=top_p))
    probabilities = logits.float().softmax(-1)
    for row, token in enumerate(tokens.tolist()):
        own = probabilities[row, token]
        likelier = float(probabilities[row][probabilities[row] > own].sum())
        assert likelier < top_p + 1e-6
        assert float(logprobs[row]) == pytest.approx(math.log(own), abs=1e-5)


def test_blocks_of_rows_choose_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, uniforms = torch.randn(10, 7), torch.rand(10, dtype=torch.float64)
    whole = choose_tokens(logits, uniforms, SamplingParams(1))
    monkeypatch.setattr("genenv_core.engines.transformers.sampling.MAX_BLOCK_ELEMENTS", 3 * 7)
    parts = choose_tokens(logits, uniforms, SamplingParams(1))
    assert torch.equal(whole[0], parts[0]) and torch.equal(whole[1], parts[1])


def test_a_stream_is_a_prefix_of_a_longer_one() -> None:
    short, long = uniform_streams([3, -5], 4), uniform_streams([-5, 3], 9)
    assert np.array_equal(short, long[::-1, :4])
    assert not np.array_equal(short[0], short[1])
