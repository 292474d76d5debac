"""A DuckDB database file of views over a root's Parquet files, for tools that know no genenv.

It holds no rows but those of `runs` and `stage_runs`, which are in no Parquet file. Its views name
the files that manifests named when it was written.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import duckdb

from genenv_core.errors import QueryError
from genenv_core.storage.sql.catalog import RunSource, setup
from genenv_core.storage.sql.comments import comments
from genenv_core.storage.sql.duck import create, message_of, text

FORMAT = "v1.4.0"
"""Least version of DuckDB that opens the file: the first that keeps types of macros' parameters."""

_MARK = "a database of views that genenv wrote"


def write_views(sources: Sequence[RunSource], path: Path) -> int:
    """Write a database with every table and view over these runs; returns the number of files.

    A file that this function wrote is replaced, at once and whole. Raises QueryError for any other
    file, and where nothing can be written.
    """
    place = Path(os.path.realpath(path))
    _may_replace(place)
    built = setup(sources)
    try:
        with tempfile.TemporaryDirectory(prefix=f".{place.name}-", dir=place.parent) as scratch:
            begun = Path(scratch) / "views.duckdb"
            with duckdb.connect(begun, config={"storage_compatibility_version": FORMAT}) as con:
                con.begin()  # one write instead of hundreds
                create(con, built)
                for statement in comments():
                    con.execute(statement)
                con.execute(f"CREATE TABLE held.written AS SELECT {text(_MARK)} AS what")
                con.commit()
            # Changes that somebody's program kept for the old file are not for the new one.
            place.with_name(f"{place.name}.wal").unlink(missing_ok=True)
            begun.replace(place)
    except duckdb.Error as error:
        raise QueryError(f"--attach-file {path}: {message_of(error)}") from error
    except OSError as error:
        raise QueryError(f"--attach-file {path}: cannot be written: {error.strerror}") from error
    return len(built.files)


def _may_replace(place: Path) -> None:
    """Return if nothing is there, or a database of ours; raises QueryError."""
    if not os.path.lexists(place):
        return
    found = None
    try:
        if not place.is_file():  # DuckDB would wait for a writer of a pipe
            raise duckdb.IOException("no file")
        with duckdb.connect(place, read_only=True) as con:
            found = con.execute("SELECT what FROM held.written").fetchone()
    except duckdb.Error as error:
        if "lock" in str(error):
            raise QueryError(
                f"--attach-file {place}: another program has it open for writing: close it there"
            ) from error
    if found != (_MARK,):
        raise QueryError(
            f"--attach-file {place}: is there already, and no database of views that genenv "
            "wrote: choose another name"
        )
