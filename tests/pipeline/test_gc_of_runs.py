"""A real run that is collected and compacted, and then started again.

Invariants: a run that ends has merged its files. After `genenv gc`, and after `genenv compact` and
another gc, the same command and the same configuration under another name compute nothing; the
tables are equal; the root is whole. A run that removes its old weights itself can be repeated,
continued and measured, and says what went.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from flows.cli.app import app
from genenv_core.config.schema import RunConfig
from genenv_core.errors import Retired
from genenv_core.storage import paths
from genenv_core.storage.records.artifacts import Artifacts
from genenv_core.storage.store.local import LocalStore
from genenv_core.storage.upkeep.verify import verify
from schemas.registry import TABLES
from tasks.stage.progress import Event, listening
from tests.pipeline.builders import MEASURED, computed, manifests, run, sql, states, tiny
from tests.unit.builders_runs import age


def asked(*arguments: str) -> dict:
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.output)


def collected(root: Path) -> dict[str, int]:
    """Make every file old and collect garbage; returns the number of removed files by kind."""
    age(LocalStore(root))
    answer = asked("gc", "--root", str(root), "--keep-checkpoints", "1")
    assert answer["dry_run"] is False
    assert not any(os.path.exists(root / path) for path in answer["paths"])
    assert verify(LocalStore(root)).damaged == []
    return {kind: found["count"] for kind, found in answer["kinds"].items() if found["count"]}


def computes_nothing(config: RunConfig, name: str) -> None:
    """Assert that this run, and an equal one under a new name, compute no stage."""
    ends: list[tuple[int, str, str]] = []

    def listener(event: Event) -> None:
        if event.kind == "finished":
            ends.append((event.epoch, event.stage, event.state))

    history = states(config)
    with listening(listener):
        run(config)
    assert states(config) == history
    assert {(epoch, stage) for epoch, stage, _ in ends} == computed(history)
    assert {state for _, _, state in ends} == {"cached"}
    again = config.model_copy(update={"run_id": name})
    run(again)
    assert {(epoch, stage) for epoch, stage, _ in states(again)} == computed(history)
    assert {state for _, _, state in states(again)} == {"cached"}


def tables(config: RunConfig) -> dict[str, pl.DataFrame]:
    names = sorted(set(TABLES) - {"stage_runs", "runs", "epochs"})
    found = {name: sql(config, f"FROM {name}") for name in names}
    return {name: frame.sort(frame.columns[:6]) for name, frame in found.items()}


@pytest.mark.slow
def test_a_run_that_was_collected_and_compacted_computes_nothing(api: None, tmp_path: Path) -> None:
    root = tmp_path / "root"
    config = tiny(root, run_id="kept")
    run(config)
    assert {state for _, _, state in states(config)} == {"computed"}
    before = tables(config)
    empty = {name for name, frame in before.items() if frame.is_empty()}
    # desk executes its tools, and nothing measures what groups teach
    assert empty == {"observations", "influence", "trace_sequences", *MEASURED}
    (root / "tmp" / "left").mkdir()
    orphan = root / "parts" / "00" / ("0" * 64)
    orphan.parent.mkdir(exist_ok=True)
    orphan.write_bytes(b"orphan")

    went = collected(root)
    assert went["weights"] > 0  # epoch 1's: the replay does without them
    assert (went["parts"], went["temporary"]) == (1, 1)
    computes_nothing(config, "after-gc")

    store = LocalStore(root)
    (segment,) = store.list(paths.segments("kept"))  # which the run wrote at its end
    assert asked("compact", "--root", str(root))["kept"]["segments"] == 0
    store.delete(segment)
    merged = asked("compact", "--root", str(root))
    assert merged["kept"]["segments"] == 1 and merged["kept"]["merged"] > 10
    collected(root)
    computes_nothing(config, "after-compaction")
    for name, frame in tables(config).items():
        assert frame.equals(before[name]), name
    shutil.rmtree(root)


@pytest.mark.slow
def test_a_run_that_keeps_few_weights_goes_on_and_is_whole(api: None, tmp_path: Path) -> None:
    config = tiny(tmp_path / "r", "execution.keep_checkpoints=1", epochs=3, run_id="few")
    told: list[str] = []
    with listening(lambda event: told.append(event.message) if event.kind == "disk" else None):
        run(config)
    store = LocalStore(Path(config.root))
    made = manifests(config)
    best = max((e for e in (1, 2, 3) if made[e, "publish"].facts["is_best"]), default=0)
    wanted = {0, best, 3}
    assert {epoch for epoch in range(4) if _has_weights(config, epoch)} >= wanted
    went = [epoch for epoch in (1, 2) if epoch != best and not _has_weights(config, epoch)]
    assert went and told and "execution.keep_checkpoints 1" in told[-1]
    assert verify(store).damaged == []
    computes_nothing(config, "again")
    longer = config.model_copy(update={"epochs": 4})
    run(longer)
    assert _has_weights(longer, 4) and {0, best} <= {
        e for e in (0, best) if _has_weights(longer, e)
    }
    with pytest.raises(Retired, match=r"`genenv gc --restore RUN`"):
        _load(longer, went[0])


def _has_weights(config: RunConfig, epoch: int) -> bool:
    try:
        _load(config, epoch)
    except Retired:
        return False
    return True


def _load(config: RunConfig, epoch: int) -> Path:
    stage = "grpo_update" if epoch else "bootstrap"
    return Artifacts(LocalStore(Path(config.root))).checkpoint(
        manifests(config)[epoch, stage], "agent"
    )
