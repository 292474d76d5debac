"""Model cards of a bundle.

Invariants: each published checkpoint has one, and no other; a card names the run, the key, the
digest, the architecture, counts of training data and results, by the manifests; the licence of a
given model is said to be unknown.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.unit.bundle.builders import small_contents


def test_each_published_checkpoint_has_a_card(tmp_path: Path) -> None:
    held = small_contents(tmp_path)
    cards = {name for name in held.files if name.startswith("cards/")}
    # pi_env's candidate of epoch 1 was not published.
    assert cards == {f"cards/{name}.md" for name in ("agent-00000", "env-00000", "agent-00001")}
    text = held.files["cards/agent-00001.md"].decode()
    update = held.stages[1, "grpo_update"]
    for known in (
        update.key, update.checkpoint_digest("agent"), update.parts[1].sha256, "| `r`, genenv, 0 |",
        "LlamaForCausalLM", "| hidden size | 48 |", "in 2 optimizer steps", "greedy | 0.2500",
        f"checkpoint `{'a' * 64}` of epoch 0", "Not chosen",
    ):  # fmt: skip
        assert known in text, known
    assert "greedy" not in held.files["cards/env-00000.md"].decode()
    head = yaml.safe_load(text.split("---")[1])
    assert head["license"] == "unknown" and "base_model" not in head


def test_a_given_model_is_named_and_its_licence_unknown(tmp_path: Path) -> None:
    text = small_contents(tmp_path, given="d" * 64).files["cards/agent-00000.md"].decode()
    assert f"the given model `./mine`, taken over as it is (genenvInput `{'d' * 64}`)" in text
    assert "its licence is not recorded" in text
    assert "None in this run" in text


def test_a_model_of_the_hub_is_the_base(tmp_path: Path) -> None:
    commit = f"models.agent_revision={'a' * 40}"
    held = small_contents(tmp_path, "models.agent=Qwen/Qwen2.5-1.5B", commit, given="d" * 64)
    head = yaml.safe_load(held.files["cards/agent-00001.md"].decode().split("---")[1])
    assert (head["base_model"], head["base_model_relation"]) == ("Qwen/Qwen2.5-1.5B", "finetune")
