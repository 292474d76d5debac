"""SQL over the tables of runs.

Invariants: every table and view exists on no run and on sample runs; run_id and arm come from the
source, quoted right, and a filter on run_id reads no rows of other runs; only one SELECT-like
statement is accepted, and looked at without a walk through all of DuckDB's functions; files of
older versions are read beside newer ones; no folder's name gives a column its value; errors are one
line.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import duckdb
import polars as pl
import pytest

from genenv_core.errors import QueryError, SchemaError
from genenv_core.storage.records.parquet import to_parquet
from genenv_core.storage.sql import admission
from genenv_core.storage.sql.attach import write_views
from genenv_core.storage.sql.catalog import RunSource, connect, query
from genenv_core.storage.sql.sandbox import ask
from genenv_core.storage.sql.sources import open_tables
from schemas.registry import TABLES
from schemas.relations import VIEW_NAMES, describe, sql_name
from schemas.validate import validate
from tests.examples import some
from tests.mutations import mutation
from tests.unit.builders_root import small_root
from tests.unit.builders_tables import sample_frame

ADMISSION = "genenv_core/storage/sql/admission.py"
DUCK = "genenv_core/storage/sql/duck.py"

HISTORY = ("stage_runs", "runs")


def source(folder: Path, run_id: str = "run-a", arm: str = "genenv") -> RunSource:
    """Return a run with two files for each table, and with its history in memory."""
    files: dict[str, list[str]] = {}
    for table in TABLES:
        if table in HISTORY:
            continue
        frame = sample_frame(table)
        half = frame.height // 2
        for index, piece in enumerate((frame.head(half), frame.tail(frame.height - half))):
            path = folder / f"{run_id} {table} {index}.parquet"
            path.write_bytes(to_parquet(table, piece))
            files.setdefault(table, []).append(str(path))
    return RunSource(run_id, arm, files, {table: sample_frame(table) for table in HISTORY})


@pytest.fixture(name="con", scope="module")
def one_run(tmp_path_factory: pytest.TempPathFactory) -> duckdb.DuckDBPyConnection:
    """Return a connection over one sample run; tests only read it."""
    return connect([source(tmp_path_factory.mktemp("pool"))])


@pytest.fixture(scope="module")
def empty() -> duckdb.DuckDBPyConnection:
    """Return a connection over no run; tests only read it."""
    return connect([])


@pytest.mark.parametrize("relation", describe(), ids=lambda relation: relation.name)
def test_every_relation_exists_empty_and_filled(
    relation, con: duckdb.DuckDBPyConnection, empty: duckdb.DuckDBPyConnection
) -> None:
    expected = [(column.name, column.sql_type) for column in relation.columns]
    assert query(empty, f"FROM {relation.reference}").is_empty()
    for connection in (empty, con):
        rows = connection.execute(f"DESCRIBE FROM {relation.reference}").fetchall()
        assert [(row[0], row[1]) for row in rows] == expected
    # One run differs from none, and it measures nothing.
    alone = relation.name in ("differing_settings", "measured")
    assert query(con, f"FROM {relation.reference}").is_empty() == alone


def test_describe_lists_every_table_and_view_with_words() -> None:
    names = [relation.name for relation in describe()]
    assert names == [*(sql_name(table) for table in TABLES), *VIEW_NAMES]
    for relation in describe():
        assert relation.columns[0].name == "run_id"
        assert relation.columns[1].name == "arm"
        assert relation.description
        assert all(column.description for column in relation.columns)


@pytest.mark.parametrize("table", TABLES)
def test_rows_are_the_files_rows_with_run_and_arm(
    table: str, con: duckdb.DuckDBPyConnection
) -> None:
    rows = query(con, f"FROM {sql_name(table)}")
    assert rows["run_id"].unique().to_list() == ["run-a"]
    assert rows["arm"].unique().to_list() == ["genenv"]
    own = [name for name in sample_frame(table).columns if name not in ("run_id", "arm")]
    sort_by = [name for name in TABLES[table].key if name in own] or own[:1]
    assert rows.select(own).sort(sort_by).equals(sample_frame(table).select(own).sort(sort_by))


def test_view_epochs_is_as_asked_for(con: duckdb.DuckDBPyConnection) -> None:
    rows = query(con, "FROM epochs ORDER BY epoch")
    asked = (
        "run_id, arm, epoch, tasks_generated, tasks_valid, p_hat, r_env_mean, share_in_band, "
        "share_zero_signal, share_kept, mean_difficulty, mean_response_tokens, heldout_success, "
        "heldout_success_greedy, kl_env, grpo_steps, rwr_steps, agent_checkpoint, "
        "env_checkpoint, seconds"
    )
    assert rows.columns[:20] == asked.split(", ")
    assert rows["epoch"].to_list() == [1, 2]


@mutation(
    "a column of before its renaming is not found by SQL", "genenv_core/storage/sql/catalog.py",
    "    if earlier is None:\n", "    if True:\n",
)  # fmt: skip
def test_a_root_from_before_a_column_was_renamed_is_read(tmp_path: Path) -> None:
    new = sample_frame("epochs")
    paths = [tmp_path / "old.parquet", tmp_path / "new.parquet"]
    new.head(1).rename({"mean_difficulty": "mean_calls"}).write_parquet(paths[0])
    paths[1].write_bytes(to_parquet("epochs", new.tail(1)))
    for given in (paths, paths[:1], paths[1:]):  # a run that went on, one of before, one of after
        files = {"epochs": [str(path) for path in given]}
        with connect([RunSource("r", "genenv", files)]) as con:
            rows = query(con, "SELECT epoch, mean_difficulty FROM epochs ORDER BY epoch")
        assert rows.equals(
            new.select(rows.columns).filter(pl.col("epoch").is_in(rows["epoch"].implode()))
        )
        assert rows.height == len(given)


def sequences_of(trace: str, root: int = 0) -> pl.DataFrame:
    """Return three further sequences of a trace, each made from the one before it but `root`."""
    one = sample_frame("trace_sequences").head(1).drop("trace_id")
    rows = [
        {"trace_id": trace, "sequence": number, "turn": turn, "message": 2 * turn,
         "parent": None if number == root else number - 1,
         "branch_turn": 0 if number == root else turn}
        for number, turn in ((1, 1), (2, 2), (3, 5))
    ]  # fmt: skip
    made = [{**one.to_dicts()[0], **row} for row in rows]
    return validate("trace_sequences", pl.DataFrame(made, schema_overrides=one.schema))


ADDED = {
    "traces": ["cause"],
    "task_scores": ["lost"],
    "evaluation_texts": ["error", "cause"],
    "epochs": ["attempts_lost"],
}


@mutation(
    "files of an older version end all queries", "genenv_core/storage/sql/duck.py",
    "_made_of_older_files(con, setup.older.get(statement))", "False",
)  # fmt: skip
@pytest.mark.slow
@pytest.mark.parametrize("table", some(ADDED, ("epochs",)))
def test_a_root_from_before_a_column_was_added_is_read(table: str, tmp_path: Path) -> None:
    new = sample_frame(table)
    paths = [tmp_path / "old.parquet", tmp_path / "new.parquet"]
    new.head(1).drop(ADDED[table]).write_parquet(paths[0])
    paths[1].write_bytes(to_parquet(table, new.tail(new.height - 1)))
    whole = RunSource("whole", "genenv", {table: [str(paths[1])]})
    for given in (paths, paths[:1]):  # a run that went on, and one of before
        sources = [RunSource("r", "genenv", {table: [str(path) for path in given]}), whole]
        wanted = new.head(new.height if len(given) == 2 else 1).with_columns(
            pl.when(pl.int_range(pl.len()) > 0).then(column).alias(column)
            for column in ADDED[table]
        )
        sql = f"SELECT * EXCLUDE (run_id, arm) FROM {sql_name(table)} WHERE run_id = 'r'"
        with connect(sources) as con:
            rows = query(con, sql)
        assert rows.sort(rows.columns[:2]).equals(
            wanted.select(rows.columns).sort(rows.columns[:2])
        )
        assert rows.schema == wanted.select(rows.columns).schema
        assert ask(sources, sql).frame.height == wanted.height
        assert write_views(sources, tmp_path / "views.duckdb") == 2


@mutation(
    "SQL shows null where an older file has a value by what was always so",
    "genenv_core/storage/sql/catalog.py",
    "if values else whole", "if False else whole",
)  # fmt: skip
@mutation(
    "a row of today gets the value that older files have", "schemas/tables/traces.py",
    "CASE WHEN branch_turn IS NULL THEN", "CASE WHEN parent IS NULL THEN",
)  # fmt: skip
def test_sequences_of_an_older_file_have_the_parents_that_they_had(tmp_path: Path) -> None:
    old, new = sequences_of("a"), sequences_of("b", root=2)
    paths = [tmp_path / "old.parquet", tmp_path / "new.parquet"]
    old.drop("parent", "branch_turn").write_parquet(paths[0])
    paths[1].write_bytes(to_parquet("trace_sequences", new))
    sql = "SELECT trace_id, sequence, parent, branch_turn FROM trace_sequences ORDER BY ALL"
    before = [("a", 1, 0, 1), ("a", 2, 1, 2), ("a", 3, 2, 5)]
    after = [("b", 1, 0, 1), ("b", 2, None, 0), ("b", 3, 2, 5)]
    for given, rows in ((paths, before + after), (paths[:1], before), (paths[1:], after)):
        files = {"trace_sequences": [str(path) for path in given]}
        sources = [RunSource("r", "genenv", files)]
        with connect(sources) as con:
            assert query(con, sql).rows() == rows
        assert ask(sources, sql).frame.rows() == rows


@mutation(
    "a folder's name gives a column its value", "genenv_core/storage/sql/catalog.py",
    "hive_partitioning = false", "hive_partitioning = true",
)  # fmt: skip
@pytest.mark.slow
def test_no_value_comes_from_the_name_of_a_folder(tmp_path: Path) -> None:
    place = tmp_path
    for column in sorted({column for table in TABLES for column in sample_frame(table).columns}):
        place /= f"{column}=7"
    with (
        open_tables(small_root(tmp_path / "root")) as plain,
        open_tables(small_root(place / "root")) as below,
    ):
        for relation in describe():
            sql = f"SELECT COLUMNS(c -> c <> 'host') FROM {relation.reference} ORDER BY ALL"
            assert query(below, sql).equals(query(plain, sql)), relation.name


def stage_runs(*spans: tuple[float, float | None, str]) -> pl.DataFrame:
    """Return attempts of epoch 1 from (begin, duration, state), in seconds."""
    one = sample_frame("stage_runs").head(1)
    begun = datetime(2026, 11, 1, tzinfo=UTC)
    return pl.concat(
        one.with_columns(
            stage=pl.lit(f"s{index}"),
            state=pl.lit(state),
            started_at=pl.lit(begun + timedelta(seconds=start)).dt.cast_time_unit("us"),
            seconds=pl.lit(seconds, dtype=pl.Float64),
        )
        for index, (start, seconds, state) in enumerate(spans)
    )


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([(0, 2.0, "computed")], 2.0),
        ([(0, 2.0, "computed"), (2, 3.0, "computed"), (3, 1.0, "computed")], 5.0),
        ([(0, 2.0, "computed"), (1, 4.0, "computed")], 5.0),
        ([(0, 9.0, "computed"), (1, 1.0, "computed"), (3, 1.0, "computed")], 9.0),
        ([(0, 2.5, "failed"), (3600, 1.0, "computed")], 3.5),
        ([(0, 2.0, "computed"), (9, None, "interrupted"), (99, None, "running")], 2.0),
        ([(0, 2.0, "computed"), (3600, 0.5, "cached")], 2.0),
        ([(0, 0.5, "cached")], 0.0),
        ([], None),
    ],
)
def test_seconds_count_time_with_an_attempt_running_once(
    tmp_path: Path, spans: list[tuple[float, float | None, str]], expected: float | None
) -> None:
    path = tmp_path / "epochs.parquet"
    path.write_bytes(to_parquet("epochs", sample_frame("epochs").head(1)))
    frames = {"stage_runs": stage_runs(*spans)} if spans else {}
    with connect([RunSource("r", "genenv", {"epochs": [str(path)]}, frames)]) as con:
        assert query(con, "SELECT seconds FROM epochs")["seconds"].to_list() == [expected]


def test_view_near_alpha_holds_the_kept_tasks(con: duckdb.DuckDBPyConnection) -> None:
    rows = query(con, "SELECT task_id, distance, r_env FROM near_alpha ORDER BY task_id").rows()
    assert [row[0] for row in rows] == [
        "e0001-t000001",
        "e0001-t000002",
        "e0002-t000001",
        "e0002-t000002",
    ]
    assert rows[1][1:] == (0.0, 1.0)


def test_runs_are_kept_apart_and_quotes_survive(tmp_path: Path) -> None:
    awkward = 'it\'s; DROP "x" --'
    runs = [source(tmp_path, "plain"), source(tmp_path, awkward, "random")]
    with connect(runs) as con:
        counts = query(con, "SELECT run_id, arm, count(*) AS n FROM traces GROUP BY ALL").rows()
        height = sample_frame("traces").height
        assert sorted(counts) == sorted([("plain", "genenv", height), (awkward, "random", height)])
        views = query(con, "SELECT run_id, count(*) AS n FROM lineage GROUP BY ALL").rows()
        assert len({n for _, n in views}) == 1


def test_filter_on_run_reads_no_rows_of_another(tmp_path: Path) -> None:
    runs = [source(tmp_path, f"r{index}") for index in range(3)]
    with connect(runs) as con:
        sql = "SELECT sum(reward) FROM scores WHERE run_id = 'r1'"
        plan = query(con, f"EXPLAIN {sql}")["explain_value"][0]
        assert plan.count("READ_PARQUET") == 2  # operator and function, of one branch
        every = query(con, "EXPLAIN SELECT sum(reward) FROM scores")["explain_value"][0]
        assert every.count("READ_PARQUET") == 6
        expected = query(con, sql).item()
        for other in ("r0", "r2"):
            for path in tmp_path.glob(f"{other} scores 1*"):
                path.write_bytes(b"no rows to be had here")
        assert query(con, sql).item() == expected
        with pytest.raises(QueryError, match=r"r[02] scores 1\.parquet"):
            query(con, "SELECT sum(reward) FROM scores")
        by_arm = "SELECT count(*) FROM scores WHERE arm = 'static'"
        assert query(con, by_arm).item() == 0


@mutation(
    "every query goes through all of DuckDB's functions", ADMISSION,
    "called not in TABLE_FUNCTIONS and called not in (macros := _macros(con))",
    "called not in TABLE_FUNCTIONS | (macros := _macros(con))",
)  # fmt: skip
def test_own_macros_are_looked_up_for_those_who_call_one(con: duckdb.DuckDBPyConnection) -> None:
    heard: list[str] = []

    class Heard:
        extract_statements = con.extract_statements

        def execute(self, sql: str, *given: object) -> duckdb.DuckDBPyConnection:
            heard.append(sql)
            return con.execute(sql, *given)

    for sql in ("FROM epochs, range(3)", "FROM what_if()"):
        assert not any("duckdb_functions" in asked for asked in heard)
        admission.admit(cast("Any", Heard()), sql)
    assert "duckdb_functions" in heard[-1]


def test_times_are_utc(con: duckdb.DuckDBPyConnection) -> None:
    rows = query(con, "SELECT started_at FROM runs")
    assert rows["started_at"].item() == datetime(2026, 11, 1, 12, tzinfo=UTC)
    assert rows.schema["started_at"] == pl.Datetime("us", "UTC")


@mutation(
    "the sandbox's settings are not locked", DUCK,
    '    con.execute("SET lock_configuration = true")\n', "",
)  # fmt: skip
@mutation(
    "the sandbox reads outside of the pools", DUCK,
    '    con.execute("SET enable_external_access = false")\n', "",
)  # fmt: skip
@mutation(
    "a query sees Python's variables", DUCK,
    '    con.execute("SET python_enable_replacements = false")\n', "",
)  # fmt: skip
def test_settings_are_locked(con: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(duckdb.Error, match="locked"):
        con.execute("SET memory_limit = '2GB'")
    settings = dict(con.execute("SELECT name, value FROM duckdb_settings()").fetchall())
    assert settings["autoinstall_known_extensions"] == "false"
    assert settings["autoload_known_extensions"] == "false"
    assert settings["enable_external_access"] == "false"
    assert settings["python_enable_replacements"] == "false"


@mutation(
    "the sandbox may read any file", DUCK,
    "SET allowed_paths = [{', '.join(text(path) for path in files)}]",
    "SET allowed_directories = ['/']",
)  # fmt: skip
def test_the_files_of_the_tables_can_be_opened_and_no_others(tmp_path: Path) -> None:
    """DuckDB itself refuses the others, whatever the statement's tree is."""
    own, other = source(tmp_path), tmp_path / "other.parquet"
    sample_frame("scores").write_parquet(other)
    with connect([own]) as con:
        path = own.files["scores"][0]
        assert con.execute(f"SELECT count(*) FROM read_parquet('{path}')").fetchone()
        with pytest.raises(duckdb.PermissionException):
            con.execute(f"SELECT count(*) FROM read_parquet('{other}')")


