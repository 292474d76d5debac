"""The preset laptop as a whole, with the tokenizer of `make smollm2` and three models.

One is SmolLM2-135M-Instruct itself. One is SmolLM2 with two of its thirty layers and its own chat
template; it starts from little, so it is taught faster and may know less. The third has the
architecture and the official chat template of Qwen2.5, and random weights.

Invariants: the warm start brings texts that are tasks; both policies are asked through their own
template; an epoch measures, writes, attempts, and ends with a checkpoint of each policy; the same
command again computes nothing.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

from flows.planner import plan_run
from genenv_core.config.load import resolve
from genenv_core.config.schema import RunConfig
from genenv_core.config.stages import WARM_STARTS
from genenv_core.exchange.given_models import SMOLLM2
from genenv_core.play.chat import ChatFormat
from genenv_core.storage.records.manifest import Manifest
from tests.pipeline.builders import manifests, run, sql
from tests.proof.changes import REPOSITORY

MODEL = REPOSITORY / "models" / SMOLLM2

SHORT = ("tracking.enabled=false", "data.test_tasks=12", "data.validation_tasks=6")

SETTINGS = (
    *SHORT,
    "warm_start.learning_rate=1e-3",
    "warm_start.steps=24",
    "warm_start.round_steps=12",
    "warm_start.agent_target=0.05",
    "warm_start.env_target=0.2",
)


@pytest.fixture
def cut(tmp_path: Path) -> Path:
    """Return a folder with SmolLM2's files, but for all layers above the second."""
    folder = tmp_path / SMOLLM2
    shutil.copytree(MODEL, folder, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
    model = AutoModelForCausalLM.from_pretrained(MODEL, num_hidden_layers=2)
    model.save_pretrained(folder)
    return folder


@pytest.fixture
def qwen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the model that docs/first-model.md makes: a small Qwen2 of random weights, no BOS."""
    folder = tmp_path / "Qwen2-shaped"
    page = (REPOSITORY / "docs" / "first-model.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    monkeypatch.setattr(sys, "argv", ["made_model.py", str(MODEL), str(folder)])
    exec(compile(script, "made_model.py", "exec"), {"__name__": "__main__"})
    return folder


def played(config: RunConfig, model: Path) -> dict[tuple[int, str], Manifest]:
    """Run it; assert that the model was taught, asked by its template and trained, once."""
    run(config)
    found = manifests(config)
    told = found[0, "warm_start"].facts[WARM_STARTS]
    assert told["env"]["reached"] > 0
    tasks = sql(config, "SELECT prompt FROM tasks WHERE choice <> 'not_chosen' AND epoch = 1")
    assert len(tasks) and tasks["prompt"].str.contains(r"^\d+( [+-] \d+){1,3} =$").all()
    read = ChatFormat.load(model).decode(sql(config, "FROM trace_tokens LIMIT 1")["prompt_ids"][0])
    assert read.startswith("system\nAnswer with the number alone.\nuser\n")
    assert read.endswith(" =\nassistant\n")
    assert {"grpo_update", "rwr_update"} <= {stage for _, stage in found}
    assert {entry.status for entry in plan_run(config)} == {"hit"}
    return found


@pytest.mark.slow
def test_a_model_of_another_family_and_template_plays_by_the_same_words(
    api: None, qwen: Path, tmp_path: Path
) -> None:
    models = [f"models.{policy}={qwen}" for policy in ("agent", "env")]
    lessons = ["warm_start.learning_rate=1e-2", "warm_start.steps=48"]
    fields = {"root": str(tmp_path / "root"), "run_id": "other", "epochs": 1}
    config = resolve("laptop", overrides=[*SETTINGS, *models, *lessons], fields=fields)
    played(config, qwen)


@pytest.mark.slow
def test_the_preset_laptop_plays(api: None, cut: Path, tmp_path: Path) -> None:
    models = [f"models.{policy}={cut}" for policy in ("agent", "env")]
    fields = {"root": str(tmp_path / "root"), "run_id": "real", "epochs": 1}
    config = resolve("laptop", overrides=[*SETTINGS, *models], fields=fields)
    found = played(config, cut)
    assert found[1, "evaluate"].facts["test"].keys() >= {"sampled", "greedy", "answer_probability"}


@pytest.mark.slow
def test_the_pretrained_model_co_evolves(api: None, tmp_path: Path) -> None:
    """It begins with `reached` shares of right answers and of valid texts, and an epoch moves it.

    The targets are those of the preset, so few steps reach them.
    """
    models = [f"models.{policy}={MODEL}" for policy in ("agent", "env")]
    fields = {"root": str(tmp_path / "root"), "run_id": "real", "epochs": 1}
    config = resolve("laptop", overrides=[*SHORT, *models], fields=fields)
    found = played(config, MODEL)
    told = found[0, "warm_start"].facts[WARM_STARTS]
    for policy, target in (("agent", 0.35), ("env", 0.6)):
        assert told[policy]["reached"] >= target and told[policy]["steps"] < config.warm_start.steps
    assert 0 < sql(config, "SELECT p_hat FROM epochs WHERE epoch = 1")["p_hat"][0] < 1
