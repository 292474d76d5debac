"""A whole co-evolution that trains adapters.

Invariants: each published checkpoint is the first one's weights, stored once, and its own adapter;
later epochs train and sample with it; the same command again computes nothing; the root is sound;
gradient checkpointing changes no result and no key, the rank changes both.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.planner import plan_run
from genenv_core.storage.store.local import LocalStore
from genenv_core.storage.upkeep.verify import verify
from tests.pipeline.builders import computed, manifests, run, states, tiny

LORA = ("training.lora.rank=4", "training.lora.alpha=8", "grpo.learning_rate=1e-2")
WEIGHTS, ADAPTER = "model.safetensors", "adapter_model.safetensors"


@pytest.mark.slow
def test_a_run_with_adapters_stores_the_base_once(tmp_path: Path, api: None) -> None:
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
