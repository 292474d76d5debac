"""Records that carry a checksum of themselves, which shows a flipped bit anywhere in them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Self, cast

from pydantic import ValidationError

from genenv_core.canonical import digest, readable_json
from genenv_core.errors import IntegrityError
from genenv_core.record import Record

SEAL = "seal"
"""Field of a record's file that holds the digest of all the others."""


def seal(record: Mapping[str, Any]) -> bytes:
    """Return a record as the readable JSON of its file, with its checksum."""
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


REMEMBERED = 50_000
"""Most checked records that a process remembers; 100 epochs have some 4,000."""

_remembered: dict[tuple[type, bytes], Any] = {}


class SealedRecord(Record):
    """Base of the records with a JSON file of their own."""

    @classmethod
    def remembered(cls, data: bytes) -> Self:
        """Return the record in a file, from memory if this process has read it; as `from_bytes`.

        Repeated queries read the same files again, and checking one takes longer than reading it.
        No caller may change values inside the record.
        """
        name = (cls, sha256(data).digest())
        found: Self | None = _remembered.get(name)
        if found is None:
            found = cls.from_bytes(data)
            if len(_remembered) >= REMEMBERED:
                _remembered.clear()
            _remembered[name] = found
        return found

    def to_bytes(self) -> bytes:
        """Return the content of the record's file, sealed."""
        return seal(self.model_dump(mode="json"))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the record in a file; raises IntegrityError for any wrong bit."""
        try:
            return cls.model_validate(unseal(data))
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(item) for item in first["loc"])
            raise IntegrityError(
                f"it is no {cls.__name__} that this genenv reads: {field}: {first['msg']}"
            ) from error