@mutation(
    "admission lets a COPY in a WITH in", ADMISSION,
    "        elif isinstance(kind, str) and kind not in NODES:\n", "        elif False:\n",
)  # fmt: skip
def test_a_kind_of_node_that_is_not_known_is_refused(con: duckdb.DuckDBPyConnection) -> None:
    """A later DuckDB may have new kinds, such as a CTE that writes."""
    inner: dict[str, object] = {"type": "SELECT_NODE"}
    entry = {"key": "x", "value": {"query": {"node": inner}}}
    tree = {"node": {"type": "SELECT_NODE", "cte_map": {"map": [entry]}}}
    admission._look(con, tree)
    inner["type"] = "COPY_NODE"
    with pytest.raises(QueryError, match="COPY_NODE is refused, the tables are read-only"):
        admission._look(con, tree)


def test_memory_is_bounded(tmp_path: Path) -> None:
    with connect([], memory_limit="64MB") as con, pytest.raises(QueryError, match="Out of Memory"):
        query(con, "SELECT count(*) FROM (SELECT DISTINCT i FROM range(100000000) AS r(i))")
    assert not (Path.cwd() / ".tmp").exists()


def test_lost_file_is_one_clear_error(tmp_path: Path) -> None:
    lost = RunSource("r", "genenv", {"scores": [str(tmp_path / "gone.parquet")]})
    with pytest.raises(QueryError, match=r"tables cannot be opened.*gone\.parquet"):
        connect([lost])


