"""The file of a log: a zip that is written as the samples come, equal to the bit for equal ones.

The summaries wait in a file beside it, because they are one member and follow the samples. Inspect
also keeps a journal of them while a log is being written; a finished log is read without it.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import zipfile
from pathlib import Path
from types import TracebackType
from typing import Self

from genenv_core.types import JsonObject

_TIME = (1980, 1, 1, 0, 0, 0)
"""The time of every member: with the time of writing, equal logs would be different files."""
_UNIX = 3
_MODE = 0o644 << 16


def to_json(value: object) -> bytes:
    """Return JSON in UTF-8; "?" replaces half a character, which JSON can hold and UTF-8 cannot."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", "replace")


class LogFile:
    """A log being written. Leaving its block closes the file; only `finish` makes it whole."""

    def __init__(self, path: Path, start: JsonObject) -> None:
        """Open the file and write how the evaluation began."""
        self._zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
        self._summaries = tempfile.TemporaryFile(dir=path.parent)  # noqa: SIM115  # see __exit__
        self._between = b"["
        self._write("_journal/start.json", to_json(start))

    def __enter__(self) -> Self:
        """Return the log."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close both files."""
        self._summaries.close()
        self._zip.close()

    def add(self, sample: JsonObject, summary: JsonObject) -> None:
        """Write a sample under the name by which Inspect looks for it."""
        self._write(f"samples/{sample['id']}_epoch_{sample['epoch']}.json", to_json(sample))
        self._summaries.write(self._between + to_json(summary))
        self._between = b","

    def finish(self, header: JsonObject) -> None:
        """Write the summaries and the header, which say that the log is whole."""
        self._summaries.write(b"]" if self._between == b"," else b"[]")
        member = _member("summaries.json")
        member.file_size = self._summaries.tell()
        self._summaries.seek(0)
        with self._zip.open(member, "w") as out:
            shutil.copyfileobj(self._summaries, out, 1 << 20)
        self._write("header.json", to_json(header))

    def _write(self, name: str, data: bytes) -> None:
        self._zip.writestr(_member(name), data)


def _member(name: str) -> zipfile.ZipInfo:
    """Return a member whose record says nothing of the machine or the time."""
    member = zipfile.ZipInfo(name, _TIME)
    member.compress_type = zipfile.ZIP_DEFLATED
    member.create_system, member.external_attr = _UNIX, _MODE
    return member
