"""The process behind `sandbox.ask`: one request on standard input, one answer, the end.

The rows leave as an Arrow stream on standard output. Standard error holds one line of JSON: whether
rows were cut off, or why there are none.
"""

# pyarrow has no stubs.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from __future__ import annotations

import base64
import json
import os
import sys
from typing import Any, BinaryIO

import duckdb
import pyarrow as pa

from genenv_core.errors import QueryError
from genenv_core.storage.sql.admission import admit
from genenv_core.storage.sql.confine import confine
from genenv_core.storage.sql.duck import Setup, build, message_of, start

_BATCH = 16384
# Stacks and heaps that threads reserve count as memory for the kernel; DuckDB's limit is without.
_THREAD_BYTES = 32 * 2**20
_OWN_BYTES = 512 * 2**20


def main() -> None:
    """Answer the request on standard input."""
    sys.exit(serve(sys.stdin.buffer.read(), sys.stdout.buffer))


def serve(request: bytes, out: BinaryIO) -> int:
    """Answer one request; returns the exit status. This process can do little afterwards."""
    asked = json.loads(request)
    try:
        said: dict[str, Any] = {"truncated": _answer(asked, out)}
    except (MemoryError, pa.ArrowMemoryError, duckdb.OutOfMemoryException):
        said = {"memory": True}
    except QueryError as error:
        said = {"error": str(error)}
    except duckdb.Error as error:
        lack = "bad_alloc" in str(error) or "Out of Memory" in str(error)
        said = {"memory": True} if lack else {"error": message_of(error)}
    except pa.ArrowException as error:
        said = {"error": f"the result has a type without a counterpart: {message_of(error)}"}
    sys.stderr.write(json.dumps(said))
    sys.stderr.flush()
    out.flush()
    return 0 if "truncated" in said else 3


def _answer(asked: dict[str, Any], out: BinaryIO) -> bool:
    """Write the rows; returns whether there were more than asked for."""
    left, room = asked["rows"], asked["memory_bytes"]
    with _open(asked) as con:
        admit(con, asked["sql"])
        reader = con.execute(asked["sql"]).to_arrow_reader(_BATCH)
        with pa.ipc.new_stream(out, reader.schema) as writer:
            for batch in reader:
                if left is not None and batch.num_rows > left:
                    writer.write_batch(batch.slice(0, left))
                    return True
                left = None if left is None else left - batch.num_rows
                room -= batch.nbytes
                if room < 0:
                    raise QueryError(
                        f"the result is larger than {asked['memory_bytes'] / 1e9:g} GB: "
                        "add LIMIT or aggregate, or raise --memory"
                    )
                writer.write_batch(batch)
    return False


def _open(asked: dict[str, Any]) -> duckdb.DuckDBPyConnection:
    """Return the tables, in a process that has given up everything else."""
    held = {
        name: pa.ipc.open_stream(base64.b64decode(data)).read_all()
        for name, data in asked["held"].items()
    }
    threads = os.cpu_count() or 1
    con = start(f"{asked['memory_bytes']}B", threads=1)
    confine(
        asked["files"],
        memory_bytes=2 * asked["memory_bytes"] + threads * _THREAD_BYTES + _OWN_BYTES,
        cpu_s=int(asked["timeout_s"] + 1) * threads,
    )
    con.execute(f"SET threads = {threads}")  # which starts them, confined as this one is
    build(con, Setup(held, tuple(asked["statements"]), tuple(asked["files"])))
    return con


if __name__ == "__main__":
    main()
