"""Values of types that only DuckDB has, as types that Arrow, polars and Parquet share.

DuckDB itself makes every cast, in two steps. `carried` comes before rows leave it: what has no
counterpart elsewhere becomes text. `spelled` comes before rows become a text: what polars can hold
and not write (infinite times, years beyond 9999, 24:00, blobs, odd keys of maps) becomes text.
"""

# pyarrow has no stubs.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, cast

import duckdb
import pyarrow as pa

from genenv_core.storage.sql.duck import name

TEXT = "VARCHAR"

# All other types, and those that a later DuckDB adds, become text.
_SHARED = {
    *("boolean", "float", "double", "decimal", "varchar", "blob"),
    *("tinyint", "smallint", "integer", "bigint"),
    *("utinyint", "usmallint", "uinteger", "ubigint"),
    *("date", "timestamp", "timestamp with time zone", "timestamp_ns"),
}
# Their counterparts lack a few values, which readers of the rows have to handle
# (`with_whole_days`, `with_plain_integers`).
_NEARLY = {"hugeint", "time", "time_ns"}
_TIMES = {"date", "time", "timestamp", "timestamp with time zone", "timestamp_ns", "time_ns"}
_DAY_US = 86_400_000_000


def carried(result: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """Return a result whose types Arrow and polars share, under names that are unique.

    Names that come twice get numbers, as in DuckDB's own tables.
    """
    names = {column.lower() for column in result.columns}
    # DuckDB plans all views below anew for each relation that is made of another.
    unique = result if len(names) == len(result.columns) else result.project("*")
    columns = [
        (column, str(kind) if kind.id in _NEARLY else _retyped(kind, _shared), str(kind))
        for column, kind in zip(unique.columns, unique.types, strict=True)
    ]
    return _cast(unique, columns)


def spelled(rows: pa.Table) -> pa.Table:
    """Return columns in which all times and blobs are text, also inside of lists and others."""
    # DuckDB takes names that differ in case for one.
    plain = rows.rename_columns([f"c{index}" for index in range(rows.num_columns)])
    with _casts().cursor() as con:
        con.execute("SET TimeZone = 'UTC'")
        con.execute("SET arrow_large_buffer_size = true")
        held = con.from_arrow(plain)
        wanted = [
            (column, _retyped(kind, _spellable), str(kind))
            for column, kind in zip(held.columns, held.types, strict=True)
        ]
        return _cast(held, wanted).to_arrow_table().rename_columns(rows.column_names)


@cache
def _casts() -> duckdb.DuckDBPyConnection:
    """Return an empty DuckDB for casts, made once: a start takes as long as many casts."""
    return duckdb.connect(":memory:")


def with_whole_days(rows: pa.Table) -> pa.Table:
    """Return rows in which columns of times with 24:00, which polars drops, are text."""
    from pyarrow import compute  # the process of a query needs none of it and starts sooner

    for index, column in enumerate(rows.columns):
        if pa.types.is_time64(column.type):
            last = cast("Any", compute).max(column.cast(pa.int64())).as_py()
            day = _DAY_US * (1000 if column.type.unit == "ns" else 1)
            if last is not None and last >= day:
                text = spelled(rows.select([index]))
                rows = rows.set_column(index, text.field(0), text.column(0))
    return rows


def _cast(
    rows: duckdb.DuckDBPyRelation, columns: list[tuple[str, str, str]]
) -> duckdb.DuckDBPyRelation:
    """Return rows with each column as (name, wanted type, its own type) says."""
    if all(wanted == own for _, wanted, own in columns):
        return rows
    casts = [
        name(column) if wanted == own else f"CAST({name(column)} AS {wanted}) AS {name(column)}"
        for column, wanted, own in columns
    ]
    return rows.project(", ".join(casts))


def _shared(kind: str) -> str | None:
    if kind in _SHARED:
        return None
    return "TIMESTAMP" if kind in ("timestamp_s", "timestamp_ms") else TEXT


def _spellable(kind: str) -> str | None:
    return TEXT if kind in _TIMES or kind == "blob" else None


def _retyped(kind: Any, leaf: Callable[[str], str | None]) -> str:
    """Return a type as SQL; `leaf` says what a kind of leaf becomes, None where it stays."""
    if kind.id not in ("list", "array", "map", "struct"):
        return leaf(kind.id) or str(kind)
    children = cast("list[tuple[str, Any]]", kind.children)
    first = children[0][1]
    if kind.id == "list":
        return f"{_retyped(first, leaf)}[]"
    if kind.id == "array":
        return f"{_retyped(first, leaf)}[{children[1][1]}]"
    if kind.id == "map":
        # Python takes no list or structure as a key, and JSON no number.
        key = TEXT if leaf is _spellable else _retyped(first, leaf)
        return f"MAP({key}, {_retyped(children[1][1], leaf)})"
    named = (
        f"{name(field or str(place))} {_retyped(own, leaf)}"
        for place, (field, own) in enumerate(children, 1)
    )
    return f"STRUCT({', '.join(named)})"
