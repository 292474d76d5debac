"""The transformers engine on other architectures than the embedded one.

Invariants: mixed prompt lengths share a batch only where this is tested; every architecture gives
the logprobs of a plain forward pass and the same tokens alone as in a batch.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from genenv_core.engines.transformers.kv_cache import supports_padding
from tests.examples import some
from tests.mutations import mutation
from tests.unit.builders_engine import (
    PARAMS,
    VOCAB_SIZE,
    assert_close_to_forward,
    engine_of,
    random_prompts,
    requests_of,
)

KV_CACHE = "genenv_core/engines/transformers/kv_cache.py"

SMALL = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "initializer_range": 0.3,
}


SMALL_MODELS: dict[str, Callable[[], torch.nn.Module]] = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SMALL)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SMALL, head_dim=8)),
    "mistral": lambda: MistralForCausalLM(MistralConfig(**SMALL, sliding_window=None)),
    "mistral_sliding": lambda: MistralForCausalLM(MistralConfig(**SMALL, sliding_window=8)),
    "llama_dynamic_rope": lambda: LlamaForCausalLM(
        LlamaConfig(
            **{**SMALL, "max_position_embeddings": 64},
            rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0},
        )
    ),
    "phi3_longrope": lambda: Phi3ForCausalLM(
        Phi3Config(
            **SMALL,
            pad_token_id=0,
            original_max_position_embeddings=40,
            rope_parameters={
                "rope_type": "longrope",
                "rope_theta": 10000.0,
                "short_factor": [1.0] * 4,
                "long_factor": [4.0] * 4,
            },
        )
    ),
    "gpt2": lambda: GPT2LMHeadModel(
        GPT2Config(vocab_size=VOCAB_SIZE, n_embd=32, n_layer=2, n_head=4, n_positions=128)
    ),
}
"""The padded architectures, a sliding window, learned positions."""


@mutation(
    "dynamic angles are padded", KV_CACHE, '"default", "linear",', '"default", "dynamic", "linear",'
)
@mutation(
    "texts go on beyond the angles that their first tokens have",
    "genenv_core/engines/transformers/engine.py",
    "min(most, steady_positions(config) or most)", "most",
    by="unit/engines/test_engine_architectures.py::test_other_architectures[phi3_longrope]",
)  # fmt: skip
@pytest.mark.parametrize(
    "name", some(SMALL_MODELS, ("llama_dynamic_rope", "phi3_longrope", "gpt2"))
)
def test_other_architectures(name: str) -> None:
    torch.manual_seed(0)
    model = SMALL_MODELS[name]().eval()
    assert supports_padding(model) is (name in ("llama", "qwen3", "mistral"))
    prompts = random_prompts(5, shortest=3, longest=30)
    requests = requests_of([*prompts, prompts[0][:5], prompts[1][:5]], samples=2)
    engine = engine_of(model)
    answers = engine.sample(requests, PARAMS)
    assert len({answer.token_ids for answer in answers}) > len(answers) // 2
    alone = [engine.sample([request], PARAMS)[0] for request in requests[::3]]
    assert [answer.token_ids for answer in alone] == [answer.token_ids for answer in answers[::3]]
    assert_close_to_forward(model, requests, answers)
