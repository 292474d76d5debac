"""Runs people's SQL in a process of its own, which can read the tables' files and nothing else.

Each of these layers stops most attacks by itself: `admission` looks at the statement's parse tree;
`duck` locks DuckDB's settings; `confine` limits the process, which also has an empty environment
and a deadline. DuckDB alone does not bound a query: one call of repeat() passed its memory limit
seven times over and did not hear an interrupt for a minute.
"""

# pyarrow has no stubs.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa

from genenv_core.errors import QueryError, TablesError
from genenv_core.storage.sizes import bytes_in
from genenv_core.storage.sql.catalog import RunSource, frame_of, setup
from genenv_core.storage.sql.comments import looks_at_comments
from genenv_core.storage.sql.guidance import why_no_rows, with_homes, with_remedy

COMMAND = (sys.executable, "-P", "-m", "genenv_core.storage.sql.sandbox_child")

_LONGEST_S = 2e6
"""Seconds from which on there is no limit, 23 days: poll() takes milliseconds of 31 bits."""

KILLED = (-signal.SIGKILL, -signal.SIGABRT)
"""Exit statuses of a process that asked for more memory than it may have."""

# What an interpreter may need to start, and no more: the rest of the environment may hold secrets.
_PASSED_ON = ("LD_LIBRARY_PATH", "PYTHONHOME", "VIRTUAL_ENV", "LANG")


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one query.

    `memory` bounds what DuckDB holds, and the answer. `rows`, when given, truncates the answer. A
    `timeout_s` of 23 days or more is no limit. Raises QueryError for one that is not above 0.
    """

    timeout_s: float = 60.0
    memory: str = "1GB"
    rows: int | None = None

    def __post_init__(self) -> None:
        if not self.timeout_s > 0:
            raise QueryError(f"timeout {self.timeout_s:g}: write seconds above 0, or inf for none")

    @property
    def seconds(self) -> float | None:
        """The limit that a process can be given, None for no limit."""
        return self.timeout_s if self.timeout_s < _LONGEST_S else None


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows, whether `rows` truncated them, and a remark on an empty answer."""

    frame: pl.DataFrame
    truncated: bool
    remark: str = ""


class QueryLimit(QueryError):
    """A query reached a limit: `what` says which, and the `option` of genenv sql raises it."""

    def __init__(self, what: str, option: str) -> None:
        super().__init__(f"{what}: narrow it, or raise --{option}")
        self.what = what
        self.option = option


def ask(sources: Sequence[RunSource], sql: str, limits: Limits = Limits()) -> Answer:
    """Return the answer to one SELECT-like statement over these runs; raises QueryError."""
    done = _run(request(sources, sql, limits), limits)
    if done.returncode:
        raise _why(done, sql, limits)
    with pa.ipc.open_stream(done.stdout) as reader:
        frame = frame_of(reader.read_all())
    filled = {table for source in sources for table in (*source.files, *source.frames)}
    remark = "" if frame.height else why_no_rows(filled, sql)
    return Answer(frame, bool(json.loads(done.stderr)["truncated"]), remark)


def request(sources: Sequence[RunSource], sql: str, limits: Limits) -> bytes:
    """Return the request that the process reads from its standard input."""
    asked = {"sql": sql, "rows": limits.rows, "timeout_s": limits.seconds}
    opening = opening_of(sources, limits.memory, described=looks_at_comments(sql))
    return json.dumps(opening | asked).encode()


def opening_of(
    sources: Sequence[RunSource], memory: str, *, described: bool = False
) -> dict[str, Any]:
    """Return what opens the tables in the process, ready for JSON."""
    built = setup(sources, described=described)
    held = {name: base64.b64encode(_ipc(table)).decode() for name, table in built.held.items()}
    return {
        "held": held,
        "statements": built.statements,
        "views": built.views,
        "older": built.older,
        "files": built.files,
        "types": built.types,
        "memory_bytes": size(memory),
    }


def size(text: str) -> int:
    """Return the bytes in a text like 512MB; raises QueryError."""
    found = bytes_in(text)
    if found is None or found < 32_000_000:
        raise QueryError(f"memory {text!r}: write a size from 32MB on, for example 512MB or 4GB")
    return found


def environment() -> dict[str, str]:
    """Return the environment of the process."""
    kept = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    path = os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))
    # Threads of numerical libraries would escape the confinement, and the process needs none.
    return kept | {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}


def _run(request: bytes, limits: Limits) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            COMMAND,
            input=request,
            capture_output=True,
            cwd="/",
            env=environment(),
            timeout=limits.seconds,
            start_new_session=True,  # Ctrl-C is for this process, which then ends the other
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise too_long(limits) from error


def _why(done: subprocess.CompletedProcess[bytes], sql: str, limits: Limits) -> QueryError:
    try:
        said = json.loads(done.stderr)
    except ValueError:
        said = {}
    if said:
        return why_not(said, sql, limits)
    if done.returncode in KILLED:
        return why_not({"memory": True}, sql, limits)
    if done.returncode == -signal.SIGXCPU:
        return too_long(limits)
    last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
    why = f"the query's process ended with status {done.returncode}: {' '.join(last)[:500]}"
    return QueryError(why)


def why_not(said: dict[str, Any], sql: str, limits: Limits) -> QueryError:
    """Return the error that a process reports instead of an answer to `sql`, for people."""
    if "error" in said:
        message = with_remedy(with_homes(str(said["error"]), sql))
        return (TablesError if said.get("files") else QueryError)(message)
    if "large" in said:
        return QueryLimit(f"the result is larger than {said['large'] / 1e9:g} GB", "memory")
    return QueryLimit(f"the query needs more than {limits.memory} of memory", "memory")


def too_long(limits: Limits) -> QueryLimit:
    """Return the error of a query that ran out of time."""
    return QueryLimit(f"the query took more than {limits.timeout_s:g} s", "timeout")


def _ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()
