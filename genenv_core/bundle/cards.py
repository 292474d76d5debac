"""Writes model cards of published checkpoints from a run's manifests alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from genenv_core import __version__
from genenv_core.config.stages import FIRST, LAST, WARM, WARM_STARTS, update_of
from genenv_core.engines.adapters import ADAPTER_WEIGHTS
from genenv_core.errors import NotFound
from genenv_core.storage.records.manifest import Manifest, first_maker
from genenv_core.storage.store.protocol import Store
from genenv_core.types import Policy

CARDS = "cards/"

Stages = Mapping[tuple[int, str], Manifest]

_SHAPE = {
    "hidden_size": "hidden size",
    "num_hidden_layers": "layers",
    "num_attention_heads": "attention heads",
    "vocab_size": "tokens in the vocabulary",
}
_RESULTS = {
    "validation_success": "success on validation tasks, sampled",
    "heldout_success": "success on test tasks, sampled",
    "heldout_success_greedy": "success on test tasks, greedy",
    "heldout_answer_probability": "probability of the answer on test tasks",
}


def card_files(store: Store, config: Mapping[str, Any], stages: Stages) -> dict[str, bytes]:
    """Return a card for each published checkpoint, by the name of its member."""
    template = _environment().get_template("card.md.j2")
    found: dict[str, bytes] = {}
    for epoch in sorted({number for number, stage in stages if stage == LAST}):
        published = stages[epoch, LAST].facts["published"]
        for policy in (one for one in Policy if published.get(one.value)):
            values = _values(store, config, stages, epoch, policy)
            name = f"{CARDS}{policy.value}-{epoch:05d}.md"
            found[name] = template.render(**values).encode()
    return found


def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("genenv_core.bundle", "."),
        autoescape=False,  # Markdown: no text of a model goes in
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _values(
    store: Store, config: Mapping[str, Any], stages: Stages, epoch: int, policy: Policy
) -> dict[str, Any]:
    stage = update_of(policy) if epoch else first_maker(stages[0, LAST])
    made = stages[epoch, stage]
    name = policy.value
    model, revision = str(config["models"][name]), config["models"][f"{name}_revision"]
    files = [p for p in made.of_checkpoint(name) if p.name.endswith(".safetensors")]
    summary = stages[epoch, LAST].facts["summary"]
    steps = _warm_steps(stages, policy)
    return {
        "policy": name,
        "run_id": config["run_id"],
        "arm": config["arm"],
        "seed": config["seed"],
        "domain": config["domain"]["name"],
        "epoch": epoch,
        "stage": stage,
        "key": made.key,
        "digest": made.checkpoint_digest(name),
        "version": __version__,
        "origin": _origin(stages, epoch, policy, model, steps),
        "given": model != "bootstrap",
        "base": model if revision else "",  # a place on a disk names no model elsewhere
        "architecture": _architecture(store, stages, policy),
        "adapter": any(p.name.endswith(ADAPTER_WEIGHTS) for p in files),
        "files": [(p.name.partition("/")[2], p.sha256, p.bytes) for p in files],
        "data": _data(stages, epoch, policy, given=model != "bootstrap", steps=steps),
        "results": [
            (words, summary[column])
            for column, words in _RESULTS.items()
            if policy is Policy.AGENT and summary.get(column) is not None
        ],
    }


def _warm_steps(stages: Stages, policy: Policy) -> int:
    """Return the supervised steps that a given model had before the game; 0 without any."""
    if first_maker(stages[0, LAST]) == FIRST:
        return 0
    told = stages[0, WARM].facts[WARM_STARTS].get(policy.value, {})
    return int(told.get("steps", 0))


def _origin(stages: Stages, epoch: int, policy: Policy, model: str, steps: int) -> str:
    """Return in words what the training of a checkpoint started from."""
    if epoch:
        parent = str(stages[epoch, update_of(policy)].key_parts["inputs"][policy.value])
        digest, _, version = parent.partition("@")
        return f"checkpoint `{digest}` of epoch {version}"
    if model == "bootstrap":
        return (
            "nothing: a tiny model with random weights, and a warm start by the domain's examples"
        )
    digest = stages[0, FIRST].key_parts["inputs"][f"{policy.value}_model"]
    taken = f"after {steps} supervised steps on examples" if steps else "taken over as it is"
    return f"the given model `{model}`, {taken} (genenvInput `{digest}`)"


def _architecture(store: Store, stages: Stages, policy: Policy) -> list[tuple[str, str]]:
    """Return what the first checkpoint's config.json says, which training does not change."""
    wanted = f"{policy.value}/config.json"
    part = next((p for p in stages[0, FIRST].parts if p.name == wanted), None)
    if part is None:
        return []
    try:
        values = json.loads(store.read(part.path))
    except (NotFound, ValueError):  # gc has collected it
        return []
    named = [("architecture", ", ".join(values.get("architectures") or ["unknown"]))]
    return named + [(words, str(values[n])) for n, words in _SHAPE.items() if n in values]


def _data(stages: Stages, epoch: int, policy: Policy, *, given: bool, steps: int) -> list[str]:
    """Return the training data up to an epoch, a line each; `steps` are those of a warm start."""
    if not epoch and given and not steps:
        return ["None in this run: the checkpoint is the given model."]
    lines = [] if given else ["Warm start: examples that the domain itself makes."]
    if given and steps:
        own = "examples" not in stages[0, WARM].key_parts["inputs"]
        source = (
            "that the domain itself makes"
            if own
            else "of a file or a stored run (warm_start.examples)"
        )
        lines.append(f"Warm start: {steps} optimizer steps on examples {source}.")
    stage = update_of(policy)
    updates = [stages[number, stage] for number in range(1, epoch + 1)]
    if updates:
        rows = sum(part.rows or 0 for one in updates for part in one.of_table("update_samples"))
        steps = sum(int(one.facts.get("steps", 0)) for one in updates)
        lines.append(f"{rows:,} rows in {steps:,} optimizer steps over epochs 1 to {epoch}.")
        attempts = sum(
            part.rows or 0
            for number in range(1, epoch + 1)
            for part in stages[number, "rollout"].of_table("traces")
        )
        lines.append(f"They are of {attempts:,} attempts that pi_agent made at tasks of pi_env.")
    base = stages[0, FIRST].facts.get("base_tasks")
    if base is not None:
        lines.append(f"{base:,} base tasks started the game.")
    return lines
