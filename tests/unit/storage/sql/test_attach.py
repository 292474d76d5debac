"""The database of views for tools beside genenv, and the comments of the catalog.

Invariants: a plain DuckDB, without genenv, finds every relation with the rows and comments that
genenv shows; what a run writes later is not in it, a file that is gone is an error and no wrong
row, and writing it anew heals both; it replaces what it wrote itself, whole and at once, and
nothing else; each column has its description in DuckDB's catalog, in Python and in `genenv sql`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest
from typer.testing import CliRunner

from flows.cli.app import app
from genenv_core import pools
from genenv_core.errors import QueryError
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.sql.sources import sources
from genenv_core.storage.store.local import LocalStore
from schemas.relations import describe
from tests.mutations import mutation
from tests.unit.builders_root import START, commit_epoch, fill, small_root
from tests.unit.builders_runs import without_fsync

READ = """
import json, sys
import duckdb
con = duckdb.connect(sys.argv[1], read_only=True)
rows = con.execute("SELECT run_id, count(*) FROM scores GROUP BY 1 ORDER BY 1").fetchall()
comments = con.execute(
    "SELECT table_name, column_name, comment FROM duckdb_columns() "
    "WHERE NOT internal AND schema_name = 'main'"
).fetchall()
held = con.execute("SELECT table_name FROM duckdb_tables()").fetchall()
ours = [name for name in sys.modules if name.split(".")[0] in ("genenv_core", "schemas", "flows")]
print(json.dumps({"rows": rows, "comments": comments, "held": held, "ours": ours}))
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a root of two runs, with a quote in its name; tests only read it."""
    path = tmp_path_factory.mktemp("attach") / "it's a root"
    with without_fsync():
        fill(small_root(path, "one"), "two")
    return path


@pytest.fixture
def root(written: Path, tmp_path: Path) -> Path:
    """Return a copy of that root."""
    return Path(shutil.copytree(written, tmp_path / written.name))


def described() -> dict[tuple[str, str], str]:
    return {
        (relation.name, column.name): column.description
        for relation in describe()
        if relation.kind != "macro"
        for column in relation.columns
    }


def in_plain_duckdb(path: Path) -> dict[str, Any]:
    """Return what a process finds that has DuckDB and not this project."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", READ, str(path)],
        capture_output=True, text=True, check=True, cwd="/", timeout=60,
    )  # fmt: skip
    return json.loads(done.stdout)


