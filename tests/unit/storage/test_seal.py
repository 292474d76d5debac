"""Sealed records.

Invariants: a record comes back unchanged; every single flipped bit, a cut, an added byte and
another order of names raise IntegrityError and nothing else; so do records of another kind. Whoever
looks for a record gets None where it is not there, and says whether damage is an error.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from genenv_core.canonical import readable_json
from genenv_core.errors import IntegrityError
from genenv_core.storage import seal as of_seal
from genenv_core.storage.records.manifest import Manifest, Part, Shard
from genenv_core.storage.records.runs import EpochKeys
from genenv_core.storage.seal import SEAL, seal, unseal
from genenv_core.storage.store.finding import find_record, kept_record
from genenv_core.storage.store.local import LocalStore
from tests.mutations import mutation

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


@mutation(
    "a record is checked whenever it is asked for", "genenv_core/storage/seal.py",
    "_remembered[name] = found", "pass",
)  # fmt: skip
@mutation(
    "a record is remembered by its beginning", "genenv_core/storage/seal.py",
    "sha256(data).digest()", "sha256(data[:40]).digest()",
)  # fmt: skip
@mutation(
    "a process remembers without end", "genenv_core/storage/seal.py",
    "_remembered.clear()", "pass",
)  # fmt: skip
def test_a_record_is_checked_once_and_an_altered_one_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(of_seal, "_remembered", {})
    monkeypatch.setattr(of_seal, "REMEMBERED", 2)
    checked: list[bytes] = []
    monkeypatch.setattr(of_seal, "unseal", lambda data: checked.append(data) or unseal(data))
    keys = [EpochKeys(epoch=1, keys={"score": letter * 64}) for letter in "abc"]
    data = [one.to_bytes() for one in keys]
    assert [EpochKeys.remembered(data[0]) for _ in range(3)] == [keys[0]] * 3
    assert checked == [data[0]]
    with pytest.raises(IntegrityError):
        EpochKeys.remembered(data[0].replace(b"a" * 64, b"a" * 63 + b"b"))
    with pytest.raises(IntegrityError):
        Manifest.remembered(data[0])  # another kind of record
    assert [EpochKeys.remembered(one) for one in data] == keys
    assert len(of_seal._remembered) <= 2


@mutation(
    "damage that is an error is passed over", "genenv_core/storage/store/finding.py",
    "        if not damaged:\n            raise\n", "",
)  # fmt: skip
@mutation(
    "a damaged record cannot be replaced", "genenv_core/storage/store/finding.py",
    "        return data, None\n", "        return None, None\n",
)  # fmt: skip
def test_a_record_is_found_absent_or_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, keys = LocalStore(tmp_path), EpochKeys(epoch=1, keys={})
    assert kept_record(store, "one", EpochKeys.from_bytes) == (None, None)
    store.replace("one", keys.to_bytes())
    assert kept_record(store, "one", EpochKeys.from_bytes) == (keys.to_bytes(), keys)
    store.replace("one", b"{}")
    with pytest.raises(IntegrityError):
        find_record(store, "one", EpochKeys.from_bytes)
    assert kept_record(store, "one", EpochKeys.from_bytes, "one is odd") == (b"{}", None)
    assert "one is odd: it is no sealed record (2 bytes)" in caplog.text
