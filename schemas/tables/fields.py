"""The kinds of column that the tables are made of.

Every helper returns a pandera field. The metadata key `dictionary` marks columns with repeating
values for the Parquet writer. `elements` bounds the members of a list column, which pandera cannot
look into.
"""

# pandera leaves its dicts and decorators untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUntypedFunctionDecorator=false

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import pandera.polars as pa
import polars as pl
from pandera.api.polars.model_config import BaseConfig
from pandera.api.polars.types import PolarsData

TokenIds = Annotated[pl.List, pl.Int32]
Logprobs = Annotated[pl.List, pl.Float32]
Mask = Annotated[pl.List, pl.Int8]
Words = Annotated[pl.List, pl.String]
UtcTime = Annotated[pl.Datetime, "us", "UTC"]

# Rounding of logits minus log-sum-exp in float32 may put a certain token a hair above zero.
LOGPROB_SLACK = 1e-3

Rules = dict[str, pl.Expr]


class Table(pa.DataFrameModel):
    """The base of all tables: the set of columns is closed, and a key identifies a row.

    Raise `version` with every change of a column. Where a version only added columns that may be
    null, `added` names them; where it renamed columns, `renamed` maps old names to new ones. genenv
    can then still read files of the version before. `assumed` maps an added column that is not null
    for rows of such files to its value: SQL over the columns of a row, in which all added columns
    of such a row are null. The SQL must give a row of today its own value.
    `rules` maps a rule in words to an expression that is false for a row that breaks it; null
    counts as holding.
    """

    class Config(BaseConfig):
        strict = True

    def __init_subclass__(
        cls,
        *,
        key: tuple[str, ...],
        rules: Rules | None = None,
        version: int = 1,
        added: dict[int, tuple[str, ...]] | None = None,
        renamed: dict[int, dict[str, str]] | None = None,
        assumed: dict[str, str] | None = None,
    ) -> None:
        about: dict[str, Any] = {"version": version, "rules": rules or {}}
        about |= {"added": added or {}, "renamed": renamed or {}, "assumed": assumed or {}}
        cls.Config = type("Config", (Table.Config,), {"unique": list(key), "metadata": about})
        super().__init_subclass__()

    @pa.dataframe_check
    def rules_hold(cls, data: PolarsData) -> pl.LazyFrame:
        """Return whether each row keeps the rules between its columns."""
        rules: Rules = (cls.Config.metadata or {})["rules"]
        held = [rule.fill_null(True) for rule in rules.values()]
        everything = pl.all_horizontal(pl.lit(True), *held).alias("rules_hold")
        return data.lazyframe.select(everything)


def all_set(*columns: str) -> pl.Expr:
    """Return whether these columns all have values; an expression each, so errors quote each."""
    return pl.all_horizontal(*(pl.col(column).is_not_null() for column in columns))


def ident(description: str, *, unique: bool = False, nullable: bool = False) -> Any:
    """Return an id: a non-empty string that sorts; unique ids do not repeat within a file."""
    return pa.Field(
        ne="", nullable=nullable, description=description, metadata={"dictionary": not unique}
    )


def label(description: str, words: type[StrEnum], *, nullable: bool = False) -> Any:
    """Return a column that holds one word of an enum."""
    return pa.Field(
        isin=[word.value for word in words],
        nullable=nullable,
        description=description,
        metadata={"dictionary": True},
    )


def name(description: str, *, nullable: bool = False) -> Any:
    """Return a short repeating string that is never empty."""
    return ident(description, nullable=nullable)


def text(description: str, *, nullable: bool = False) -> Any:
    """Return free text, '' allowed."""
    return pa.Field(nullable=nullable, description=description)


def note(description: str) -> Any:
    """Return free text that is mostly '' and repeats."""
    return pa.Field(description=description, metadata={"dictionary": True})


def json_object(description: str, *, nullable: bool = False) -> Any:
    """Return text that holds one JSON object."""
    return pa.Field(str_matches=r"^\{[\s\S]*\}$", nullable=nullable, description=description)


def json_array(description: str) -> Any:
    """Return text that holds one JSON array."""
    return pa.Field(str_matches=r"^\[[\s\S]*\]$", description=description)


def count(description: str, *, low: int = 0, nullable: bool = False) -> Any:
    """Return a whole number, at least `low`."""
    return pa.Field(
        ge=low, nullable=nullable, description=description, metadata={"dictionary": True}
    )


def flag(description: str, *, nullable: bool = False) -> Any:
    """Return a truth value."""
    return pa.Field(nullable=nullable, description=description)


def share(description: str, *, nullable: bool = False) -> Any:
    """Return a number from 0 to 1."""
    return pa.Field(ge=0, le=1, nullable=nullable, description=description)


def number(description: str, *, low: float | None = None, nullable: bool = False) -> Any:
    """Return a finite number, at least `low` when given."""
    return pa.Field(ge=low, nullable=nullable, description=description)


def moment(description: str, *, nullable: bool = False) -> Any:
    """Return a point in time, UTC, microseconds."""
    return pa.Field(nullable=nullable, description=description)


def members(
    description: str, *, low: float | None = None, high: float | None = None, few: bool = False
) -> Any:
    """Return a list column whose members are between `low` and `high`; `few` distinct values."""
    return pa.Field(description=description, metadata={"elements": (low, high), "dictionary": few})


def token_ids(description: str) -> Any:
    """Return a list of token ids."""
    return members(description, low=0)


def logprobs(description: str) -> Any:
    """Return a list of natural-log probabilities."""
    return members(description, high=LOGPROB_SLACK)
