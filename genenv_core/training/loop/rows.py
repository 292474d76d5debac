"""Checks of an update's rows, before any training: each failure names the row and the value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from genenv_core.errors import GenenvError, TrainingError


def read_rows(
    path: Path, columns: dict[str, Any], policy: str, *, maybe: dict[str, Any] | None = None
) -> pl.DataFrame:
    """Return the rows of an update with exactly `columns`, cast; `TrainingError` for unusable ones.

    Those of the columns `maybe` that the file has come behind them.
    """
    try:
        frame = pl.read_parquet(path, glob=False)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise TrainingError(f"rows of {policy} in {path} cannot be read: {error}") from error
    there = {name: kind for name, kind in (maybe or {}).items() if name in frame.columns}
    columns = columns | there
    if missing := [name for name in columns if name not in frame.columns]:
        raise TrainingError(f"rows of {policy} in {path} lack column(s) {', '.join(missing)}")
    if frame.is_empty():
        raise TrainingError(f"rows of {policy} in {path}: none; an update needs at least one")
    try:
        frame = frame.select(pl.col(name).cast(kind) for name, kind in columns.items())
    except pl.exceptions.PolarsError as error:
        raise TrainingError(f"rows of {policy} in {path} have a wrong type: {error}") from error
    for name, nulls in frame.null_count().row(0, named=True).items():
        if nulls:
            raise TrainingError(f"rows of {policy} in {path}: column {name} has {nulls} nulls")
    return frame


@dataclass(frozen=True, slots=True)
class RowRoom:
    """What rows must fit into: a `vocabulary`, and `positions` where a model has a limit of them.

    See `steady_positions`: `field` of the configuration bounds the rows, if one does.
    """

    vocabulary: int
    positions: int | None = None
    field: str | None = None


def check_room(
    key: str,
    keys: Sequence[str],
    prompts: Sequence[list[int]],
    completions: Sequence[list[int]],
    room: RowRoom,
) -> None:
    """Raise `TrainingError` for the first row with a token or a position outside of `room`."""
    size, most = room.vocabulary, room.positions
    for identity, prompt, completion in zip(keys, prompts, completions, strict=True):
        low, high = min(*prompt, *completion), max(*prompt, *completion)
        if low < 0 or high >= size:
            raise TrainingError(
                f"{key} {identity!r}: token id {low if low < 0 else high} is outside the "
                f"vocabulary of {size}"
            )
        length = len(prompt) + len(completion)
        if most is not None and length > most:
            raise TrainingError(
                f"{key} {identity!r}: {length} tokens, and the rotary embedding of this model "
                f"(dynamic or longrope) turns each position by the longest row beside it beyond "
                f"{most}: lower {room.field or 'the length of the examples'} so that prompt and "
                f"completion have {most} tokens at most"
            )


def refuse(
    frame: pl.DataFrame,
    bad: pl.Expr,
    shown: pl.Expr,
    message: str,
    *,
    key: str,
    error: type[GenenvError] = TrainingError,
) -> None:
    """Raise `error` for the first row where `bad` holds, naming its key and the value `shown`."""
    hits = frame.filter(bad).select(pl.col(key), shown.alias("shown")).head(1)
    if not hits.is_empty():
        identity, value = hits.row(0)
        raise error(f"{key} {identity!r}: {message}, got {value}")
