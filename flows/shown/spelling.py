"""Rows and records as text that holds every value: csv, JSON and cells of tables.

polars writes most values itself. It has no text for times outside of the years 1 to 9999, infinite
times, blobs and maps by number, and JSON has no numbers for NaN and infinity.
"""

# pyarrow has no stubs.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date, datetime
from typing import Any

import polars as pl

from flows.shown.odd_numbers import with_odd, written
from genenv_core.storage.sql import types


def spelled(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a frame in which the columns that polars cannot write as text are text."""
    hard = [column.name for column in frame.iter_columns() if _hard(column)]
    if not hard:
        return frame
    text = pl.from_arrow(types.spelled(frame.select(hard).to_arrow()))
    assert isinstance(text, pl.DataFrame)
    return frame.with_columns(text.get_columns())


def flat(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a frame whose nested columns are JSON texts, as a csv needs them."""
    changed = [
        pl.Series(
            column.name,
            [None if value is None else nested(value, ascii_=True) for value in column.to_list()],
            dtype=pl.String,
        )
        for column in frame.iter_columns()
        if _is_nested(column.dtype)
    ]
    return frame.with_columns(changed)


def json_of(frame: pl.DataFrame) -> str:
    """Return a frame as a JSON list of objects, and a newline; odd numbers are strings."""
    # write_json keeps dates and 64-bit integers as JSON readers expect them.
    text = frame.write_json()
    odd = [column.name for column in frame.iter_columns() if any(map(_odd, _leaves(column)))]
    if odd:
        rows = json.loads(text)
        for row, values in zip(rows, frame.select(odd).iter_rows(named=True), strict=True):
            row.update((name, with_odd(row[name], value)) for name, value in values.items())
        text = written(rows, ensure_ascii=False, separators=(",", ":"))
    return f"{text}\n"


def nested(value: Any, *, ascii_: bool = False) -> str:
    """Return a list or a structure as JSON; odd numbers are strings."""
    return written(with_odd(value, value), default=str, ensure_ascii=ascii_)


def _is_nested(dtype: pl.DataType) -> bool:
    return dtype.is_nested() or isinstance(dtype, pl.Map)


def _hard(column: pl.Series) -> bool:
    """Return whether polars cannot write all values of a column as text, or could lose digits."""
    dtype = column.dtype
    if _is_nested(dtype):
        return any(
            isinstance(leaf.dtype, pl.Binary | pl.Map) or leaf.dtype.is_temporal()
            for leaf in _leaves(column)
        )
    if isinstance(dtype, pl.Date):
        return _beyond(column, date.min, date.max)
    if isinstance(dtype, pl.Datetime) and dtype.time_unit != "ns":
        return _beyond(column.dt.replace_time_zone(None), datetime.min, datetime.max)
    return isinstance(dtype, pl.Binary) or dtype.is_temporal()


def _beyond(column: pl.Series, first: date, last: date) -> bool:
    """Return whether a value is outside of what Python's dates can be."""
    return bool(((column < first) | (column > last)).any())


def _leaves(column: pl.Series) -> Iterator[pl.Series]:
    """Yield the columns of plain values inside of a column, and the maps."""
    dtype = column.dtype
    if isinstance(dtype, pl.List | pl.Array):
        yield from _leaves(column.explode())
    elif isinstance(dtype, pl.Struct):
        for field in dtype.fields:
            yield from _leaves(column.struct.field(field.name))
    else:
        yield column


def _odd(column: pl.Series) -> bool:
    """Return whether a column may hold numbers that JSON does not have, or polars has as texts."""
    if isinstance(column.dtype, pl.Map | pl.Decimal):
        return True
    return column.dtype.is_float() and not column.is_finite().all()
