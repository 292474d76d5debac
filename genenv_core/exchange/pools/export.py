"""Writes a pool as a data set: Parquet shards or JSONL, and a card that says what is in it.

Rows stream through in chunks. The folder appears when everything is written, or not at all.
"""

# pyarrow has no stubs.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from genenv_core.canonical import digest
from genenv_core.domains.registry import get_domain
from genenv_core.errors import ConfigError, QueryError, StorageError
from genenv_core.exchange import Format, Pool
from genenv_core.exchange.pools.rows import SCHEMAS, PoolReader, Row
from genenv_core.named_files import why_not_written
from genenv_core.storage.sql.catalog import query

SHARD_ROWS = 200_000
"""Rows of a Parquet file, about."""

_REWARD = {"d_train": "reward", "d_env": "r_env"}


@dataclass(frozen=True, slots=True)
class PoolSelection:
    """Which rows of a pool to export; `epochs` includes both ends."""

    epochs: tuple[int, int] | None = None
    kept: bool = False
    min_reward: float | None = None

    def condition(self, pool: Pool) -> str:
        """Return it as SQL; raises ConfigError for a filter that would do nothing."""
        conditions: list[str] = []
        if self.epochs:
            conditions.append(f"epoch BETWEEN {self.epochs[0]} AND {self.epochs[1]}")
        if self.kept:
            if pool == "d_train":
                raise ConfigError(
                    "--kept does nothing for d_train, which holds only kept rollouts: leave it out"
                )
            conditions.append("kept")
        if self.min_reward is not None:
            conditions.append(f"{_REWARD[pool]} >= {self.min_reward!r}")
        return " AND ".join(conditions) or "true"


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written: the folder, the number of rows, the bytes of all files.

    `changes` counts what was left out or completed, in words.
    """

    folder: Path
    rows: int
    bytes: int
    changes: dict[str, int]


def export(
    con: duckdb.DuckDBPyConnection,
    run: str,
    pool: Pool,
    format_: Format,
    folder: Path,
    selection: PoolSelection,
) -> Exported:
    """Write a pool of one run into a new folder, from an open connection over the run.

    Raises ConfigError when the folder is not empty, QueryError when no row fits.
    """
    runs = query(con, "SELECT run_id, config FROM runs")
    config = json.loads(dict(runs.iter_rows())[run])
    options = config["domain"].get("options") or {}
    domain = get_domain(config["domain"]["name"], options)
    reader = PoolReader(con, run, pool, selection.condition(pool), domain, options)
    with new_folder(folder) as scratch:
        chunks = reader.chunks(format_)
        rows = (
            _write_jsonl(scratch / "train.jsonl", chunks)
            if format_ == "jsonl"
            else _write_parquet(scratch / "data", SCHEMAS[pool, format_], chunks)
        )
        if not rows:
            raise QueryError(
                f"no row of {pool} of run {run} fits ({selection.condition(pool)}): "
                "widen the filters, or let the run finish an epoch"
            )
        changes = {what: count for what, count in reader.changes.items() if count}
        text = card(run, pool, format_, selection, rows, config, changes)
        (scratch / "README.md").write_text(text, encoding="utf-8")
        size = size_of(scratch)
    return Exported(folder, rows, size, changes)


@contextmanager
def new_folder(folder: Path) -> Generator[Path]:
    """Yield a folder to write into, which takes this place once the block has ended well.

    Raises ConfigError when something is there already or genenv cannot begin to write there,
    StorageError when it cannot write on.
    """
    if os.path.lexists(folder) and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"-o {folder}: is there already: name another folder or remove it")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise ConfigError(f"-o {folder}: {why_not_written(folder, error, folder=True)}") from error
    try:
        yield scratch
        scratch.chmod(0o755)
        scratch.replace(folder)
    except OSError as error:
        raise StorageError(f"-o {folder}: {why_not_written(folder, error)}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def size_of(folder: Path) -> int:
    """Return the bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def card(
    run: str,
    pool: Pool,
    format_: Format,
    selection: PoolSelection,
    rows: int,
    config: dict[str, Any],
    changes: dict[str, int],
) -> str:
    """Return the data set's README, with the header that the Hugging Face tools read."""
    changed = "".join(f"\n| {what} | {count} |" for what, count in changes.items())
    files = "train.jsonl" if format_ == "jsonl" else "data/*.parquet"
    epochs = (
        "all" if selection.epochs is None else f"{selection.epochs[0]} to {selection.epochs[1]}"
    )
    what = {
        ("d_train", "hf"): "one turn of pi_agent a row; `prompt` + `completion` = `messages`",
        ("d_train", "jsonl"): "one rollout of pi_agent a line, by the rules of fine-tuning files",
        ("d_train", "verl"): "one task a row, with its ground truth",
        ("d_env", "hf"): "one generation of pi_env a row; `prompt` + `completion` = `messages`",
        ("d_env", "jsonl"): "one generation of pi_env a line",
        ("d_env", "verl"): "one generation of pi_env a row; `ground_truth` is its text",
    }[pool, format_]
    caution = (
        "Failed rollouts are among them: for supervised training export with `--min-reward 1`.\n"
        if pool == "d_train" and format_ != "verl" and not selection.min_reward
        else ""
    )
    return f"""---
configs:
- config_name: default
  data_files: {files}
tags: [genenv]
---

# {pool} of {run}

Written by genenv: {what}. Texts were written by models and programs; nobody read them all.
{caution}
| | |
|---|---|
| run | `{run}` |
| arm, domain, seed | {config["arm"]}, {config["domain"]["name"]}, {config["seed"]} |
| rows | {rows} |{changed}
| epochs | {epochs} |
| only kept | {"yes" if selection.kept else "no"} |
| least {_REWARD[pool]} | {"none" if selection.min_reward is None else selection.min_reward} |
| format | {format_} |
| config sha256 | `{digest(config)}` |
"""


def _write_parquet(folder: Path, schema: Any, chunks: Iterator[list[Row]]) -> int:
    folder.mkdir()
    total, shard, writer = 0, 0, None
    try:
        for rows in chunks:
            if writer is None:
                path = folder / f"train-{shard:05d}.parquet"
                writer = pq.ParquetWriter(path, schema, compression="zstd")
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))
            total += len(rows)
            if total >= (shard + 1) * SHARD_ROWS:
                writer.close()
                writer, shard = None, shard + 1
    finally:
        if writer is not None:
            writer.close()
    return total


def _write_jsonl(path: Path, chunks: Iterator[list[Row]]) -> int:
    total = 0
    with path.open("w", encoding="utf-8") as out:
        for rows in chunks:
            out.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            total += len(rows)
    return total
