"""A read-only DuckDB over the tables of runs: each table a view over the files that manifests name.

It copies nothing and has no database file, so a query never blocks a writer. `run_id` and `arm` are
constants of each run's branch of a view, so a filter on them drops whole runs before DuckDB reads a
row (it still opens the first file of each branch, for its column types).
"""

# pyarrow has no stubs.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import duckdb
import polars as pl
import pyarrow as pa

from genenv_core.errors import QueryError, TablesError
from genenv_core.storage.sql.admission import admit
from genenv_core.storage.sql.comments import comments
from genenv_core.storage.sql.duck import (
    Setup,
    build,
    name,
    of_files,
    start,
    text,
    with_place,
    words_of,
)
from genenv_core.storage.sql.types import carried, with_whole_days
from schemas.registry import TABLES, schema, spec
from schemas.relations import empty_select, sql_name, table_relation, views
from schemas.validate import validate

_ONE_ID = re.compile(
    r"""\s*(select\s.*\s)?from\s+"?(?P<table>\w+)"?\s+where\s+"?(?P<column>\w+)"?\s*=\s*"""
    r"""'(?P<id>[^']*)'\s*(;\s*|(and|order|limit|group)\b.*)?""",
    re.I | re.S,
)
_NOT_PLAIN = {
    "or",
    "union",
    "except",
    "intersect",
    "join",
    "with",
    "pivot",
    "unpivot",
    "using",
    "table",
}


@dataclass(frozen=True, slots=True)
class RunSource:
    """The rows of one run: Parquet files by table, in row order, and small tables in memory."""

    run_id: str
    arm: str
    files: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    frames: dict[str, pl.DataFrame] = field(default_factory=dict[str, pl.DataFrame])


def connect(
    sources: Sequence[RunSource], *, memory_limit: str = "1GB", described: bool = False
) -> duckdb.DuckDBPyConnection:
    """Return a locked in-memory DuckDB with every table and view over these runs.

    With `described`, its catalog has the data dictionary as comments.

    It can open the files of `sources` and no others, loads no extension, spills nothing to disk,
    and its settings cannot be changed. Raises TablesError when a file cannot be opened.
    """
    wanted = setup(sources, described=described)
    con = start(memory_limit)
    try:
        build(con, wanted)
    except BaseException:
        con.close()
        raise
    return con


def setup(sources: Sequence[RunSource], *, described: bool = False) -> Setup:
    """Return what builds every table and view over these runs; raises QueryError, SchemaError."""
    ids = [source.run_id for source in sources]
    twice = sorted({run for run in ids if ids.count(run) > 1})
    if twice:
        raise QueryError(f"run {twice[0]} was given twice: name each run once")
    held: dict[str, pa.Table] = {}
    for index, source in enumerate(sources):
        for table in (*source.files, *source.frames):
            spec(table)
        for table, frame in source.frames.items():
            if frame.height:
                held[f"{table}_{index}"] = validate(table, frame).to_arrow()
    statements: list[str] = []
    older: dict[str, str] = {}
    for table in TABLES:
        statements.append(_table(table, sources))
        if spec(table).added:
            older[statements[-1]] = _table(table, sources, older=True)
    own = {view.name: view.create for view in views()}
    if described:
        statements += [*own.values(), *comments()]
        own = {}
    paths = {_absolute(p) for source in sources for group in source.files.values() for p in group}
    types = {
        f"{sql_name(table)}.{column.name}": column.sql_type
        for table in TABLES
        for column in table_relation(table).columns
    }
    return Setup(held, tuple(statements), own, tuple(sorted(paths)), older, types)


def tables_named(sql: str) -> set[str]:
    """Return the tables that a query can read: those that it names, and those below named views.

    A query has to spell what it reads, because `admission` refuses the functions that run text.
    Names in strings and comments only make the answer larger.
    """
    known = {sql_name(table).lower(): {table} for table in TABLES}
    for view in views():
        known[view.name.lower()] = _spelled(view.create, known)
    return _spelled(sql, known)


def id_named(sql: str) -> tuple[str, str] | None:
    """Return the table and the id of a query that reads nothing but rows with one id, else None.

    Only the form of the query decides. Anything less plain than `SELECT ... FROM table WHERE
    id = 'x'`, with an AND, an order or a limit at most, counts as a query of all rows.
    """
    plain = _ONE_ID.fullmatch(sql)
    words = re.findall(r"\w+", sql.lower())
    if plain is None or set(words) & _NOT_PLAIN or "--" in sql or "/*" in sql:
        return None
    named, column, ident = plain["table"].lower(), plain["column"].lower(), plain["id"]
    if any(words.count(word) > 1 for word in ("select", "from", "where", named)):
        return None
    for table, known in TABLES.items():
        same = sql_name(table).lower() == named and known.id_column.lower() == column
        # Bounds of numbers are not in the order of their texts.
        if same and schema(table)[known.id_column] == pl.String:
            return table, ident
    return None


