"""The file of a bundle.

Invariants: equal members give equal bytes; of flipped bits, of changed bytes, of bytes cut off or
added, none goes unnoticed, and the error says where; any tool for ZIP opens it; no name
leads out of a folder; nothing grows when it is read.
"""

from __future__ import annotations

import random
import zipfile
from io import BytesIO

import pytest

from genenv_core.bundle import sealed_zip
from genenv_core.bundle.sealed_zip import LARGEST, SEAL, pack, unpack
from genenv_core.canonical import sha256
from genenv_core.errors import IntegrityError
from tests.mutations import mutation

SEALED_ZIP = "genenv_core/bundle/sealed_zip.py"

MEMBERS = {
    "statement.json": b'{"a": 1}\n',
    "stages/00001-rollout.json": bytes(range(256)) * 3,
    "code/genenv_core/__init__.py": b"",
    "locks/installed.txt": b"torch==2.13.0\n" * 9,
}


def sealed(body: bytes) -> bytes:
    """Return bytes with a right seal in the place of their comment."""
    return body[:-SEAL] + sha256(body[:-SEAL]).encode()


def archive(*members: tuple[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """Return a sealed archive as another program writes it."""
    out = BytesIO()
    with zipfile.ZipFile(out, "w", compression) as made:
        for name, content in members:
            made.writestr(zipfile.ZipInfo(name), content, compress_type=compression)
        made.comment = b"0" * SEAL
    return sealed(out.getvalue())


def test_equal_members_give_equal_bytes_that_any_tool_opens() -> None:
    data = pack(MEMBERS)
    assert data == pack(dict(reversed(MEMBERS.items())))
    assert unpack(data) == MEMBERS
    with zipfile.ZipFile(BytesIO(data)) as opened:
        assert opened.testzip() is None and len(opened.namelist()) == len(MEMBERS)


@mutation(
    "a seal in capital letters is right as well", SEALED_ZIP,
    "if data[-SEAL:] != sha256(data[:-SEAL]).encode():",
    "if data[-SEAL:].lower() != sha256(data[:-SEAL]).encode():",
)  # fmt: skip
def test_no_bit_of_a_small_file_may_differ() -> None:
    data = pack({"a": b"b"})
    for place in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        with pytest.raises(IntegrityError):
            unpack(bytes(flipped))


@mutation(
    "a bundle is read without a look at its seal", SEALED_ZIP,
    "if data[-SEAL:] != sha256(data[:-SEAL]).encode():", "if False:",
)  # fmt: skip
def test_of_other_bytes_none_goes_unnoticed() -> None:
    data, rng = pack(MEMBERS), random.Random(18)
    for _ in range(300):
        at, long = rng.randrange(len(data)), rng.randrange(1, 40)
        for changed in (
            data[:at] + bytes([data[at] ^ rng.randrange(1, 256)]) + data[at + 1 :],
            data[:at],
            data[at + 1 :],
            data + rng.randbytes(long),
            rng.randbytes(long) + data,
            data[:at] + rng.randbytes(long) + data[at:],
        ):
            with pytest.raises(IntegrityError):
                unpack(changed)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: b"", "does not begin"),
        (lambda data: b"hello", "does not begin"),
        (lambda data: data[:300], "cut off, at byte 300"),
        (lambda data: data[:-10], "last 10 bytes are missing"),
        (lambda data: data + b"xyz", "3 bytes after its end"),
        (lambda data: data.replace(b"\x40\x41", b"\x40\x40"), "stages/00001-rollout.json"),
        (lambda data: data[:-1] + b"x", "table of contents or its seal"),
    ],
)
def test_what_is_wrong_is_said(change, said: str) -> None:
    with pytest.raises(IntegrityError, match=said):
        unpack(change(pack(MEMBERS)))


@mutation(
    "a member of a bundle may lie above its folder", SEALED_ZIP, "(?!.*(^|/)\\.{1,2}(/|$))", ""
)
@pytest.mark.parametrize(
    "name",
    [
        *("../x", "a/../x", "/etc/passwd", "a//b", "a/", "./a", "a/.", "..", "", "C:\\x", "a\\b"),
        *("a\nb", "é", "x" * 300, "~\0", "a:b"),
    ],
)
def test_no_name_leads_out_of_a_folder(name: str) -> None:
    with pytest.raises(IntegrityError):
        pack({name: b""})
    with pytest.raises(IntegrityError):
        unpack(archive((name, b"")))


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("names", [("a", "a"), ("a", "A"), ("a", "a/b")])
def test_two_members_are_never_one_file(names: tuple[str, str]) -> None:
    with pytest.raises(IntegrityError):
        unpack(archive(*((name, b"") for name in names)))


@mutation(
    "a bundle may be compressed", SEALED_ZIP,
    "if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:", "if info.flag_bits & 1:",
)  # fmt: skip
def test_nothing_grows_when_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = archive(("a", bytes(10**6)), compression=zipfile.ZIP_DEFLATED)
    assert len(bomb) < 10**4
    with pytest.raises(IntegrityError, match="compressed"):
        unpack(bomb)
    with pytest.raises(IntegrityError, match="at most"):
        unpack(bytes(LARGEST + 1))
    monkeypatch.setattr(sealed_zip, "LARGEST", 100)
    with pytest.raises(IntegrityError, match="at most"):
        pack(MEMBERS)


def test_members_that_share_bytes_are_refused() -> None:
    """Many entries of the table of contents may name the same bytes, each in full."""
    data = archive(*((f"m{number}", b"z" * 5000) for number in range(4)))
    out, first = bytearray(data), 0
    for number in range(1, 4):  # each entry of the table names the first member's place
        at = data.rindex(f"m{number}".encode()) - 46
        out[at + 42 : at + 46] = first.to_bytes(4, "little")
    kept = out[: 5000 + 32] + out[data.index(b"PK\x01\x02") :]
    end = kept.rindex(b"PK\x05\x06")
    kept[end + 16 : end + 20] = (5000 + 32).to_bytes(4, "little")
    with pytest.raises(IntegrityError, match="overlap"):
        unpack(sealed(bytes(kept)))


def test_what_is_no_archive_at_all_is_refused_with_a_right_seal() -> None:
    rng = random.Random(19)
    for size in (64, 70, 200, 5000):
        for head in (b"", b"PK\x03\x04", b"PK\x05\x06"):
            with pytest.raises(IntegrityError):
                unpack(sealed(head + rng.randbytes(size) + b"0" * SEAL))
