"""The process behind `sandbox.ask` and `session.SqlSession`.

For the first, it takes one request on standard input, gives one answer, and ends: it writes the
rows as an Arrow stream to standard output, and one line of JSON to standard error, which says
whether it truncated the rows, or why there are none. For the second (`--session`) it opens the
tables once and then answers one question after the other, in frames of `frames`.
"""

# pyarrow has no stubs.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from __future__ import annotations

import base64
import io
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO

import duckdb
import pyarrow as pa

from genenv_core.errors import QueryError, TablesError
from genenv_core.storage.sql.admission import admit
from genenv_core.storage.sql.confine import confine
from genenv_core.storage.sql.duck import (
    OF_A_COLUMN,
    Setup,
    build,
    build_named,
    message_of,
    of_files,
    start,
    with_place,
)
from genenv_core.storage.sql.frames import SESSION, read_frame, write_frame
from genenv_core.storage.sql.types import carried

_BATCH = 16384
# The kernel counts the stacks and heaps that threads reserve; DuckDB's own limit does not.
_THREAD_BYTES = 32 * 2**20
_OWN_BYTES = 512 * 2**20


def main() -> None:
    """Answer the request on standard input, or all of them."""
    if sys.argv[1:] == [SESSION]:
        sys.exit(serve_all(sys.stdin.buffer, sys.stdout.buffer))
    sys.exit(serve(sys.stdin.buffer.read(), sys.stdout.buffer))


def serve(request: bytes, out: BinaryIO) -> int:
    """Answer one request; return the exit status. This process can do little afterwards."""
    asked = json.loads(request)

    def work() -> bool:
        with _open(asked) as con:
            asking = _Asking(con, asked["views"], asked["memory_bytes"])
            return _answer(asking, asked["sql"], asked["rows"], out)

    said = _said(work)
    sys.stderr.write(json.dumps(said))
    sys.stderr.flush()
    out.flush()
    return 0 if "truncated" in said else 3


def serve_all(questions: BinaryIO, out: BinaryIO) -> int:
    """Answer questions until there are no more; return the exit status.

    The first frame opens the tables, and gets an answer too.
    """
    frame = read_frame(questions)
    if frame is None:
        return 0
    opening = json.loads(frame)
    asking: _Asking | None = None

    def opened() -> bool:
        nonlocal asking
        asking = _Asking(_open(opening), opening["views"], opening["memory_bytes"])
        return False

    said = _said(opened)
    write_frame(out, json.dumps(said).encode())
    if asking is None:
        return 3
    while (frame := read_frame(questions)) is not None:
        asked = json.loads(frame)
        rows = io.BytesIO()
        work = partial(_answer, asking, asked["sql"], asked["rows"], rows)
        said = _said(work)
        write_frame(out, json.dumps(said).encode())
        write_frame(out, rows.getvalue() if "truncated" in said else b"")
    return 0


def _said(work: Callable[[], bool]) -> dict[str, Any]:
    """Return the line about an answer: whether it is truncated, or why there is none."""
    try:
        return {"truncated": work()}
    except _TooLargeError as error:
        return {"large": error.most_bytes}
    except (MemoryError, pa.ArrowMemoryError, duckdb.OutOfMemoryException):
        return {"memory": True}
    except QueryError as error:
        return {"error": str(error), "files": isinstance(error, TablesError)}
    except duckdb.Error as error:
        lack = "bad_alloc" in str(error) or "Out of Memory" in str(error)
        said = {"error": with_place(error), "files": of_files(error)}
        return {"memory": True} if lack else said
    except pa.ArrowException as error:
        return {"error": f"the result cannot be handed over: {message_of(error)}"}


class _TooLargeError(Exception):
    """An answer is larger than the bytes that it may have."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__(most_bytes)
        self.most_bytes = most_bytes


@dataclass(frozen=True, slots=True)
class _Asking:
    """Open tables, the views that no question has named yet, and how large an answer may be."""

    con: duckdb.DuckDBPyConnection
    waiting: dict[str, str]
    most_bytes: int

    def admit(self, sql: str) -> None:
        """Create the views that a question names, and let it through; raises QueryError."""
        build_named(self.con, self.waiting, sql)
        try:
            admit(self.con, sql)
        except QueryError:
            if not self.waiting:
                raise
            # The question may spell a name in another way, and errors suggest names of views.
            build_named(self.con, self.waiting, "duckdb_views")
            admit(self.con, sql)


def _answer(asking: _Asking, sql: str, left: int | None, out: BinaryIO) -> bool:
    """Write at most `left` rows; return whether there were more."""
    asking.admit(sql)
    try:
        return _write(asking, sql, left, out)
    except duckdb.ConversionException as error:
        if OF_A_COLUMN in str(error):  # DuckDB may have read for long before it came to that row
            raise
        try:
            asking.con.execute(sql)  # fails in the same way, and its error quotes the line at fault
        except duckdb.ConversionException as again:
            raise QueryError(with_place(again, executed=True)) from error
        raise


def _write(asking: _Asking, sql: str, left: int | None, out: BinaryIO) -> bool:
    room = most_bytes = asking.most_bytes
    reader = carried(_relation(asking.con, sql)).to_arrow_reader(_BATCH)
    with pa.ipc.new_stream(out, reader.schema) as writer:
        for batch in reader:
            if left is not None and batch.num_rows > left:
                writer.write_batch(batch.slice(0, left))
                return True
            left = None if left is None else left - batch.num_rows
            room -= batch.nbytes
            if room < 0:
                raise _TooLargeError(most_bytes)
            writer.write_batch(batch)
    return False


def _relation(con: duckdb.DuckDBPyConnection, sql: str) -> duckdb.DuckDBPyRelation:
    """Return a query as a relation, not a cursor: it knows its types before it has rows."""
    try:
        return con.sql(sql)
    except (duckdb.BinderException, duckdb.CatalogException):
        con.execute(sql)  # fails in the same way, and its error quotes the line at fault
        raise


def _open(asked: dict[str, Any]) -> duckdb.DuckDBPyConnection:
    """Confine this process to the tables' files, and return the connection over them."""
    held = {
        name: pa.ipc.open_stream(base64.b64decode(data)).read_all()
        for name, data in asked["held"].items()
    }
    threads = os.cpu_count() or 1
    con = start(f"{asked['memory_bytes']}B", threads=1)
    confine(
        asked["files"],
        memory_bytes=2 * asked["memory_bytes"] + threads * _THREAD_BYTES + _OWN_BYTES,
        cpu_s=None if asked["timeout_s"] is None else int(asked["timeout_s"] + 1) * threads,
    )
    con.execute(f"SET threads = {threads}")  # which starts them, confined as this one is
    statements, files = (tuple(asked[name]) for name in ("statements", "files"))
    build(con, Setup(held, statements, {}, files, asked["older"], asked["types"]))
    return con


if __name__ == "__main__":
    main()