def _spelled(text: str, known: Mapping[str, set[str]]) -> set[str]:
    return {table for name in words_of(text) & known.keys() for table in known[name]}


def query(con: duckdb.DuckDBPyConnection, sql: str) -> pl.DataFrame:
    """Return the rows of one SELECT-like statement.

    Raises TablesError where a file of the tables is at fault, and QueryError for other statements.
    """
    try:
        admit(con, sql)
        return frame_of(carried(con.sql(sql)).to_arrow_table())
    except duckdb.Error as error:
        kind = TablesError if of_files(error) else QueryError
        raise kind(with_place(error)) from error


def frame_of(rows: pa.Table) -> pl.DataFrame:
    """Return rows of types that `carried` lets through as a frame, with every value."""
    frame = pl.from_arrow(with_whole_days(rows))
    assert isinstance(frame, pl.DataFrame)
    return with_plain_integers(frame)


def _table(table: str, sources: Sequence[RunSource], *, older: bool = False) -> str:
    """Return the statement that creates a table's view; `older`: over files of older versions."""
    branches = [
        branch
        for index, source in enumerate(sources)
        for branch in _branches(table, index, source, older)
    ]
    select = " UNION ALL ".join(branches) if branches else empty_select(table)
    return f"CREATE VIEW {name(sql_name(table))} AS {select}"


def _branches(table: str, index: int, source: RunSource, older: bool) -> list[str]:
    """Return the SELECTs that give one run's rows of a table."""
    froms: list[str] = []
    if paths := source.files.get(table):
        listed = ", ".join(text(_absolute(path)) for path in paths)
        mixed = ", union_by_name = true" if older or spec(table).earlier_names() else ""
        # Else a folder called epoch=7 above the root would give every row the epoch 7.
        parts = f"read_parquet([{listed}]{mixed}, hive_partitioning = false)"
        froms.append(_with_added(table, parts) if older else parts)
    frame = source.frames.get(table)
    if frame is not None and frame.height:
        froms.append(f"held.{name(f'{table}_{index}')}")
    own = ", ".join(_column(table, column.name) for column in table_relation(table).columns[2:])
    run = f"{text(source.run_id)} AS run_id, {text(source.arm)} AS arm"
    return [f"SELECT {run}, {own} FROM {origin}" for origin in froms]


def _with_added(table: str, parts: str) -> str:
    """Return `parts` with the columns that later versions added.

    Rows of a file without such a column have null there, or the value that the table assumes.
    """
    types = {column.name: column.sql_type for column in table_relation(table).columns}
    absent = [f"CAST(NULL AS {types[added]}) AS {name(added)}" for added in spec(table).added]
    whole = f"(FROM {parts} UNION ALL BY NAME SELECT {', '.join(absent)} WHERE false)"
    values = [f"{value} AS {name(column)}" for column, value in spec(table).assumed.items()]
    return f"(SELECT * REPLACE ({', '.join(values)}) FROM {whole})" if values else whole


def _column(table: str, column: str) -> str:
    """Return a column as SQL; where it was renamed, it reads the old name and the new one."""
    earlier = spec(table).earlier_names().get(column)
    if earlier is None:
        return name(column)
    return f"coalesce(*COLUMNS('^({column}|{earlier})$')) AS {name(column)}"


def with_plain_integers(frame: pl.DataFrame) -> pl.DataFrame:
    """Return sums of integers, which DuckDB widens to 128 bits, as int64 where they fit.

    A column with a number of more digits than a decimal has becomes text.
    """
    changed: list[pl.Series] = []
    for column in frame.iter_columns():
        if isinstance(column.dtype, pl.Decimal) and column.dtype.scale == 0:
            narrow = column.cast(pl.Int64, strict=False)
            if narrow.null_count() == column.null_count():
                changed.append(narrow)
                continue
            digits = column.cast(pl.String)
            if (digits.str.strip_prefix("-").str.len_bytes() > column.dtype.precision).any():
                changed.append(digits)
    return frame.with_columns(changed)


def _absolute(path: str) -> str:
    return path if "://" in path else os.path.abspath(path)
