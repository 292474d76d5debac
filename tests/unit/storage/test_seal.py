"""Sealed records.

Invariants: a record comes back unchanged; every single flipped bit, a cut, an added byte and
another order of names raise IntegrityError and nothing else; so do records of another kind.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from genenv_core.errors import IntegrityError
from genenv_core.storage.canonical import readable_json
from genenv_core.storage.records.manifest import Manifest, Part, Shard
from genenv_core.storage.records.runs import EpochKeys
from genenv_core.storage.seal import SEAL, seal, unseal

RECORD: dict[str, Any] = {"name": "größe", "facts": {"p": 0.1, "n": 3, "none": None}, "parts": []}
PART = Part(name="scores.parquet", path="parts/aa/aa.parquet", sha256="a" * 64, bytes=10)


@pytest.mark.parametrize(
    "record", [{}, RECORD, {"": [1e300, -0.0, 2**70, True], "\u2028": "\x00\x7f\U0001f600\\"}]
)
def test_a_record_comes_back_as_it_was(record: dict[str, Any]) -> None:
    assert unseal(seal(record)) == record


def test_every_flipped_bit_is_found() -> None:
    data = seal(RECORD)
    for position in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[position // 8] ^= 1 << position % 8
        with pytest.raises(IntegrityError):
            unseal(bytes(flipped))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"7",
        b"{}",
        readable_json(RECORD),
        seal(RECORD)[:-1],
        seal(RECORD) + b"\n",
        json.dumps(json.loads(seal(RECORD))).encode(),
        readable_json({**RECORD, SEAL: 7}),
        b"\xff" + seal(RECORD),
    ],
)
def test_bytes_that_are_no_record_are_refused(data: bytes) -> None:
    with pytest.raises(IntegrityError):
        unseal(data)


def test_a_record_of_another_kind_is_refused_with_the_field() -> None:
    shard = Shard(parts=(PART,))
    assert Shard.from_bytes(shard.to_bytes()) == shard
    with pytest.raises(IntegrityError, match="no Manifest that this genenv reads: stage"):
        Manifest.from_bytes(shard.to_bytes())
    with pytest.raises(IntegrityError, match="no EpochKeys"):
        EpochKeys.from_bytes(seal({"epoch": 1, "keys": {}, "later": 1}))
