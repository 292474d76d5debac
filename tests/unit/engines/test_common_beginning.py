"""What all prompts of a batch begin with is computed once.

Invariants: completions and logprobs are those of each prompt by itself, with rests of any lengths,
in one pass or several, with sdpa and with eager attention; the model computes the common tokens
once; a beginning too short to pay changes no bit; a prompt that is the beginning of another one
keeps a token of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from genenv_core.engines.protocol import TokenSequence
from genenv_core.engines.transformers import kv_cache, token_logprobs
from genenv_core.engines.transformers.kv_cache import SHARED_TOKENS, common_beginning
from tests.examples import some
from tests.mutations import mutation
from tests.unit.builders_engine import (
    GREEDY,
    PARAMS,
    assert_close_to_forward,
    engine_of,
    random_prompts,
    requests_of,
    tiny_model,
)

KV_CACHE = "genenv_core/engines/transformers/kv_cache.py"
SCORES = "genenv_core/engines/transformers/token_logprobs.py"
COMMON = 24


def alike(common: int = COMMON, count: int = 7) -> list[list[int]]:
    """Return prompts with `common` first tokens and rests of 1 to 12 tokens."""
    (beginning,) = random_prompts(1, shortest=common, longest=common, seed=8)
    rests = random_prompts(count, shortest=1, longest=12, seed=9)
    # Different first tokens, so that nothing more is common.
    return [[*beginning, 3 + index, *rest[1:]] for index, rest in enumerate(rests)]


def counted(model: torch.nn.Module, work: Callable[[], object]) -> int:
    """Return how many tokens the model reads in `work`, padding included."""
    read = [0]

    def count(_: object, inputs: tuple[torch.Tensor, ...]) -> None:
        read[0] += inputs[0].numel()

    embedding = model.get_input_embeddings()  # pyright: ignore[reportCallIssue]
    hook = embedding.register_forward_pre_hook(count)
    work()
    hook.remove()
    return read[0]


@mutation(
    "a step looks at the padding behind a common beginning", KV_CACHE,
    "visible = (total < common) | (total >= common + padding)",
    "visible = total >= 0 * padding",
)  # fmt: skip
@mutation(
    "the rest of a prompt does not look at its beginning", KV_CACHE,
    "visible = pad(visible, (known, 0), value=True)",
    "visible = pad(visible, (known, 0), value=False)",
)  # fmt: skip
@mutation(
    "a rest has the positions of a prompt", KV_CACHE,
    "position_ids=known + (columns - padding)", "position_ids=(columns - padding)",
)  # fmt: skip
@pytest.mark.parametrize("attention", some(("sdpa", "eager"), ("sdpa",)))
@pytest.mark.parametrize("pieces", [False, True])
def test_completions_are_those_of_each_prompt(
    attention: str, pieces: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if pieces:
        monkeypatch.setattr("genenv_core.engines.transformers.engine.PREFILL_TOKENS", 20)
    model = tiny_model()
    model.set_attn_implementation(attention)
    engine = engine_of(model)
    for of_any_length, samples in ((PARAMS, 2), (GREEDY, 1)):
        params = replace(of_any_length, max_tokens=16)
        requests = requests_of(alike(), samples)
        answers = engine.sample(requests, params)
        assert_close_to_forward(model, requests, answers, params.temperature)
        alone = [engine.sample([request], params)[0].token_ids for request in requests]
        assert [answer.token_ids for answer in answers] == alone


def test_equal_lengths_need_no_padding(model: torch.nn.Module) -> None:
    prompts = [prompt[: COMMON + 1] for prompt in alike()]
    requests = requests_of(prompts, samples=2)
    assert_close_to_forward(model, requests, engine_of(model).sample(requests, PARAMS))


@mutation(
    "a common beginning is computed for each prompt", KV_CACHE,
    "return common if common >= SHARED_TOKENS else 0", "return 0",
)  # fmt: skip
def test_common_tokens_are_computed_once(model: torch.nn.Module) -> None:
    prompts, engine = alike(), engine_of(model)
    longest = max(map(len, prompts)) - COMMON
    one_token = replace(PARAMS, max_tokens=1)
    read = counted(model, lambda: engine.sample(requests_of(prompts, samples=4), one_token))
    assert read == COMMON + len(prompts) * longest
    sequences = [TokenSequence(tuple(prompt), (5, 6)) for prompt in prompts]
    read = counted(model, lambda: engine.logprobs(sequences, PARAMS))
    assert read == COMMON + len(prompts) * (longest + 2)


@mutation(
    "scored rows look for their tokens a beginning too late", SCORES,
    "first = len(prompts[index]) - known - unread", "first = len(prompts[index]) - unread",
)  # fmt: skip
def test_scored_tokens_are_those_of_each_row(model: torch.nn.Module) -> None:
    engine = engine_of(model)
    sequences = [
        TokenSequence(tuple(prompt), tuple(range(5, 8 + index % 3)))
        for index, prompt in enumerate(alike())
    ]
    together = engine.logprobs(sequences, PARAMS)
    for found, sequence in zip(together, sequences, strict=True):
        np.testing.assert_allclose(found, engine.logprobs([sequence], PARAMS)[0], atol=1e-5)


@mutation("every beginning is computed apart", KV_CACHE, "SHARED_TOKENS = 8", "SHARED_TOKENS = 1")
def test_a_short_beginning_changes_no_bit(
    model: torch.nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts, engine = alike(7), engine_of(model)
    sequences = [TokenSequence(tuple(prompt), (5, 6)) for prompt in prompts]

    def all_of_it() -> object:
        return engine.sample(requests_of(prompts), PARAMS), engine.logprobs(sequences, PARAMS)

    with monkeypatch.context() as context:
        for module in (kv_cache, token_logprobs):
            context.setattr(module, "common_beginning", lambda _: 0)
        without = all_of_it()
    assert all_of_it() == without
    one_token = replace(PARAMS, max_tokens=1)
    read = counted(model, lambda: engine.sample(requests_of(prompts), one_token))
    assert read == len(prompts) * max(map(len, prompts))


@mutation(
    "a prompt may be all beginning", KV_CACHE, "len(one) - 1 for one in sequences",
    "len(one) for one in sequences",
)  # fmt: skip
def test_a_prompt_keeps_a_token_of_its_own() -> None:
    base = tuple(range(40))
    assert common_beginning([base, (*base, 1, 2)]) == 39
    assert common_beginning([base, base]) == 39
    assert common_beginning([base]) == 0
    assert common_beginning([base, (*base[:SHARED_TOKENS], 9)]) == SHARED_TOKENS
    assert common_beginning([base, (*base[: SHARED_TOKENS - 1], 99, 98)]) == 0
