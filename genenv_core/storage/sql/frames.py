"""Messages between a session and its process: eight bytes of length, then as many bytes."""

from __future__ import annotations

from typing import IO

SESSION = "--session"
"""The argument that makes `sandbox_child` answer more than one question."""

_LENGTH = 8


def write_frame(out: IO[bytes], data: bytes) -> None:
    """Write one message and flush it."""
    out.write(len(data).to_bytes(_LENGTH, "big"))
    out.write(data)
    out.flush()


def read_frame(source: IO[bytes]) -> bytes | None:
    """Return the next message of a buffered stream, None where it ends, also in the middle."""
    head = source.read(_LENGTH)
    if len(head) < _LENGTH:
        return None
    size = int.from_bytes(head, "big")
    data = source.read(size)
    return data if len(data) == size else None
