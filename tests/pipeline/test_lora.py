"""A whole co-evolution that trains adapters.

Invariants: each published checkpoint is the first one's weights, stored once, and its own adapter;
later epochs train and sample with it; the same command again computes nothing; the root is sound;
gradient checkpointing changes no result and no key, the rank changes both.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from flows.planner import plan_run
from genenv_core.storage.store.local import LocalStore
from genenv_core.storage.upkeep.verify import verify
from tests.pipeline.builders import computed, manifests, run, states, tiny

LORA = ("training.lora.rank=4", "training.lora.alpha=8", "grpo.learning_rate=1e-2")
WEIGHTS, ADAPTER = "model.safetensors", "adapter_model.safetensors"


@pytest.mark.slow
def test_a_run_with_adapters_stores_the_base_once(
    begun: Callable[[Path], None], tmp_path: Path
) -> None:
    begun(tmp_path / "root")
    config = tiny(tmp_path / "root", *LORA, run_id="lora")
    run(config)
    found = manifests(config)
    for stage, policy in (("grpo_update", "agent"), ("rwr_update", "env")):
        base = {part.name: part.sha256 for part in found[(0, "bootstrap")].of_checkpoint(policy)}
        adapters: set[str] = set()
        for epoch in (1, 2):
            parts = {p.name: p.sha256 for p in found[(epoch, stage)].of_checkpoint(policy)}
            assert {name: parts[name] for name in base} == base
            adapters.add(parts[f"{policy}/{ADAPTER}"])
        assert len(adapters) == 2
        assert f"{policy}/{ADAPTER}" not in base and f"{policy}/{WEIGHTS}" in base
    before = states(config)
    run(config)
    assert computed(states(config)[len(before) :]) == set()
    assert verify(LocalStore(Path(config.root))).damaged == []
    same = tiny(tmp_path / "root", *LORA, "execution.gradient_checkpointing=full", run_id="lora")
    assert {entry.status for entry in plan_run(same)} == {"hit"}
    other = tiny(tmp_path / "root", *LORA[1:], "training.lora.rank=2", run_id="lora")
    changed = {entry.stage: entry.changed for entry in plan_run(other) if entry.status == "miss"}
    assert changed.keys() == {"grpo_update", "rwr_update"}
    assert changed["grpo_update"] == ("config.training.lora.rank 4 -> 2",)


@pytest.mark.slow
def test_the_kl_of_pi_agent_may_be_to_the_first_one(api, tiny_root):
    """One step an update: a KL to the start would be 0 in both epochs."""
    settings = ("grpo.kl_coef=0.1", "grpo.kl_reference=bootstrap", "grpo.groups_per_step=8")
    config = tiny(tiny_root, *settings, "grpo.learning_rate=1e-3", run_id="pulled")
    run(config)
    found = manifests(config)
    updates = [found[epoch, "grpo_update"] for epoch in (1, 2)]
    assert [update.facts["steps"] for update in updates] == [1, 1]
    assert found[1, "publish"].facts["published"]["agent"]
    kl = [update.facts["metrics"]["kl"] for update in updates]
    assert kl[0] == pytest.approx(0, abs=1e-6) and kl[1] > 1e-4
    inputs = [update.key_parts["inputs"] for update in updates]
    assert {one["agent_initial"] for one in inputs} == {inputs[0]["agent"]}
    assert inputs[1]["agent"] != inputs[0]["agent"]
