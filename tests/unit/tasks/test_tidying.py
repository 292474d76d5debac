"""What a run does for its disk at the end of an epoch, and at its own end.

Invariants: whole weights go where the configuration says so, and adapters stay; what went is told;
a failure is a warning, also of merging small files at the end of a run.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from genenv_core.config.load import resolve
from genenv_core.config.schema import RunConfig
from genenv_core.errors import IntegrityError, StorageError
from genenv_core.storage.records.artifacts import Artifacts
from genenv_core.storage.store.local import LocalStore
from genenv_core.storage.upkeep.collected import Collectable, Collected
from tasks.stage.progress import listening
from tasks.upkeep import tidying
from tests.mutations import mutation

TIDYING = "tasks/upkeep/tidying.py"

KEEP = "execution.keep_checkpoints=2"


def asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *overrides: str, answer: Any = None
) -> tuple[list[Any], list[str]]:
    """Return what was asked of the collection at the end of epoch 5, and what was told."""
    calls: list[Any] = []
    told: list[str] = []

    def collect(store: Any, run: str, keep: int, now: Any, *, until: int) -> Collected:
        calls.append((run, keep, until))
        if answer:
            raise answer
        return Collected({"weights": Collectable(2, 3_000_000_000)})

    monkeypatch.setattr(tidying, "collect_superseded", collect)
    config: RunConfig = resolve("tiny", overrides=overrides, fields={"run_id": "r"})
    with listening(lambda event: told.append(event.message)):
        tidying.drop_superseded(config, 5, Artifacts(LocalStore(tmp_path)))
    return calls, told


def test_whole_weights_go_where_the_configuration_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls, (line,) = asked(monkeypatch, tmp_path, KEEP)
    assert calls == [("r", 2, 5)]
    assert line.startswith("epoch 5: ") and "3.00 GB (execution.keep_checkpoints 2)" in line
    assert asked(monkeypatch, tmp_path) == ([], [])


@mutation("a run removes its old adapters", TIDYING, "keep is None or adapters", "keep is None")
def test_adapters_stay_unless_they_are_merged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert asked(monkeypatch, tmp_path, KEEP, "training.lora.rank=4") == ([], [])
    merged = asked(monkeypatch, tmp_path, KEEP, "training.lora={rank: 4, merge: true}")
    assert len(merged[0]) == 1


def test_a_failure_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "genenv.stage")
    _, told = asked(monkeypatch, tmp_path, KEEP, answer=IntegrityError("a record is damaged"))
    assert told == []
    (record,) = caplog.records
    assert "kept all weights: a record is damaged" in record.getMessage()


def end_with(error: Exception, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """End a run whose small files cannot be merged."""

    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(tidying, "compact", fail)
    tidying.tidy_ended(resolve("tiny", fields={"root": str(tmp_path), "run_id": "r"}))


@mutation("a run fails when merging does", TIDYING, "except FAULTS as", "except () as")
@pytest.mark.parametrize(
    ("error", "why"),
    [
        (StorageError("the disk is full"), "failed: the disk is full."),
        (OSError("no device"), "failed: OSError: no device."),
        (MemoryError(), "failed: MemoryError: MemoryError."),
        (pa.ArrowInvalid("no footer"), "failed: ArrowInvalid: no footer."),
        (pl.exceptions.ComputeError("no memory"), "failed: ComputeError: no memory."),
    ],
    ids=["store", "system", "memory", "arrow", "polars"],
)
def test_a_run_whose_small_files_cannot_be_merged_ends_well(
    error: Exception,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "genenv.stage")
    end_with(error, monkeypatch, tmp_path)
    (record,) = caplog.records
    assert record.getMessage().startswith("run=r keeps its small files")
    assert why in record.getMessage() and "`genenv compact r`" in record.getMessage()


def test_a_fault_of_genenv_itself_is_no_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(AttributeError):
        end_with(AttributeError("a name"), monkeypatch, tmp_path)
