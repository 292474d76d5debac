"""Opening checkpoints: the registry stays light; an error names a damaged directory's fault."""

from __future__ import annotations

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from genenv_core.config.sections.compute import ExecutionConfig
from genenv_core.config.sections.unions.compute import TransformersCompute
from genenv_core.engines.protocol import EngineSetup, open_engine
from genenv_core.engines.transformers.engine import TransformersEngine
from genenv_core.errors import ModelError
from genenv_core.types import SampleRequest, SamplingParams
from tests.unit.builders_engine import tiny_config, write_checkpoint
from tests.waiting import BOUND_S


def test_a_checkpoint_opens_through_the_registry(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "agent")
    engine = open_engine(
        EngineSetup(
            checkpoint=checkpoint,
            digest="",
            compute=TransformersCompute(),
            execution=ExecutionConfig(),
            top_p=1.0,
            durable=lambda: tmp_path,
            check=lambda: None,
        )
    )
    requests = [SampleRequest((5, 6, 7), seed) for seed in range(3)]
    answers = engine.sample(requests, SamplingParams(max_tokens=5))
    assert [len(answer.token_ids) for answer in answers] == [5, 5, 5]


def test_unusable_checkpoints_say_what_is_wrong(tmp_path: Path) -> None:
    def load(directory: Path) -> None:
        TransformersEngine.load(directory, threads=1)

    with pytest.raises(ModelError, match=r"config\.json"):
        load(tmp_path / "nowhere")
    whole = write_checkpoint(tmp_path / "whole")
    empty = Path(shutil.copytree(whole, tmp_path / "empty"))
    (empty / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="safetensors"):
        load(empty)
    torn = Path(shutil.copytree(whole, tmp_path / "torn"))
    data = (torn / "model.safetensors").read_bytes()
    (torn / "model.safetensors").write_bytes(data[: len(data) // 2])
    with pytest.raises(ModelError, match="cannot be loaded"):
        load(torn)
    # One layer more in the configuration than in the weights.
    deeper = Path(shutil.copytree(whole, tmp_path / "deeper"))
    tiny_config(vocab_size=163, num_hidden_layers=4).save_pretrained(deeper)
    with pytest.raises(ModelError, match=r"missing.*layers\.3"):
        load(deeper)


@pytest.mark.slow
def test_models_with_tied_weights_load_side_by_side(tmp_path: Path) -> None:
    import torch

    from genenv_core.engines.transformers.loading import load_model

    checkpoint = write_checkpoint(tmp_path / "agent", tie_word_embeddings=True)
    with ThreadPoolExecutor(3) as threads:
        loads = [threads.submit(load_model, checkpoint, dtype=torch.float32) for _ in range(30)]
        models = [load.result() for load in loads]
    assert all(model.lm_head.weight is model.get_input_embeddings().weight for model in models)


def test_importing_the_registry_imports_no_torch() -> None:
    code = "import sys, genenv_core.engines.protocol as r; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=BOUND_S)
