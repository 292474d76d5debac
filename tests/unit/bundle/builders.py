"""A small bundle, of stages that the real writers wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from genenv_core.bundle.cards import card_files
from genenv_core.bundle.contents import Contents
from genenv_core.bundle.statement import Facts, given_to
from genenv_core.config.load import dump, resolve
from genenv_core.config.until import Until, stages_of
from genenv_core.storage.records.artifacts import ArtifactWriter
from genenv_core.storage.records.keys import key_parts, stage_key
from genenv_core.storage.records.manifest import Manifest
from genenv_core.storage.store.local import LocalStore
from tests.unit.builders_runs import POLICY_OF, rows_of

MACHINE = {"python": "3.11.9", "processor": "Xeon", "capability": "AVX512", "machine": "x86_64"}
SUMMARY = {"heldout_success": 0.5, "heldout_success_greedy": 0.25, "validation_success": 0.75}
TABLES = {"bootstrap": (), "rollout": ("traces",), "evaluate": ("evaluations",)}


def small_contents(root: Path, *overrides: str, given: str | None = None) -> Contents:
    """Return the bundle of a run of one epoch; `given` is the digest of a given pi_agent."""
    store = LocalStore(root)
    model = ["models.agent=./mine"] if given else []
    config = resolve("tiny", overrides=[*model, *overrides], fields={"epochs": 1, "run_id": "r"})
    values = {name: value for name, value in dump(config).items() if name != "root"}
    stages = {place: _stage(store, *place, given) for place in stages_of(config)}
    facts = Facts(
        run_id="r",
        seed=0,
        epochs=1,
        until=Until(stage="publish", epoch=1),
        started="2026-11-24T04:47:37Z",
        finished="2026-11-24T04:48:00Z",
        version="0.1.0",
        commit="",
        keys={place: one.key for place, one in stages.items()},
        given=given_to(stages),
        packages={"torch": "2.13.0+cpu", "polars": "2.1.0"},
    )
    files = {
        "code/genenv_core/a.py": b"X = 1  # one\n",
        "plugin/mine.py": b"Y = 1\n",
        "locks/installed.txt": b"torch==2.13.0\n",
        **card_files(store, values, stages),
    }
    return Contents(facts, values, stages, dict(MACHINE), files)


def _stage(store: LocalStore, epoch: int, stage: str, given: str | None) -> Manifest:
    inputs: dict[str, Any] = {"agent": f"{'a' * 64}@0", "env": f"{'e' * 64}@0"}
    if stage == "bootstrap":
        inputs = {"agent_model": given, "base_file": None}
    parts = key_parts(
        stage=stage,
        code="c",
        config={"compute.threads": 1},
        inputs=inputs,
        seed=0,
        epoch=epoch,
        runtime={},
    )
    writer = ArtifactWriter(store, stage, parts, stage_key(parts))
    for table in TABLES.get(stage, ()):
        writer.table(table, rows_of(table, 1))
    for policy in ("agent", "env") if stage == "bootstrap" else (POLICY_OF.get(stage),):
        if policy:
            folder = store.scratch()
            (folder / "model.safetensors").write_bytes(f"{policy} {epoch}".encode() * 9)
            (folder / "config.json").write_text(
                json.dumps({"architectures": ["LlamaForCausalLM"], "hidden_size": 48})
            )
            writer.checkpoint(policy, folder)
    published = {"agent": True, "env": epoch == 0}
    facts = {"published": published, "summary": SUMMARY} if stage == "publish" else {}
    return writer.commit({**facts, "steps": 2})[0]
