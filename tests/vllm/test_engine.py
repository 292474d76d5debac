"""The engine `vllm` on a real vLLM server.

Invariants: logprobs are those of transformers on the same tokens, at each temperature and greedily;
a request's tokens depend on its prompt and seed, also as one of `n`; a bad request fails alone; a
server that is killed or hangs is started anew and nothing is missing; whole weights and adapters
are loaded into a running server, and its answers are theirs; memory is freed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest
import torch

from genenv_core.config.sections.compute import VllmServing
from genenv_core.engines.transformers.gap import Sampled, logprob_gap
from genenv_core.engines.transformers.loading import load_model
from genenv_core.engines.transformers.scoring import ScoringArithmetic
from genenv_core.engines.vllm.engine import VllmEngine
from genenv_core.engines.vllm.server import VllmServer, VllmSetup, interpreter, server_command
from genenv_core.errors import EngineError
from genenv_core.types import Completion, FinishReason, SampleRequest, SamplingParams
from tests.unit.builders_engine import EOS_ID, random_prompts, requests_of
from tests.vllm.conftest import CONFIG, processes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]

TOLERANCE = 1e-3
"""Largest difference of one logprob from transformers', nats, both in float32."""

SAME_TOKENS = 0.9
"""Share of completions that are equal token by token in another batch: rounding may flip one."""

PARAMS = SamplingParams(max_tokens=40, stop_token_ids=(EOS_ID,))


def requests(count: int, samples: int = 1) -> list[SampleRequest]:
    prompts = [
        [token % 150 + 2 for token in p] for p in random_prompts(count, shortest=5, longest=40)
    ]
    return requests_of(prompts, samples)


def api_server(engine: VllmEngine) -> int:
    assert engine.server_pid is not None
    [server] = psutil.Process(engine.server_pid).children()
    return server.pid


def gap_of(
    checkpoint: Path,
    asked: Sequence[SampleRequest],
    answers: Sequence[Completion],
    temperature: float,
) -> float:
    rows = [
        Sampled(r.prompt_ids, a.token_ids, a.logprobs, [1] * len(a.token_ids))
        for r, a in zip(asked, answers, strict=True)
    ]
    gap = logprob_gap(checkpoint, rows, temperature=temperature, arithmetic=ScoringArithmetic(1))
    assert gap is not None and gap.tokens > 100
    print(f"temperature {temperature:g}: {gap}")
    return gap.largest


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_are_those_of_transformers(
    engine: VllmEngine, checkpoints: list[Path], temperature: float
) -> None:
    asked = requests(16, samples=4)
    params = SamplingParams(40, temperature, stop_token_ids=(EOS_ID,))
    answers = engine.sample(asked, params)
    assert not [answer.error for answer in answers if answer.error]
    assert gap_of(checkpoints[0], asked, answers, temperature) < TOLERANCE
    for answer in answers:
        stopped = answer.token_ids[-1] == EOS_ID
        assert EOS_ID not in answer.token_ids[:-1]
        assert answer.finish_reason is (FinishReason.STOP if stopped else FinishReason.LENGTH)
        assert stopped or len(answer.token_ids) == 40
    assert {answer.finish_reason for answer in answers} == {FinishReason.STOP, FinishReason.LENGTH}


def test_greedy_is_the_likeliest_token_with_logprobs_at_temperature_one(
    engine: VllmEngine, checkpoints: list[Path]
) -> None:
    asked = requests(8)
    answers = engine.sample(asked, SamplingParams(20, 0.0, stop_token_ids=(EOS_ID,)))
    assert gap_of(checkpoints[0], asked, answers, 1.0) < TOLERANCE
    model = load_model(checkpoints[0], dtype=torch.float32)
    for request, answer in zip(asked, answers, strict=True):
        ids = torch.tensor([[*request.prompt_ids, *answer.token_ids]])
        with torch.inference_mode():
            logits = model(ids).logits[0, len(request.prompt_ids) - 1 : -1]
        chosen = logits.gather(1, ids[0, len(request.prompt_ids) :, None])[:, 0]
        assert bool((logits.max(-1).values - chosen < 1e-3).all())


def test_tokens_belong_to_prompt_and_seed(engine: VllmEngine) -> None:
    asked = requests(12, samples=4)  # seeds rise within a prompt, so that each four share a request
    together = engine.sample(asked, PARAMS)
    alone = [future.result() for future in [engine.submit(r, PARAMS) for r in asked]]
    backwards = engine.sample(asked[::-1], PARAMS)[::-1]
    for other in (alone, backwards, engine.sample(asked, PARAMS)):
        same = [a.token_ids == b.token_ids for a, b in zip(together, other, strict=True)]
        assert sum(same) >= SAME_TOKENS * len(same)
    assert len({answer.token_ids for answer in together}) > 40