def test_a_plain_duckdb_reads_rows_and_comments(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "pools.duckdb"
    assert pools.attach_file(root, path) > 0
    found = in_plain_duckdb(path)
    assert found["ours"] == []
    assert [run for run, _ in found["rows"]] == ["one", "two"]
    assert {(table, column): said for table, column, said in found["comments"]} == described()
    # History is in no Parquet file; of everything else there are views alone.
    held = {name for (name,) in found["held"]}
    assert held <= {"runs_0", "runs_1", "stage_runs_0", "stage_runs_1", "written"}
    assert {"runs_0", "runs_1", "written"} <= held


@pytest.mark.slow
def test_every_relation_has_the_same_rows(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "pools.duckdb"
    pools.attach_file(root, path)
    with pools.connect(root) as ours, duckdb.connect(path, read_only=True) as theirs:
        theirs.execute("SET TimeZone = 'UTC'")
        for relation in describe():
            sql = f"FROM (FROM {relation.reference}) ORDER BY ALL"
            assert theirs.execute(sql).fetchall() == ours.execute(sql).fetchall(), relation.name


def test_attached_beside_other_databases(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "pools.duckdb"
    pools.attach_file(root, path)
    with duckdb.connect() as con:
        con.execute(f"ATTACH '{path}' AS pools (READ_ONLY)")
        assert con.execute("SELECT count(*) FROM pools.agent_attempts").fetchone() != (0,)
        con.execute("USE pools")  # which table macros need
        assert con.execute("SELECT count(*) FROM what_if(alpha := 0.3)").fetchone() != (0,)


@pytest.mark.slow
def test_what_a_run_writes_later_is_seen_when_it_is_written_anew(
    root: Path, tmp_path: Path
) -> None:
    path, sql = tmp_path / "pools.duckdb", "SELECT max(epoch) FROM scores WHERE run_id = 'late'"
    store = LocalStore(root)
    log = RunLog(store, "late")
    log.open({"arm": "genenv", "domain": {"name": "desk"}, "seed": 0, "epochs": 2}, START)
    commit_epoch(store, log, 1)
    pools.attach_file(root, path)
    with duckdb.connect(path, read_only=True) as before:
        assert before.execute(sql).fetchone() == (1,)
        commit_epoch(store, log, 2)
        assert before.execute(sql).fetchone() == (1,)
        pools.attach_file(root, path)  # while a program has the old one open
        assert before.execute(sql).fetchone() == (1,)
    with duckdb.connect(path, read_only=True) as after:
        assert after.execute(sql).fetchone() == (2,)


def test_a_file_that_is_gone_is_an_error_and_no_wrong_row(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "pools.duckdb"
    pools.attach_file(root, path)
    named = sources(pools.reader(root), ["one"])[0].files["scores"]
    gone = Path(named[-1])
    kept = gone.read_bytes()
    gone.unlink()
    with (
        duckdb.connect(path, read_only=True) as con,
        pytest.raises(duckdb.IOException, match=gone.name),
    ):
        con.execute("SELECT count(*) FROM scores").fetchone()
    gone.write_bytes(kept)
    with duckdb.connect(path, read_only=True) as con:
        assert con.execute("SELECT count(*) FROM scores").fetchone() != (0,)


@mutation(
    "a file of views replaces somebody's own database", "genenv_core/storage/sql/attach.py",
    "if found != (_MARK,):", "if False:",
)  # fmt: skip
@pytest.mark.slow
def test_it_replaces_only_what_it_wrote(root: Path, tmp_path: Path) -> None:
    path, text, other = (tmp_path / name for name in ("pools.duckdb", "notes", "mine.duckdb"))
    text.write_text("mine")
    with duckdb.connect(other) as con:
        con.execute("CREATE TABLE mine AS SELECT 1 AS one")
    whole = other.read_bytes()
    for place, why in ((text, "no database"), (other, "no database"), (tmp_path, "is a directory")):
        with pytest.raises(QueryError, match=why):
            pools.attach_file(root, place)
    assert (text.read_text(), other.read_bytes()) == ("mine", whole)
    for place, why in ((root / "x.duckdb", "inside the root"), (path / "x", "there is no folder")):
        with pytest.raises(QueryError, match=why):
            pools.attach_file(root, place)
    with pytest.raises(QueryError, match="another program has it open"):
        pools.attach_file(root, path)
        holds = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print(1, flush=True); input()"
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", holds, str(path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        try:
            assert process.stdout is not None and process.stdout.readline() == b"1\n"
            pools.attach_file(root, path)
        finally:
            process.communicate(b"\n", timeout=30)
    left = path.with_name("pools.duckdb.wal")
    left.write_bytes(b"of the old file")
    pools.attach_file(root, path)
    names = {place.name for place in tmp_path.iterdir()}
    assert names == {"it's a root", "pools.duckdb", "notes", "mine.duckdb"}


@pytest.mark.slow
def test_the_command_writes_it_alone(root: Path, tmp_path: Path) -> None:
    command = ["sql", "--root", str(root), "--attach-file", str(tmp_path / "pools.duckdb")]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0 and "views over" in done.output
    with duckdb.connect(tmp_path / "pools.duckdb", read_only=True) as con:
        assert con.execute("SELECT count(DISTINCT run_id) FROM epochs").fetchone() == (2,)
    refused = CliRunner().invoke(app, [*command, "SELECT 1"])
    assert refused.exit_code != 0


@pytest.mark.slow
def test_the_catalog_describes_every_column_and_relation(root: Path) -> None:
    sql = "SELECT table_name, column_name, comment FROM duckdb_columns() WHERE NOT internal"
    with pools.connect(root) as con:
        found = {(t, c): said for t, c, said in con.execute(sql).fetchall() if t in TABLES}
        about = con.execute("SELECT view_name, comment FROM duckdb_views()").fetchall()
        macro = con.execute(
            "SELECT comment FROM duckdb_functions() WHERE function_name = 'what_if'"
        ).fetchone()
    assert found == described()
    assert dict(about).items() >= {(r.name, r.about) for r in describe() if r.kind != "macro"}
    assert macro == (TABLES["what_if"].about,)


@pytest.mark.parametrize(
    "sql",
    [
        pytest.param(
            "SELECT comment FROM duckdb_columns() "
            "WHERE table_name = 'scores' AND column_name = 'reward'",
            marks=pytest.mark.slow,
        ),
        "SELECT COLUMN_COMMENT AS comment FROM information_schema.columns "
        "WHERE table_name = 'scores' AND column_name = 'reward'",
    ],
)
def test_a_query_may_read_the_comments(root: Path, sql: str) -> None:
    assert pools.frame(root, sql)["comment"].to_list() == [described()["scores", "reward"]]


TABLES = {relation.name: relation for relation in describe()}
