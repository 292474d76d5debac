"""A run that this genenv cannot read takes no other run of its root away.

Invariants: an older, newer, foreign or damaged run is left out of questions about all runs, and one
warning names it, the reason and what to do; asked for by its name it is an error; what DuckDB finds
fault with is told from a question that is wrong; a page says which runs are left out.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows.cli.runs.listing import show_runs
from flows.view.reading import Reader
from genenv_core import pools
from genenv_core.errors import QueryError, StorageError, TablesError
from genenv_core.storage import paths
from genenv_core.storage.records import runs
from genenv_core.storage.records.parquet import VERSION_KEY
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.seal import seal, unseal
from genenv_core.storage.sql.catalog import query
from genenv_core.storage.sql.sources import look_at_runs, open_tables
from genenv_core.storage.store.local import LocalStore
from schemas.registry import spec
from tests.examples import some
from tests.mutations import mutation
from tests.unit.builders_runs import manifest_of, open_run, without_fsync, write_epoch

SOURCES = "genenv_core/storage/sql/sources.py"
NOW = spec("epochs").version
RUNS = "SELECT DISTINCT run_id FROM epochs ORDER BY 1"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a root with the runs `bad`, which a test spoils, and `good`; they share no file."""
    store = LocalStore(tmp_path_factory.mktemp("two"))
    with without_fsync():
        for last, run in ((1, "bad"), (2, "good")):
            open_run(store, run, last)
            for epoch in (0, last):  # each has an epoch of its own
                write_epoch(store, run, epoch, seed=last)
    return store.root


@pytest.fixture
def store(written: Path, tmp_path: Path) -> LocalStore:
    shutil.copytree(written, tmp_path / "root", symlinks=True)
    return LocalStore(tmp_path / "root")