def test_a_bad_request_fails_alone(engine: VllmEngine) -> None:
    good = requests(2)
    bad = [SampleRequest((10**6,), 1), SampleRequest(tuple([3] * 600), 1)]
    answers = engine.sample([good[0], *bad, good[1]], PARAMS)
    reasons = [answer.finish_reason is FinishReason.ERROR for answer in answers]
    assert reasons == [False, True, True, False]
    assert "400" in answers[1].error and "600 tokens" in answers[2].error


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "hung"])
def test_a_lost_server_is_started_anew(
    engine: VllmEngine, checkpoints: list[Path], number: signal.Signals
) -> None:
    asked = requests(64, samples=8)
    before = engine.sample(asked, PARAMS)
    members, server = processes(engine.server_pid), api_server(engine)
    blow = threading.Timer(0.2, os.kill, (server, number))
    blow.start()
    after = engine.sample(asked, PARAMS)
    blow.join()
    assert api_server(engine) != server
    assert not [p for p in members if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    assert not [answer.error for answer in after if answer.error]
    same = [a.token_ids == b.token_ids for a, b in zip(before, after, strict=True)]
    assert sum(same) >= SAME_TOKENS * len(same)
    assert gap_of(checkpoints[0], asked[:64], after[:64], 1.0) < TOLERANCE


@pytest.fixture(scope="module")
def elsewhere(
    checkpoints: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VllmServer]:
    """Run a server as another team would: it serves the first model under its own name."""
    log = tmp_path_factory.mktemp("log") / "vllm.log"
    config = CONFIG.model_copy(
        update={"arguments": (*CONFIG.arguments, "--enable-lora", "--max-lora-rank=8")}
    )
    how = server_command(
        checkpoints[0],
        "base",
        config,
        python=interpreter(None),
        logprobs_mode="processed_logprobs",
        log=log,
    )
    server = VllmServer(how)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_SERVER_DEV_MODE", "1")
        patch.setenv("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "1")
        server.start()
    yield server
    server.stop(15)


def engine_at(server: VllmServer, checkpoint: Path, name: str) -> VllmEngine:
    os.environ["GENENV_VLLM_API_KEY"] = server.key
    serving = VllmServing(urls=(server.url,), lost_seconds=900, retries=1, backoff_seconds=0.1)
    return VllmEngine(checkpoint, VllmSetup(name, CONFIG, serving, Path("/nowhere")))


def test_weights_get_into_a_server_that_runs(
    elsewhere: VllmServer, checkpoints: list[Path]
) -> None:
    asked = requests(8, samples=4)
    for name, checkpoint in (("genenv-a", checkpoints[0]), ("genenv-b", checkpoints[1])):
        engine = engine_at(elsewhere, checkpoint, name)
        try:
            assert gap_of(checkpoint, asked, engine.sample(asked, PARAMS), 1.0) < TOLERANCE
        finally:
            engine.close()
    # Two at once: the first one notices that the weights are no longer its own.
    first = engine_at(elsewhere, checkpoints[0], "genenv-a")
    second = engine_at(elsewhere, checkpoints[1], "genenv-b")
    try:
        assert gap_of(checkpoints[1], asked, second.sample(asked, PARAMS), 1.0) < TOLERANCE
        with pytest.raises(EngineError, match="answers for the model 'genenv-b', and 'genenv-a'"):
            first.sample(asked, PARAMS)
    finally:
        first.close()
        second.close()


def add_adapter(checkpoint: Path, adapters: Path) -> None:
    """Write a LoRA adapter in training's format that changes the checkpoint's answers."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    model = get_peft_model(
        load_model(checkpoint, dtype=torch.float32),
        LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False),
    )
    model.save_pretrained(adapters)
    config = json.loads((adapters / "adapter_config.json").read_text("utf-8"))
    config["base_model_name_or_path"] = None
    (adapters / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")


@pytest.fixture
def adapted(checkpoints: list[Path], tmp_path: Path) -> Path:
    """Return a checkpoint as LoRA training makes it: the base's files and an adapter."""
    folder = tmp_path / "adapted"
    shutil.copytree(checkpoints[0], folder)
    add_adapter(checkpoints[0], folder)
    return folder


def test_a_checkpoint_with_an_adapter_is_served_with_it(
    adapted: Path, checkpoints: list[Path], tmp_path: Path
) -> None:
    asked = requests(8, samples=4)
    log = tmp_path / "log" / "vllm.log"
    engine = VllmEngine(adapted, VllmSetup("genenv-adapted", CONFIG, VllmServing(), log))
    try:
        answers = engine.sample(asked, PARAMS)
    finally:
        engine.close()
    assert gap_of(adapted, asked, answers, 1.0) < TOLERANCE
    assert gap_of(checkpoints[0], asked, answers, 1.0) > 0.1


def test_adapters_get_into_a_server_that_runs(
    elsewhere: VllmServer, checkpoints: list[Path], adapted: Path
) -> None:
    asked = requests(8, samples=4)
    # The server's own weights have to be the base again.
    engine_at(elsewhere, checkpoints[0], "genenv-a").close()
    engine = engine_at(elsewhere, adapted, "genenv-lora")
    try:
        answers = engine.sample(asked, PARAMS)
    finally:
        engine.close()
    assert gap_of(adapted, asked, answers, 1.0) < TOLERANCE
