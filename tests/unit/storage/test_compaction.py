"""Compaction: few files instead of many, and nothing else changes.

Invariants: every table gives the same rows in the same order before and after; live files stay
bounded and each row is rewritten a few times at most; manifests and parts do not change; a segment
with changed epochs or a lost file is not read and is merged anew, its neighbours are still read;
rows that several epochs name come once; history includes later events; damage is not copied; a
second compaction does nothing.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from genenv_core.config.load import resolve
from genenv_core.storage import paths
from genenv_core.storage.records import segments
from genenv_core.storage.records.artifacts import Artifacts
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.records.segments import Segment, layout
from genenv_core.storage.sql.catalog import query
from genenv_core.storage.sql.sources import open_tables, source
from genenv_core.storage.store.local import LocalStore
from genenv_core.storage.upkeep import compaction
from genenv_core.storage.upkeep.compaction import compact
from genenv_core.storage.upkeep.verify import MERGED, verify
from schemas.registry import TABLES
from schemas.relations import sql_name
from tasks.upkeep.tidying import FAN, tidy, tidy_ended
from tests.mutations import mutation
from tests.unit.builders_runs import (
    WRITTEN,
    attempt_at,
    key_of,
    manifest_of,
    open_run,
    without_fsync,
    write_epoch,
    write_run,
    write_stage,
)

pytestmark = pytest.mark.slow

COMPACTION = "genenv_core/storage/upkeep/compaction.py"

EPOCHS = 11


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the run that `store` is a copy of."""
    root = tmp_path_factory.mktemp("written") / "root"
    with without_fsync():
        write_run(LocalStore(root), "run-a", EPOCHS)
    return root


@pytest.fixture
def store(written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalStore]:
    """A finished run of eleven epochs; three pieces at a time are merged."""
    monkeypatch.setattr(compaction, "FAN", 3)
    with without_fsync():
        yield LocalStore(Path(shutil.copytree(written, tmp_path / "root")))


@pytest.fixture(scope="module")
def before(written: Path) -> dict[str, pl.DataFrame]:
    """Return the rows of `store` before anything happens to it."""
    return rows(LocalStore(written))


def rows(store: LocalStore) -> dict[str, pl.DataFrame]:
    """Return every table as SQL shows it."""
    with open_tables(store) as connection:
        return {
            table: query(connection, f"SELECT * FROM {sql_name(table)}")  # in file order
            for table in TABLES
        }


def same(left: dict[str, pl.DataFrame], right: dict[str, pl.DataFrame]) -> bool:
    return all(left[table].equals(right[table]) for table in TABLES)


def spans(store: LocalStore, run: str = "run-a") -> list[tuple[int, int, int]]:
    """Return (level, first, last) of the spans of a run; level 0 is a loose epoch."""
    return [
        (span.level, span.first, span.last)
        for span in layout(store, RunLog(store, run), EPOCHS).spans
    ]


def live_files(store: LocalStore) -> int:
    return sum(map(len, source(store, "run-a").files.values()))


@mutation(
    "compaction turns the rows around", COMPACTION,
    "pl.concat([_rows(store, table, part) for part in parts])",
    "pl.concat([_rows(store, table, part) for part in reversed(parts)])",
)  # fmt: skip
def test_rows_and_their_order_stay(store: LocalStore, before: dict[str, pl.DataFrame]) -> None:
    many = live_files(store)
    kept = {path: store.read(path) for path in (*store.list("stages"), *store.list("parts"))}
    done = compact(store, "run-a")
    assert (done.segments, spans(store)) == (5, [(2, 0, 8), (1, 9, 11)])
    assert same(before, rows(store))
    assert live_files(store) == 2 * len(WRITTEN) < many / 4
    assert all(store.read(path) == data for path, data in kept.items())
    assert verify(store).damaged == []
    assert store.list(paths.segments("run-a")) == [
        paths.segment("run-a", 0, 8),
        paths.segment("run-a", 9, 11),
    ]
    assert compact(store, "run-a") == compaction.Compacted()


