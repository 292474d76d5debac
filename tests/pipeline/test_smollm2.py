"""SmolLM2-135M-Instruct, a pretrained chat model, as `make smollm2` writes it.

Invariants: its weights are the same everywhere; the probe says what its template lacks; it answers
a question as an instruct model does; updates of it leave no memory behind.
"""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from genenv_core.canonical import file_sha256
from genenv_core.engines.transformers.engine import TransformersEngine
from genenv_core.play.chat import ChatFormat
from genenv_core.training.updates.table import run_update
from genenv_core.types import Message, Policy, SampleRequest, SamplingParams
from tests.proof.changes import REPOSITORY
from tests.unit.training.builders_training import grpo_of, grpo_rows, load, rwr_of, rwr_rows

pytestmark = pytest.mark.slow

MODEL = REPOSITORY / "models" / "SmolLM2-135M-Instruct"
WEIGHTS_SHA256 = "a672150fb4f99d7c8f4168cecdd464069c0ef3a37d8113f22ddb9d48031d03cd"
WEIGHTS_BYTES = 538e6


def test_the_weights_are_the_same_everywhere() -> None:
    assert file_sha256(MODEL / "model.safetensors") == WEIGHTS_SHA256


def test_the_probe_names_what_the_template_lacks() -> None:
    """The official template of SmolLM2 drops tools in silence."""
    probe = ChatFormat.load(MODEL).probe(Policy.AGENT)
    assert "tools and the form of a call: written into the system message" in str(probe)


def test_it_answers_as_an_instruct_model_does() -> None:
    chat = ChatFormat.load(MODEL)
    question: list[Message] = [{"role": "user", "content": "What is the capital of France?"}]
    engine = TransformersEngine.load(MODEL, threads=1)
    params = SamplingParams(16, temperature=0.0, stop_token_ids=chat.stop_token_ids)
    (answer,) = engine.sample([SampleRequest(chat.first_prompt(question, []), seed=0)], params)
    engine.close()
    assert "Paris" in chat.said(answer.token_ids)


def test_updates_leave_no_memory_behind(tmp_path: Path) -> None:
    """Each update that stayed in memory was about four models: the kernel killed the fourth epoch.

    The two losses take turns. After the first of both, what the process holds is level.
    """
    rows = grpo_rows(1, 4, sampler=load(MODEL))
    requests = [
        grpo_of(tmp_path, "grpo", rows, MODEL, learning_rate=1e-6, passes=1),
        rwr_of(tmp_path, "rwr", rwr_rows(4), MODEL, MODEL, steps=1, learning_rate=1e-6),
    ]
    held: list[int] = []
    for request in requests * 3:
        run_update(request)
        held.append(psutil.Process().memory_full_info().uss)
    assert max(held[2:]) - min(held[2:]) < WEIGHTS_BYTES / 2, held
