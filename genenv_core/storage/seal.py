"""Records that carry a checksum of themselves, so that a flipped bit anywhere in one is found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from genenv_core.errors import IntegrityError
from genenv_core.storage.canonical import digest, readable_json

SEAL = "seal"
"""Field of a record's file that holds the digest of all the others."""


def seal(record: Mapping[str, Any]) -> bytes:
    """Return a record as the readable JSON of its file, its checksum in it."""
    return readable_json({**record, SEAL: digest(dict(record))})


def unseal(data: bytes) -> dict[str, Any]:
    """Return the record in a file's bytes; raises IntegrityError unless all of them are right.

    Rendering the record again must give the same bytes, so white space and the order of names
    count as well.
    """
    try:
        record = cast(dict[str, Any], json.loads(data))
        given = record.pop(SEAL)
        whole = seal(record) == data
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise IntegrityError(f"it is no sealed record ({len(data)} bytes)") from error
    if not whole:
        raise IntegrityError(f"its content does not fit its checksum {str(given)[:12]}")
    return record
