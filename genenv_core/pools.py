"""The pools in Python: one call for a DuckDB connection, one for the rows of a query.

    from genenv_core import pools

    pools.frame("./genenv-data", "SELECT epoch, p_hat FROM epochs")  # a polars frame
    con = pools.connect("./genenv-data")                              # tables and views as they are

Both see the stages that have finished by the call, also while runs write.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import duckdb
import polars as pl

from genenv_core.errors import QueryError
from genenv_core.named_files import unwritable
from genenv_core.storage import paths
from genenv_core.storage.sql.attach import write_views
from genenv_core.storage.sql.catalog import id_named, tables_named
from genenv_core.storage.sql.sandbox import Answer, Limits, ask
from genenv_core.storage.sql.sources import answered, open_tables
from genenv_core.storage.store.opening import open_store
from genenv_core.storage.store.protocol import Store

DEFAULT = Limits()

__all__ = ["Answer", "Limits", "answer", "attach_file", "connect", "frame"]


def connect(
    root: str | os.PathLike[str], runs: Sequence[str] = (), *, memory: str = "1GB"
) -> duckdb.DuckDBPyConnection:
    """Return a DuckDB in this process over the tables of runs, all by default.

    Its catalog holds the dictionary as comments: `SELECT comment FROM duckdb_columns()`.
    It locks its settings and opens no other files, but it is for your own SQL: as root, it does not
    stop a COPY over one of the pool's files. Run SQL of other people with `frame`. Raises
    QueryError for an unknown root or run.
    """
    return open_tables(reader(root), runs, memory=memory, described=True)


def attach_file(root: str | os.PathLike[str], path: Path) -> int:
    """Write a DuckDB file of views over the runs of a root; return how many files the views read.

    Raises QueryError for an unknown root or one in an object store, for a path inside the root,
    and for an existing file that this function did not write.
    """
    store = reader(root)
    if "://" in os.fspath(root):
        raise QueryError(
            f"--attach-file: {root} is no folder, and views need files that DuckDB opens as they "
            "are: copy it with `genenv copy`, or use genenv_core.pools.connect, which fetches them"
        )
    place = Path(os.path.realpath(path))
    if place.is_relative_to(os.path.realpath(root)):
        raise QueryError(f"--attach-file {path} is inside the root {root}: choose another place")
    if why := unwritable(path):
        raise QueryError(f"--attach-file {path}: {why}")
    return answered(store, (), lambda found: write_views(found, place))


def frame(
    root: str | os.PathLike[str],
    sql: str,
    runs: Sequence[str] = (),
    *,
    timeout_s: float = 60.0,
    memory: str = "1GB",
) -> pl.DataFrame:
    """Return the rows of one SELECT, from a process that can read the pools and no other file.

    Raises QueryError for a forbidden query, one that fails, and one that needs more than
    `timeout_s` or `memory`.
    """
    return answer(root, sql, runs, Limits(timeout_s, memory)).frame


def answer(
    root: str | os.PathLike[str], sql: str, runs: Sequence[str] = (), limits: Limits = DEFAULT
) -> Answer:
    """Return the rows of one SELECT as `frame` does, under these limits."""
    return answered(
        reader(root),
        runs,
        lambda found: ask(found, sql, limits),
        tables=tables_named(sql),
        only=id_named(sql),
    )


def reader(root: str | os.PathLike[str]) -> Store:
    """Return the store of an existing root, without writing; raises QueryError."""
    store = open_store(os.fspath(root), writable=False)
    if not store.names(paths.runs()):
        raise QueryError(
            f"there is no run under {root}: start one with `genenv run`, or name another --root"
        )
    return store
