"""The preset laptop as a whole, with the real tokenizer and chat template of `make smollm2`.

The model has two of its thirty layers, so that a run takes minutes; it starts from little, so it is
taught faster and may know less.

Invariants: the warm start brings texts that are tasks; both policies are asked through their own
template; an epoch measures, writes, attempts, and ends with a checkpoint of each policy; the same
command again computes nothing.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

from flows.planner import plan_run
from genenv_core.config.load import resolve
from genenv_core.epoch.reached import WARM_STARTS
from genenv_core.exchange.given_models import SMOLLM2
from genenv_core.play.chat import ChatFormat
from tests.pipeline.builders import manifests, run, sql
from tests.proof.changes import REPOSITORY

MODEL = REPOSITORY / "models" / SMOLLM2

SETTINGS = (
    "tracking.enabled=false",
    "warm_start.learning_rate=1e-3",
    "warm_start.steps=24",
    "warm_start.round_steps=12",
    "warm_start.agent_target=0.05",
    "warm_start.env_target=0.2",
    "data.test_tasks=12",
    "data.validation_tasks=6",
)


@pytest.fixture
def cut(tmp_path: Path) -> Path:
    """Return a folder with SmolLM2's files, but for all layers above the second."""
    folder = tmp_path / SMOLLM2
    shutil.copytree(MODEL, folder, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
    model = AutoModelForCausalLM.from_pretrained(MODEL, num_hidden_layers=2)
    model.save_pretrained(folder)
    return folder


@pytest.mark.slow
def test_the_preset_laptop_plays(api: None, cut: Path, tmp_path: Path) -> None:
    models = [f"models.{policy}={cut}" for policy in ("agent", "env")]
    fields = {"root": str(tmp_path / "root"), "run_id": "real", "epochs": 1}
    config = resolve("laptop", overrides=[*SETTINGS, *models], fields=fields)
    run(config)
    found = manifests(config)
    told = found[0, "warm_start"].facts[WARM_STARTS]
    assert told["env"]["reached"] > 0
    tasks = sql(config, "SELECT prompt FROM tasks WHERE choice <> 'not_chosen' AND epoch = 1")
    assert len(tasks) and tasks["prompt"].str.contains(r"^\d+( [+-] \d+){1,3} =$").all()
    read = ChatFormat.load(cut).decode(sql(config, "FROM trace_tokens LIMIT 1")["prompt_ids"][0])
    assert read.startswith("system\nAnswer with the number alone.\nuser\n")
    assert read.endswith(" =\nassistant\n")
    assert found[1, "evaluate"].facts["test"].keys() >= {"sampled", "greedy", "answer_probability"}
    assert {"grpo_update", "rwr_update"} <= {stage for _, stage in found}
    assert {entry.status for entry in plan_run(config)} == {"hit"}
