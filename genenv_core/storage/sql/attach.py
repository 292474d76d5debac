"""Writes a DuckDB file with views over a root's Parquet files, for tools that do not know genenv.

The file itself holds only the rows of `runs` and `stage_runs`, which no Parquet file has. Its views
read the Parquet files that the manifests named when genenv wrote it.
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
    """Write a database with every table and view over these runs.

    Returns the number of Parquet files that its views read. Replaces an earlier database of its
    own, at once and whole. Raises QueryError for any other file at `path`, and where it cannot
    write.
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
            # A log of changes that another program left belongs to the old file.
            place.with_name(f"{place.name}.wal").unlink(missing_ok=True)
            begun.replace(place)
    except duckdb.Error as error:
        raise QueryError(f"--attach-file {path}: {message_of(error)}") from error
    except OSError as error:
        raise QueryError(f"--attach-file {path}: cannot be written: {error.strerror}") from error
    return len(built.files)


def _may_replace(place: Path) -> None:
    """Raise QueryError if something other than a database of genenv's own lies at `place`."""
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
