"""Canonical JSON and digests: equal values give equal bytes in every process."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any


def canonical_json(value: Any) -> bytes:
    """Return sorted, compact UTF-8 JSON; raises ValueError on NaN and infinities."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def readable_json(value: Any) -> bytes:
    """Return sorted, indented UTF-8 JSON with a final newline, for files that people open."""
    return (
        json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    ).encode()


def sha256(data: bytes) -> str:
    """Return the hex sha256 of bytes."""
    return hashlib.sha256(data).hexdigest()


def file_sha256(path: Path) -> str:
    """Return the hex sha256 of a file."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def digest(value: Any) -> str:
    """Return the hex sha256 of a value's canonical JSON."""
    return sha256(canonical_json(value))
