"""A read-only DuckDB over the tables of runs: each table a view over the files that manifests name.

Nothing is copied and no database file exists, so a query never blocks a writer. `run_id` and `arm`
are constants of each run's branch of a view, so a filter on them drops whole runs before a row is
read (DuckDB still opens the first file of each branch, for its column types).
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import duckdb
import polars as pl

from genenv_core.errors import QueryError
from schemas.registry import TABLES, spec
from schemas.relations import Relation, describe, empty_select, sql_name, table_relation, views
from schemas.validate import validate

__all__ = ["Relation", "RunSource", "connect", "describe", "query"]

_EXPLAIN = re.compile(r"\s*explain\s+(analyze\s+)?(\(\s*(format|analyze)\b[^()]*\)\s*)?", re.I)
# DuckDB takes a name that does not exist for a folder, and refuses to look into it.
_LOST = re.compile(r'Cannot access file "([^"]+)/\*\*/\*\.parquet"')
_FRAMES_SCHEMA = "held"


@dataclass(frozen=True, slots=True)
class RunSource:
    """The rows of one run: Parquet files by table, in row order, and small tables in memory."""

    run_id: str
    arm: str
    files: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    frames: dict[str, pl.DataFrame] = field(default_factory=dict[str, pl.DataFrame])


def connect(
    sources: Sequence[RunSource], *, memory_limit: str = "1GB"
) -> duckdb.DuckDBPyConnection:
    """Return a locked in-memory DuckDB with every table and view over these runs.

    It can open the files of `sources` and no others, loads no extension, spills nothing to disk,
    and its settings cannot be changed. Raises QueryError when a file cannot be opened.
    """
    names = [source.run_id for source in sources]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise QueryError(f"run {twice[0]} was given twice: name each run once")
    con = duckdb.connect(
        ":memory:",
        config={
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "allow_community_extensions": False,
            "temp_directory": "",
            "memory_limit": memory_limit,
        },
    )
    try:
        _fill(con, sources)
        _lock(con, sources)
    except duckdb.Error as error:
        con.close()
        raise QueryError(f"the tables cannot be opened: {_one_line(error)}") from error
    except BaseException:
        con.close()
        raise
    return con


def query(con: duckdb.DuckDBPyConnection, sql: str) -> pl.DataFrame:
    """Return the rows of one SELECT-like statement; raises QueryError for anything else."""
    try:
        _admit(con, sql)
        frame = con.execute(sql).pl()
    except duckdb.Error as error:
        raise QueryError(_one_line(error)) from error
    except pl.exceptions.PolarsError as error:
        raise QueryError(
            f"the result has a type without a counterpart, cast it to VARCHAR: {_one_line(error)}"
        ) from error
    return _with_plain_integers(frame)


def _fill(con: duckdb.DuckDBPyConnection, sources: Sequence[RunSource]) -> None:
    con.execute(f"CREATE SCHEMA {_FRAMES_SCHEMA}")
    for source in sources:
        for table in (*source.files, *source.frames):
            spec(table)
    for table in TABLES:
        branches = [
            branch
            for index, source in enumerate(sources)
            for branch in _branches(con, table, index, source)
        ]
        select = " UNION ALL ".join(branches) if branches else empty_select(table)
        con.execute(f"CREATE VIEW {_name(sql_name(table))} AS {select}")
    for view in views():
        con.execute(view.create)


def _branches(
    con: duckdb.DuckDBPyConnection, table: str, index: int, source: RunSource
) -> list[str]:
    """Return the SELECTs that give one run's rows of a table."""
    froms: list[str] = []
    if paths := source.files.get(table):
        listed = ", ".join(_text(_absolute(path)) for path in paths)
        froms.append(f"read_parquet([{listed}])")
    frame = source.frames.get(table)
    if frame is not None and frame.height:
        held = f"{_FRAMES_SCHEMA}.{_name(f'{table}_{index}')}"
        con.register("incoming", validate(table, frame))
        con.execute(f"CREATE TABLE {held} AS SELECT * FROM incoming")
        con.unregister("incoming")
        froms.append(held)
    own = ", ".join(_name(column.name) for column in table_relation(table).columns[2:])
    run = f"{_text(source.run_id)} AS run_id, {_text(source.arm)} AS arm"
    return [f"SELECT {run}, {own} FROM {origin}" for origin in froms]


def _lock(con: duckdb.DuckDBPyConnection, sources: Sequence[RunSource]) -> None:
    paths = {
        _absolute(path) for source in sources for group in source.files.values() for path in group
    }
    con.execute("SET TimeZone = 'UTC'")
    # Otherwise a name in a query could reach Python variables of this process.
    con.execute("SET python_enable_replacements = false")
    if paths:
        con.execute(f"SET allowed_paths = [{', '.join(_text(path) for path in sorted(paths))}]")
    con.execute("SET enable_external_access = false")
    con.execute("SET lock_configuration = true")


def _admit(con: duckdb.DuckDBPyConnection, sql: str) -> None:
    statements = con.extract_statements(sql)
    if not statements:
        raise QueryError("the query is empty: write one SELECT")
    if len(statements) > 1:
        raise QueryError(f"the query has {len(statements)} statements: write one SELECT")
    kind = statements[0].type
    if kind == duckdb.StatementType.EXPLAIN:
        # EXPLAIN ANALYZE runs what it explains, so that must be harmless too.
        rest, stripped = _EXPLAIN.subn("", sql, count=1)
        inner = con.extract_statements(rest) if stripped else []
        if len(inner) == 1 and inner[0].type == duckdb.StatementType.SELECT:
            return
        raise QueryError("EXPLAIN is read-only here: it must come first, with one SELECT after it")
    if kind != duckdb.StatementType.SELECT:
        raise QueryError(
            f"{kind.name} is refused, the tables are read-only: "
            "write one SELECT, DESCRIBE, SHOW, SUMMARIZE or EXPLAIN"
        )


def _with_plain_integers(frame: pl.DataFrame) -> pl.DataFrame:
    """Return sums of integers, which DuckDB widens to 128 bits, as int64 where they fit."""
    changed: list[pl.Series] = []
    for column in frame.iter_columns():
        if isinstance(column.dtype, pl.Decimal) and column.dtype.scale == 0:
            narrow = column.cast(pl.Int64, strict=False)
            if narrow.null_count() == column.null_count():
                changed.append(narrow)
    return frame.with_columns(changed)


def _one_line(error: Exception) -> str:
    """Return an error's message without the quoted query, on one line."""
    message = re.split(r"\n\s*LINE \d+:", str(error))[0]
    if lost := _LOST.search(message):
        return f"{lost[1]} is gone or is no file of the tables: run the command again"
    return " ".join(message.split())[:1000]


def _absolute(path: str) -> str:
    return path if "://" in path else os.path.abspath(path)


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _name(value: str) -> str:
    return '"' + value.replace('"', '""') + '"'
