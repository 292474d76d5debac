"""The rules of a table, compiled once from its pandera model into polars expressions.

pandera spends about 2 ms a column on bookkeeping, which is 50 ms for a wide table of any size, and
does not look into lists. Here all rules of a table are one `select`. The model stays the only
source: a check that this module does not know is an error, and a test compares its verdicts with
pandera's own.
"""

# pandera leaves its dicts untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import polars as pl
from pandera.api.checks import Check
from pandera.api.polars.components import Column as PanderaColumn

from genenv_core.errors import SchemaError
from schemas.registry import dtype_of, elements_of, model_columns, spec


@dataclass(frozen=True)
class Rule:
    """One rule of a table.

    `count` yields how many values break it; `bad` is true for rows that break it; `show` are the
    columns whose values a message quotes. `numerical` rules are about NaN and infinity.
    """

    column: str
    text: str
    count: pl.Expr
    bad: pl.Expr
    show: tuple[str, ...]
    numerical: bool = False


@cache
def compiled(table: str) -> tuple[Rule, ...]:
    """Return every rule of the table: of its columns, between its columns, of its key."""
    found: list[Rule] = []
    for name, column in model_columns(table).items():
        found.extend(_column_rules(table, name, column))
    for text, holds in spec(table).rules.items():
        bad = holds.not_().fill_null(False)
        found.append(Rule("", text, bad.sum(), bad, tuple(holds.meta.root_names())))
    key = spec(table).key
    bad = pl.struct(key).is_duplicated()
    # Counting distinct keys is several times cheaper than marking the repeated ones.
    distinct = pl.col(key[0]) if len(key) == 1 else pl.struct(key)
    repeated = pl.len() - distinct.n_unique()
    found.append(Rule(", ".join(key), "unique", repeated, bad, key))
    return tuple(found)


def _column_rules(table: str, name: str, column: PanderaColumn) -> Iterator[Rule]:
    value = pl.col(name)
    dtype = dtype_of(column)
    if not column.nullable:
        yield _plain(name, "not null", value.is_null())
    if isinstance(dtype, pl.List):
        yield from _member_rules(name, dtype, elements_of(column))
    elif dtype.is_float():
        yield _plain(name, "finite", value.is_finite().not_(), numerical=True)
    for check in column.checks:
        text, bad = _check(table, name, check)
        yield _plain(name, text, bad)


def _plain(name: str, text: str, bad: pl.Expr, *, numerical: bool = False) -> Rule:
    bad = bad.fill_null(False)
    return Rule(name, text, bad.sum(), bad, (name,), numerical)


def _member_rules(
    name: str, dtype: pl.List, bounds: tuple[float | None, float | None]
) -> Iterator[Rule]:
    member = pl.element()
    low, high = bounds
    yield _member(name, "members not null", member.is_null())
    if dtype.inner.is_float():
        yield _member(name, "members finite", member.is_finite().not_(), numerical=True)
    if low is not None:
        yield _member(name, f"members >= {low:g}", member < low)
    if high is not None:
        yield _member(name, f"members <= {high:g}", member > high)


def _member(name: str, text: str, bad: pl.Expr, *, numerical: bool = False) -> Rule:
    # `bad` is about pl.element(). Each list becomes one flag; null lists count as good.
    flags = pl.col(name).list.eval(bad.fill_null(False).any()).list.first()
    return _plain(name, text, flags, numerical=numerical)


def _check(table: str, name: str, check: Check) -> tuple[str, pl.Expr]:
    """Return a check in words and an expression for values that fail it."""
    value = pl.col(name)
    known: dict[str, Any] = check.statistics or {}
    match check.name:
        case "greater_than_or_equal_to":
            return f">= {known['min_value']:g}", value < known["min_value"]
        case "less_than_or_equal_to":
            return f"<= {known['max_value']:g}", value > known["max_value"]
        case "not_equal_to":
            return f"not {known['value']!r}", value == known["value"]
        case "isin":
            words: list[str] = list(known["allowed_values"])
            return f"one of {', '.join(words)}", value.is_in(words).not_()
        case "str_matches":
            return f"matches {known['pattern']}", value.str.contains(known["pattern"]).not_()
        case _:
            raise SchemaError(
                f"table {table}: column {name}: check {check.name!r} has no compiled form: "
                "add it to schemas/rules.py"
            )
