"""The transformers engine.

Invariants: logprobs are those of a plain forward pass over prompt and completion; greedy decoding
equals `model.generate`; a request's completion depends on its own prompt, seed and parameters, not
on its neighbours, its place, or rows that ended early; equal calls give equal bits; a bad request
is one bad completion; a broken model is an `EngineError` that names the request.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch

from genenv_core.errors import EngineError
from genenv_core.types import FinishReason, SampleRequest, SamplingParams
from tests.mutations import mutation
from tests.unit.builders_engine import (
    EOS_ID,
    GREEDY,
    PARAMS,
    VOCAB_SIZE,
    assert_close_to_forward,
    engine_of,
    random_prompts,
    requests_of,
    tiny_model,
)

ENGINE = "genenv_core/engines/transformers/engine.py"


def test_logprobs_equal_a_plain_forward_pass(model: torch.nn.Module) -> None:
    requests = requests_of(random_prompts(6, shortest=3, longest=40), samples=2)
    for params in (
        PARAMS,
        GREEDY,
        SamplingParams(max_tokens=40, temperature=0.6, stop_token_ids=(EOS_ID,)),
        SamplingParams(max_tokens=40, temperature=1.3, top_p=0.8, stop_token_ids=(EOS_ID,)),
    ):
        answers = engine_of(model).sample(requests, params)
        assert len({len(answer.token_ids) for answer in answers}) > 3
        assert_close_to_forward(model, requests, answers, params.temperature)


def test_greedy_equals_generate_token_for_token(model: torch.nn.Module) -> None:
    strong = tiny_model(seed=3, eos_probability=0.03, spread=1.5)
    prompts = random_prompts(8, shortest=5, longest=50, seed=2)
    answers = engine_of(strong).sample(requests_of(prompts), GREEDY)
    for prompt, answer in zip(prompts, answers, strict=True):
        with torch.inference_mode():
            whole = strong.generate(
                input_ids=torch.tensor([prompt]),
                attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                max_new_tokens=GREEDY.max_tokens,
                do_sample=False,
                eos_token_id=EOS_ID,
                pad_token_id=0,
            )
        assert answer.token_ids == tuple(whole[0, len(prompt) :].tolist())
    assert len({answer.token_ids for answer in answers}) > 6


@mutation(
    "the end of a completion is not told",
    ENGINE,
    "FinishReason.STOP if ids[-1] in stops else",
    "FinishReason.STOP if ids[0] in stops else",
)
def test_a_stop_token_ends_a_completion_and_belongs_to_it(model: torch.nn.Module) -> None:
    answers = engine_of(model).sample(
        requests_of(random_prompts(8, shortest=4, longest=9), samples=4), PARAMS
    )
    assert {answer.finish_reason for answer in answers} == {FinishReason.STOP, FinishReason.LENGTH}
    for answer in answers:
        stopped = answer.finish_reason is FinishReason.STOP
        assert (answer.token_ids[-1] == EOS_ID) is stopped
        assert EOS_ID not in answer.token_ids[:-1]
        assert len(answer.token_ids) == len(answer.logprobs)
        assert stopped or len(answer.token_ids) == PARAMS.max_tokens


@mutation(
    "a seed is that of a place",
    ENGINE,
    "[requests[index].seed for index in batch]",
    "[*range(len(batch))]",
)
def test_a_request_does_not_depend_on_its_batch(model: torch.nn.Module) -> None:
    prompts = random_prompts(4, shortest=3, longest=40, seed=5)
    requests = requests_of(prompts, samples=3)
    engine = engine_of(model)
    together = engine.sample(requests, PARAMS)

    alone = [engine.sample([request], PARAMS)[0] for request in requests]
    assert [answer.token_ids for answer in alone] == [answer.token_ids for answer in together]
    for one, other in zip(alone, together, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)

    strangers = requests_of(random_prompts(9, shortest=1, longest=60, seed=6))
    mixed = engine.sample([*strangers[:4], *reversed(requests), *strangers[4:]], PARAMS)
    assert [answer.token_ids for answer in mixed[4:-5]] == [
        answer.token_ids for answer in reversed(together)
    ]

    narrow = engine_of(model, max_batch_rows=5).sample(requests, PARAMS)
    assert [answer.token_ids for answer in narrow] == [answer.token_ids for answer in together]


def test_equal_calls_give_equal_bits_in_any_order(model: torch.nn.Module) -> None:
    requests = requests_of(random_prompts(4, shortest=3, longest=40), samples=3)
    first = engine_of(model).sample(requests, PARAMS)
    assert engine_of(model).sample(requests, PARAMS) == first
    assert engine_of(model).sample(requests[::-1], PARAMS) == first[::-1]


def test_seeds_alone_tell_samples_of_one_prompt_apart(model: torch.nn.Module) -> None:
    engine = engine_of(model)
    prompt = tuple(random_prompts(1, shortest=9, longest=9)[0])
    answers = engine.sample([SampleRequest(prompt, seed) for seed in (1, 2, -1, 2**80, 1)], PARAMS)
    assert answers[0] == answers[4]
    assert len({answer.token_ids for answer in answers}) == 4


def test_a_shorter_bound_cuts_the_same_completion(model: torch.nn.Module) -> None:
    requests = requests_of(random_prompts(5, shortest=3, longest=30), samples=3)
    long = engine_of(model).sample(requests, PARAMS)
    short = engine_of(model).sample(
        requests, SamplingParams(max_tokens=7, stop_token_ids=(EOS_ID,))
    )
    assert [answer.token_ids[:7] for answer in long] == [answer.token_ids for answer in short]


def test_sampled_frequencies_follow_the_models_distribution(model: torch.nn.Module) -> None:
    prompt = tuple(random_prompts(1, shortest=12, longest=12, seed=9)[0])
    draws = 4000
    answers = engine_of(model).sample(
        [SampleRequest(prompt, seed) for seed in range(draws)], SamplingParams(max_tokens=1)
    )
    counts = Counter(answer.token_ids[0] for answer in answers)
    with torch.inference_mode():
        probabilities = model(torch.tensor([prompt])).logits[0, -1].softmax(-1).double().numpy()
    observed = np.array([counts[token] for token in range(VOCAB_SIZE)])
    expected = draws * probabilities
    wide = expected >= 5
    statistic = float((((observed - expected) ** 2) / expected)[wide].sum())
    degrees = int(wide.sum())
    assert degrees > 30
    # Five standard deviations of a chi-square; the seeds are fixed, so this never flickers.
    assert statistic < degrees + 5 * math.sqrt(2 * degrees)


@mutation("an id below 0 is an id", ENGINE, "if low < 0 or high >=", "if high >=")
def test_bad_requests_fail_alone(model: torch.nn.Module) -> None:
    good = requests_of(random_prompts(2, shortest=5, longest=9))
    bad = [
        SampleRequest((), 0),
        SampleRequest((5, VOCAB_SIZE), 0),
        SampleRequest((-1, 5), 0),
        SampleRequest((5,) * 512, 0),
    ]
    answers = engine_of(model).sample([good[0], *bad, good[1]], PARAMS)
    assert [answers[0], answers[-1]] == engine_of(model).sample(good, PARAMS)
    assert all(answer.finish_reason is FinishReason.ERROR for answer in answers[1:-1])
    assert all(answer.token_ids == answer.logprobs == () for answer in answers[1:-1])
    for answer, word in zip(answers[1:-1], ("empty", "220", "-1", "512"), strict=True):
        assert word in answer.error


@mutation(
    "positions do not end a completion",
    ENGINE,
    "min(params.max_tokens, self._max_positions - len(prompt)) for",
    "params.max_tokens for",
)
def test_a_completion_stops_where_the_models_positions_end(model: torch.nn.Module) -> None:
    requests = [SampleRequest((7,) * length, length) for length in (511, 505, 20)]
    answers = engine_of(model).sample(requests, SamplingParams(max_tokens=20))
    assert [len(answer.token_ids) for answer in answers] == [1, 7, 20]
    assert all(answer.finish_reason is FinishReason.LENGTH for answer in answers)
    assert_close_to_forward(model, requests, answers)


def test_no_requests_give_no_completions(model: torch.nn.Module) -> None:
    assert engine_of(model).sample([], PARAMS) == []


def test_broken_weights_name_the_request() -> None:
    broken = tiny_model()
    broken.get_input_embeddings().weight[9] = math.nan
    requests = [SampleRequest((4, 5), 0), SampleRequest((9,), 1), SampleRequest((6, 7, 8), 2)]
    for params in (PARAMS, GREEDY):
        with pytest.raises(EngineError, match=r"request 1 .* NaN"):
            engine_of(broken).sample(requests, params)
    infinite = tiny_model()
    infinite.get_output_embeddings().weight[17] = math.inf
    with pytest.raises(EngineError, match="request"):
        engine_of(infinite).sample(requests, PARAMS)


@mutation(
    "what comes after the end may break a batch", ENGINE, "alive & ~np.isfinite", "~np.isfinite"
)
def test_nan_after_a_stop_token_is_ignored() -> None:
    # Rows that have ended are computed on for a while; here that gives NaN.
    deadly = tiny_model()
    deadly.get_input_embeddings().weight[EOS_ID] = math.nan
    requests = requests_of(random_prompts(8, shortest=4, longest=9), samples=4)
    assert engine_of(deadly).sample(requests, PARAMS) == engine_of(tiny_model()).sample(
        requests, PARAMS
    )


@pytest.mark.parametrize(
    ("params", "word"),
    [
        (SamplingParams(max_tokens=0), "max_tokens"),
        (SamplingParams(max_tokens=1, temperature=-1.0), "temperature"),
        (SamplingParams(max_tokens=1, temperature=math.nan), "temperature"),
        (SamplingParams(max_tokens=1, top_p=0.0), "top_p"),
        (SamplingParams(max_tokens=1, stop_token_ids=(VOCAB_SIZE,)), "stop token"),
    ],
)
def test_impossible_parameters_are_refused(
    model: torch.nn.Module, params: SamplingParams, word: str
) -> None:
    with pytest.raises(EngineError, match=word):
        engine_of(model).sample(requests_of([[3, 4]]), params)


def test_a_closed_engine_refuses(model: torch.nn.Module) -> None:
    engine = engine_of(model)
    engine.close()
    with pytest.raises(EngineError, match="close"):
        engine.sample(requests_of([[3]]), PARAMS)


def test_the_callers_thread_count_comes_back(model: torch.nn.Module) -> None:
    engine_of(model, threads=2).sample(requests_of([[3]]), PARAMS)
    assert torch.get_num_threads() == 1


def test_long_prompts_prefill_in_pieces(
    model: torch.nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = requests_of(random_prompts(9, shortest=3, longest=40), samples=2)
    whole = engine_of(model).sample(requests, PARAMS)
    monkeypatch.setattr("genenv_core.engines.transformers.engine.PREFILL_TOKENS", 60)
    pieces = engine_of(model).sample(requests, PARAMS)
    assert [answer.token_ids for answer in pieces] == [answer.token_ids for answer in whole]


def test_bfloat16_and_eager_attention_work() -> None:
    requests = requests_of(random_prompts(4, shortest=3, longest=30), samples=2)
    half = engine_of(tiny_model().to(torch.bfloat16)).sample(requests, PARAMS)
    assert all(answer.finish_reason is not FinishReason.ERROR for answer in half)
    eager = tiny_model()
    eager.set_attn_implementation("eager")
    answers = engine_of(eager).sample(requests, PARAMS)
    assert_close_to_forward(eager, requests, answers)