def test_a_run_of_another_version_is_named(tmp_path: Path) -> None:
    now, before = source(tmp_path, "new"), source(tmp_path, "old")
    place = tmp_path / "before.parquet"
    pl.read_parquet(before.files["scores"]).drop("reward").write_parquet(place)
    before.files["scores"] = [str(place)]
    with pytest.raises(QueryError, match=r"run old was written by another .* no column reward"):
        connect([now, before])


def test_file_that_vanishes_under_a_query_is_named(tmp_path: Path) -> None:
    with connect([source(tmp_path)]) as con:
        (tmp_path / "run-a scores 1.parquet").unlink()
        with pytest.raises(QueryError, match=r"run-a scores 1\.parquet is gone") as caught:
            query(con, "FROM scores")
        assert "**" not in str(caught.value)


def test_relative_paths_are_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scores.parquet").write_bytes(to_parquet("scores", sample_frame("scores")))
    monkeypatch.chdir(tmp_path)
    with connect([RunSource("r", "genenv", {"scores": ["scores.parquet"]})]) as con:
        assert query(con, "FROM scores").height == sample_frame("scores").height


def test_bad_sources_are_refused() -> None:
    with pytest.raises(QueryError, match="run a was given twice"):
        connect([RunSource("a", "genenv"), RunSource("a", "random")])
    with pytest.raises(SchemaError, match="no table 'scroes'"):
        connect([RunSource("a", "genenv", {"scroes": []})])
    bad = sample_frame("stage_runs").with_columns(attempt=pl.lit(0, dtype=pl.Int64))
    with pytest.raises(SchemaError, match="table stage_runs: column attempt"):
        connect([RunSource("a", "genenv", {}, {"stage_runs": bad})])
