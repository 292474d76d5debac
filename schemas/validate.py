"""Validates a frame against its table, wherever rows enter or leave a stage."""

from __future__ import annotations

import polars as pl

from genenv_core.errors import NumericalError, SchemaError
from schemas.registry import schema, spec
from schemas.rules import Rule, compiled

MAX_MESSAGE = 1000
MAX_EXAMPLES = 3
MAX_RULES = 3
MAX_VALUE = 60


def validate(table: str, frame: pl.DataFrame) -> pl.DataFrame:
    """Check every rule; return the frame with the table's column order and types.

    Types may differ only where the conversion keeps every value (int64 to int32, float64 that
    holds float32 values); it refuses anything else and never rounds.

    Raises:
        NumericalError: a NaN or an infinity, in a float column or inside a list.
        SchemaError: any other broken rule. Both name table, column, rule, values and rows.
    """
    if not isinstance(frame, pl.DataFrame):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise SchemaError(
            f"table {table}: got {type(frame).__name__}, and rules are checked on values: "
            "collect() it into a polars DataFrame first"
        )
    frame = _with_types(table, _in_order(table, frame))
    rules = compiled(table)
    counts = frame.select(rule.count.alias(str(i)) for i, rule in enumerate(rules)).row(0)
    broken = [(rule, count) for rule, count in zip(rules, counts, strict=True) if count]
    if broken:
        # A NaN also breaks the bounds of its column; the cause comes first.
        broken.sort(key=lambda item: not item[0].numerical)
        _refuse(table, frame, broken)
    return frame


def _in_order(table: str, frame: pl.DataFrame) -> pl.DataFrame:
    wanted = schema(table).names()
    missing = [name for name in wanted if name not in frame.columns]
    unknown = [name for name in frame.columns if name not in wanted]
    if missing or unknown:
        parts = [f"missing columns: {', '.join(missing)}"] if missing else []
        parts += [f"unknown columns: {', '.join(unknown)}"] if unknown else []
        raise SchemaError(_cut(f"table {table}: {'; '.join(parts)}"))
    return frame.select(wanted)


def _with_types(table: str, frame: pl.DataFrame) -> pl.DataFrame:
    wanted = schema(table)
    if frame.schema == wanted:
        return frame
    return pl.DataFrame(
        [_with_type(table, frame[name], frame, dtype) for name, dtype in wanted.items()]
    )


def _with_type(table: str, column: pl.Series, frame: pl.DataFrame, dtype: pl.DataType) -> pl.Series:
    given = column.dtype
    if given == dtype:
        return column
    place = f"table {table}: column {column.name}: type {given} given, {dtype} wanted"
    if not _may_convert(given, dtype):
        raise SchemaError(_cut(place))
    changed = column.cast(dtype, strict=False)
    back = changed.cast(given, strict=False)
    # Comparing with nulls as values also catches members that the cast turned into nulls. NaN
    # equals NaN here, so that it is the rule about finite numbers that reports it.
    lost = column.ne_missing(back)
    if lost.any():
        examples = _examples(table, frame.filter(lost), (column.name,))
        raise SchemaError(
            _cut(f"{place}, and {lost.sum()} of {len(column)} values would change: {examples}")
        )
    return changed


def _may_convert(given: pl.DataType, wanted: pl.DataType) -> bool:
    if isinstance(given, pl.List) and isinstance(wanted, pl.List):
        inner, member = (
            pl.Series(dtype=given).explode().dtype,
            pl.Series(dtype=wanted).explode().dtype,
        )
        return _may_convert(inner, member)
    if isinstance(given, pl.Null):
        return True
    if isinstance(given, pl.Datetime) and isinstance(wanted, pl.Datetime):
        return given.time_zone == wanted.time_zone
    if isinstance(wanted, pl.String):
        return isinstance(given, pl.Categorical | pl.Enum)
    if wanted.is_float():
        return given.is_numeric() and not given.is_decimal()
    return wanted.is_integer() and given.is_integer()


def _refuse(table: str, frame: pl.DataFrame, broken: list[tuple[Rule, int]]) -> None:
    parts: list[str] = []
    for rule, count in broken[:MAX_RULES]:
        where = f"column {rule.column}: " if rule.column else ""
        examples = _examples(table, frame.filter(rule.bad), rule.show)
        parts.append(
            f"{where}rule '{rule.text}' broken by {count} of {frame.height} rows: {examples}"
        )
    if len(broken) > MAX_RULES:
        parts.append(f"and {len(broken) - MAX_RULES} more rules")
    error = NumericalError if broken[0][0].numerical else SchemaError
    raise error(_cut(f"table {table}: {'; '.join(parts)}"))


def _examples(table: str, rows: pl.DataFrame, show: tuple[str, ...]) -> str:
    """Return the first offending values, each with the key of its row."""
    key = spec(table).key
    found: list[str] = []
    for row in rows.head(MAX_EXAMPLES).iter_rows(named=True):
        values = ", ".join(_value(row[name]) for name in show)
        names = " ".join(f"{name}={_value(row[name])}" for name in key)
        found.append(f"{values} ({names})")
    if rows.height > MAX_EXAMPLES:
        found.append("...")
    return ", ".join(found)


def _value(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= MAX_VALUE else shown[: MAX_VALUE - 3] + "..."


def _cut(message: str) -> str:
    return message if len(message) < MAX_MESSAGE else message[: MAX_MESSAGE - 4] + "..."