def test_a_row_is_written_once_a_level(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    written: dict[str, int] = {}
    real = compaction.write_part

    def counted(store: LocalStore, table: str, frame: pl.DataFrame, name: str) -> object:
        written[table] = written.get(table, 0) + frame.height
        return real(store, table, frame, name)

    monkeypatch.setattr(compaction, "write_part", counted)
    compact(store, "run-a")
    total = rows(store)["traces"].height
    assert total < written["traces"] <= 2 * total


def test_what_arrives_is_seen_and_an_unfinished_epoch_waits(store: LocalStore) -> None:
    compact(store, "run-a")
    open_run(store, "run-a", EPOCHS + 3)
    for epoch in (12, 13):
        write_epoch(store, "run-a", epoch)
    write_epoch(store, "run-a", 14, stages=("generate_tasks", "rollout"))
    before = rows(store)
    assert before["traces"]["epoch"].unique().sort().to_list() == list(range(1, 15))
    compact(store, "run-a")
    assert same(before, rows(store))
    found = layout(store, RunLog(store, "run-a"), EPOCHS + 3).spans
    assert [span.level == 0 for span in found] == [False, False, True, True, True]


@mutation(
    "the last epochs of a run stay many small files", COMPACTION,
    "wait.\n        if len(waiting) > 1:", "wait.\n        if False:",
)  # fmt: skip
def test_a_run_that_has_ended_has_no_more_epochs_to_wait_for(
    store: LocalStore, before: dict[str, pl.DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "FAN", 5)
    compact(store, "run-a")
    assert spans(store) == [(1, 0, 4), (1, 5, 9), (1, 10, 11)]
    assert same(before, rows(store))
    assert compact(store, "run-a") == compaction.Compacted()
    # It is to go on: what is new waits again.
    open_run(store, "run-a", EPOCHS + 3)
    for epoch in (12, 13):
        write_epoch(store, "run-a", epoch)
    assert compact(store, "run-a") == compaction.Compacted()
    write_epoch(store, "run-a", 14)
    compact(store, "run-a")
    found = layout(store, RunLog(store, "run-a"), EPOCHS + 3).spans
    assert [(span.level, span.last) for span in found] == [(1, 4), (1, 9), (1, 11), (1, 14)]
    assert verify(store).damaged == []


def test_a_recomputed_stage_invalidates_its_range_only(store: LocalStore) -> None:
    open_run(store, "run-a", EPOCHS)
    compact(store, "run-a")
    write_stage(store, "score", 10, variant=1)
    RunLog(store, "run-a").note_key(10, "score", key_of("score", 10, 1))
    assert spans(store) == [(2, 0, 8), (0, 9, 9), (0, 10, 10), (0, 11, 11)]
    before = rows(store)
    assert before["scores"].filter(pl.col("trace_id").str.starts_with("e0010v1-")).height > 0
    assert before["scores"].filter(pl.col("trace_id").str.starts_with("e0010v0-")).height == 0
    compact(store, "run-a")
    assert spans(store) == [(2, 0, 8), (1, 9, 11)]
    assert same(before, rows(store))
    assert verify(store).damaged == []


def test_a_manifest_replaced_under_its_key_invalidates_too(store: LocalStore) -> None:
    compact(store, "run-a")
    path = paths.manifest("score", key_of("score", 2))
    other = manifest_of(store, RunLog(store, "run-a"), 3, "score")
    mine = manifest_of(store, RunLog(store, "run-a"), 2, "score")
    store.replace(path, mine.to_bytes())  # the same again: another mark, the same parts
    assert spans(store) == [(2, 0, 8), (1, 9, 11)]
    store.replace(path, mine.model_copy(update={"parts": other.parts}).to_bytes())
    assert spans(store)[:2] == [(0, 0, 0), (0, 1, 1)]
    ids = rows(store)["scores"]["trace_id"]
    assert not ids.str.starts_with("e0002").any() and ids.is_duplicated().any() is False


def test_a_damaged_segment_is_not_read_and_is_merged_anew(
    store: LocalStore, before: dict[str, pl.DataFrame]
) -> None:
    compact(store, "run-a")
    record = paths.segment("run-a", 9, 11)
    for hurt in ("missing", "short", "record"):
        part = Segment.from_bytes(store.read(record)).tables["traces"][0].path
        if hurt == "missing":
            store.delete(part)
        elif hurt == "short":
            store.replace(part, b"PAR1")
        else:
            store.replace(record, b"{}")
        damaged = {damage.path: damage for damage in verify(store).damaged}
        (found,) = damaged.values()
        assert found.path == (record if hurt == "record" else part), hurt
        assert found.remedy == MERGED, hurt
        if hurt != "record":
            assert str(found.named_by[0]) == "run run-a epochs 9 to 11, merged", hurt
        assert spans(store)[0] == (2, 0, 8) and len(spans(store)) == 4, hurt
        assert same(before, rows(store)), hurt
        compact(store, "run-a")
        assert spans(store) == [(2, 0, 8), (1, 9, 11)], hurt
        assert same(before, rows(store)), hurt
        assert verify(store).damaged == [], hurt


@mutation(
    "compaction copies a damaged part", COMPACTION, "if sha256(data) != part.sha256:", "if False:"
)
def test_damage_is_not_copied(store: LocalStore, caplog: pytest.LogCaptureFixture) -> None:
    part = manifest_of(store, RunLog(store, "run-a"), 10, "rollout").of_table("traces")[0]
    data = bytearray(store.read(part.path))
    data[40] ^= 1
    store.replace(part.path, bytes(data))
    compact(store, "run-a")
    assert part.path in caplog.text
    assert all(level < 1 or last < 10 for level, _, last in spans(store))


def test_parts_that_many_epochs_name_come_once(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "static")
    log = open_run(store, "run-s", EPOCHS)
    with without_fsync():
        for epoch in range(EPOCHS + 1):
            write_epoch(store, "run-s", epoch)
            if epoch > 1:  # arm static: one set of tasks
                log.note_key(epoch, "generate_tasks", key_of("generate_tasks", 1))
        before = rows(store)
        assert not before["tasks"]["task_id"].is_duplicated().any()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compaction, "FAN", 3)
            compact(store, "run-s")
        assert same(before, rows(store))
        # The first epoch takes another set: the rest has to give the rows of the old one now.
        write_stage(store, "generate_tasks", 1, variant=1)
        log.note_key(1, "generate_tasks", key_of("generate_tasks", 1, 1))
        now = rows(store)["tasks"]
    assert not now["task_id"].is_duplicated().any()
    assert now.height == before["tasks"].height * 2 - 5  # 5 base and held-out tasks


def test_history_follows_later_events(store: LocalStore) -> None:
    compact(store, "run-a")
    log = RunLog(store, "run-a")
    log.begin(attempt_at("run-a", 2, "score", key_of("score", 2), cached=True))
    history = rows(store)["stage_runs"]
    assert history.filter((pl.col("epoch") == 2) & (pl.col("stage") == "score")).height == 2
    assert history.equals(history.sort("started_at", "epoch", maintain_order=True))
    assert history.height == len(log.attempts())


def test_a_copied_root_is_compacted_still(store: LocalStore, tmp_path: Path) -> None:
    compact(store, "run-a")
    before = rows(store)
    copied = LocalStore(Path(shutil.copytree(store.root, tmp_path / "copy")))
    assert spans(copied) == [(2, 0, 8), (1, 9, 11)]
    assert same(before, rows(copied))
    compact(copied, "run-a")  # notes the marks that its files have there
    assert layout(copied, RunLog(copied, "run-a"), EPOCHS).renewed == []
    assert same(before, rows(copied))


def test_a_run_compacts_itself_beside_its_stages(store: LocalStore) -> None:
    config = resolve("tiny", fields={"root": str(store.root), "run_id": "run-a"})
    for epoch in (0, 10):
        tidy(config, epoch, Artifacts(store))
    assert not [thread for thread in threading.enumerate() if thread.name == "compact"]
    tidy(config, FAN, Artifacts(store))
    for thread in threading.enumerate():
        if thread.name == "compact":
            thread.join()
    assert spans(store) == [(2, 0, 8), (1, 9, 11)]


def test_a_run_that_has_ended_waits_until_it_is_merged(store: LocalStore) -> None:
    config = resolve("tiny", fields={"root": str(store.root), "run_id": "run-a"})
    tidy_ended(config)
    assert spans(store) == [(2, 0, 8), (1, 9, 11)]


def test_a_covered_epoch_is_not_read(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    compact(store, "run-a")

    def refuse(*args: object) -> None:
        raise AssertionError("read")

    monkeypatch.setattr(segments, "_loose", refuse)
    assert spans(store) == [(2, 0, 8), (1, 9, 11)]


def test_full_files_stay(
    store: LocalStore, before: dict[str, pl.DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(compaction.FULL_BYTES, "payload", 1)
    compact(store, "run-a")
    assert same(before, rows(store))
    assert len(source(store, "run-a").files["trace_tokens"]) == EPOCHS
    assert len(source(store, "run-a").files["traces"]) == 2
