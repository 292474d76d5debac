"""`genenv export`."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import Root
from flows.cli.roots import existing


class PoolName(StrEnum):
    """A pool."""

    D_TRAIN = "d_train"
    D_ENV = "d_env"


class ExportFormat(StrEnum):
    """Who is to read it: Hugging Face tools, OpenAI-style APIs, verl."""

    HF = "hf"
    JSONL = "jsonl"
    VERL = "verl"


def export(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run.")],
    pool: Annotated[PoolName, typer.Option(help="d_train: rollouts; d_env: generations.")],
    format_: Annotated[ExportFormat, typer.Option("--format", help="Who reads it.")] = (
        ExportFormat.HF
    ),
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A new folder (without it RUN-POOL-FORMAT)."),
    ] = None,
    epochs: Annotated[
        str | None, typer.Option(help="Epochs, both ends included: 3:8, or 5.")
    ] = None,
    kept: Annotated[bool, typer.Option("--kept", help="d_env: only what the filter kept.")] = False,
    min_reward: Annotated[
        float | None, typer.Option(help="Least R_agent (d_train) or R_env (d_env).")
    ] = None,
    root: Root = None,
) -> None:
    """Write a pool as a data set: Parquet for Hugging Face tools or verl, or JSONL."""
    from genenv_core.exchange import export as core
    from genenv_core.storage.pools import open_pools

    selection = core.Selection(_epochs(epochs), kept, min_reward)
    folder = output or Path(f"{run}-{pool.value}-{format_.value}")
    with open_pools(existing(root), [run]) as connection:
        done = core.export(connection, run, pool.value, format_.value, folder, selection)
    typer.echo(f"{done.folder}: {done.rows} rows, {done.bytes / 1e6:.1f} MB, see its README.md")


def _epochs(text: str | None) -> tuple[int, int] | None:
    from genenv_core.errors import ConfigError

    if text is None:
        return None
    found = re.fullmatch(r"(\d+)(?::(\d+))?", text)
    if not found or int(found[2] or found[1]) < int(found[1]):
        raise ConfigError(f"--epochs {text!r}: expected first:last such as 3:8, or one epoch")
    return int(found[1]), int(found[2] or found[1])