@pytest.fixture
def warned(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """Return what gives the warnings so far."""
    caplog.set_level(logging.WARNING, "genenv.storage")
    yield lambda: [record.getMessage() for record in caplog.records]


def part(store: LocalStore, table: str = "epochs", run: str = "bad") -> Path:
    """Return the file of a table of a run's last epoch."""
    stage = {"epochs": "publish", "traces": "rollout"}[table]
    log = RunLog(store, run)
    (found,) = manifest_of(store, log, log.epochs()[-1], stage).of_table(table)
    path = store.root / found.path
    path.chmod(0o644)
    return path


def rewrite(path: Path, version: int, change: Callable[[pa.Table], pa.Table]) -> None:
    rows = pq.read_table(path)
    about = {**rows.schema.metadata, VERSION_KEY.encode(): str(version).encode()}
    path.unlink()  # it may be a hard link
    pq.write_table(change(rows).replace_schema_metadata(about), path)


def as_text(rows: pa.Table) -> pa.Table:
    """Make a text of a column that no view computes with, so that all views can be made."""
    place = rows.schema.get_field_index("r_env_mean")
    return rows.set_column(place, "r_env_mean", rows["r_env_mean"].cast(pa.string()))


def older(store: LocalStore) -> str:
    rewrite(part(store), 1, lambda rows: rows.drop_columns(["p_hat"]))
    return f"schema version 1 and this genenv knows {NOW}: read it with the genenv that wrote it"


def newer(store: LocalStore) -> str:
    rewrite(part(store), 99, lambda rows: rows.rename_columns({"p_hat": "p"}))
    return f"schema version 99 and this genenv knows {NOW}: upgrade genenv"


def other_type(store: LocalStore) -> str:
    rewrite(part(store), NOW, as_text)
    return "column r_env_mean has type String, not Float64"


def cut(store: LocalStore) -> str:
    path = part(store)
    path.write_bytes(path.read_bytes()[:-9])
    return "is no whole Parquet file"


def gone(store: LocalStore) -> str:
    part(store).unlink()
    return "there is no file"


def recorded(store: LocalStore, change: Callable[[dict], dict]) -> None:
    path = paths.run_config("bad")
    store.replace(path, seal(change(unseal(store.read(path)))))


def foreign(store: LocalStore) -> str:
    recorded(store, lambda record: record | {"config": {"model": "gpt2"}})
    return "it holds no configuration that this genenv reads: 'arm'"


def other_record(store: LocalStore) -> str:
    recorded(store, lambda record: record | {"form": 3})
    return "it is no RunInfo that this genenv reads: form"


SPOILED = (older, newer, other_type, cut, gone, foreign, other_record)


@mutation(
    "one run that cannot be read ends every question", SOURCES,
    "[one.files for one in fitting] == [one.files for one in found]", "True",
)  # fmt: skip
@mutation(
    "a column of another type changes that of all runs", "genenv_core/storage/sql/duck.py",
    "    if not types:\n", "    if True:\n",
    by="unit/storage/sql/test_unreadable.py::test_the_other_runs_answer",
)  # fmt: skip
@mutation(
    "the configuration of something else ends every question", SOURCES,
    "except (KeyError, TypeError, ValueError)", "except OSError",
)  # fmt: skip
@pytest.mark.parametrize("spoil", some(SPOILED, (foreign,)))
def test_the_other_runs_answer(spoil, store: LocalStore, warned) -> None:
    why = spoil(store)
    with open_tables(store) as con:
        rows = query(con, RUNS)
        kinds = query(con, "SELECT typeof(r_env_mean) AS kind FROM epochs")
    assert rows["run_id"].to_list() == ["good"]
    assert set(kinds["kind"]) == {"DOUBLE"}
    (line,) = warned()
    assert line.startswith("run=bad is left out: ") and why in line
    assert line.endswith("(genenv gc --drop-run bad removes it)")
    with open_tables(store):
        assert len(warned()) == 1  # it is said once


@pytest.mark.parametrize("spoil", some(SPOILED, (cut, other_type)))
def test_by_its_name_it_is_an_error(spoil, store: LocalStore) -> None:
    spoil(store)
    with pytest.raises((QueryError, StorageError), match=r"bad|parquet|r_env_mean"):
        open_tables(store, ["bad"])
    with open_tables(store, ["good"]) as con:
        assert query(con, RUNS).height == 1


@mutation(
    "a fault of a file is one of the question", "genenv_core/storage/sql/sandbox_child.py",
    '"files": of_files(error)', '"files": False',
)  # fmt: skip
@pytest.mark.slow
def test_a_file_that_is_found_broken_only_when_it_is_read(store: LocalStore, warned) -> None:
    whole, broken = part(store, "traces", "good"), part(store, "traces")
    # DuckDB opens the first file of a run, and meets the second one when it reads.
    stage = manifest_of(store, RunLog(store, "bad"), 1, "rollout")
    second = next(p for p in stage.parts if p.table == "traces").model_copy(
        update={"name": "traces/1.parquet", "path": "parts/00/second.parquet", "sha256": "0" * 64}
    )
    place = store.root / second.path
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(broken.read_bytes()[:-9])
    more = stage.model_copy(update={"parts": (*stage.parts, second)})
    store.replace(paths.manifest(stage.stage, stage.key), more.to_bytes())
    asked = "SELECT run_id, count(*) AS n FROM traces WHERE turns >= 0 GROUP BY ALL"
    assert pools.frame(store.uri, asked).rows() == [("good", pq.read_metadata(whole).num_rows)]
    assert len(warned()) == 1
    with pytest.raises(TablesError):
        pools.frame(store.uri, asked, ["bad"])
    with pytest.raises(QueryError) as refused:
        pools.frame(store.uri, "SELECT nothing FROM traces")
    assert not isinstance(refused.value, TablesError)


@pytest.mark.slow
def test_lists_and_attached_files_leave_it_out(
    store: LocalStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    older(store)
    show_runs(store, as_json=False)
    listed = capsys.readouterr().out
    assert "good" in listed and "bad" not in listed
    assert pools.attach_file(store.uri, tmp_path / "views.duckdb") > 0


@mutation(
    "a page does not say which run is left out", "flows/view/reading.py",
    "if run not in self._runs and is_there(self.store, run)", "if False",
)  # fmt: skip
def test_a_page_answers_for_the_others_and_says_so(store: LocalStore) -> None:
    older(store)
    reader = Reader(store)
    try:
        assert reader.ask(RUNS).frame["run_id"].to_list() == ["good"]
        assert list(reader.left_out()) == ["bad"]
        shutil.rmtree(store.root / paths.run("bad"))
        assert reader.left_out() == {}
    finally:
        reader.close()


@mutation(
    "a run is written beside one that cannot be read, without a word", SOURCES,
    "leave_out(store, run, misfit(RunSource(run, \"\", files)))", "pass",
)  # fmt: skip
@pytest.mark.parametrize("spoil", SPOILED[:-2])
def test_it_is_said_before_a_run_is_written(spoil, store: LocalStore, warned) -> None:
    why = spoil(store)
    look_at_runs(store)
    (line,) = warned()
    assert why in line


@pytest.mark.slow
def test_a_sound_root_is_not_warned_of(
    store: LocalStore, warned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "_said", set())
    look_at_runs(store)
    with open_tables(store) as con:
        assert query(con, RUNS)["run_id"].to_list() == ["bad", "good"]
    assert warned() == []
    assert isinstance(pools.frame(store.uri, RUNS), pl.DataFrame)
