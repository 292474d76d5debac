"""Lists folders of a commit on GitHub, and checks each against the id in its parent."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any, cast

from genenv_core.benchmarks.downloads.archives import checked
from genenv_core.benchmarks.downloads.digests import (
    FILE_MODE,
    FOLDER_MODE,
    RUN_MODE,
    TreeEntry,
    git_id_of_entries,
)
from genenv_core.benchmarks.downloads.origin import DownloadOrigin
from genenv_core.benchmarks.downloads.sources import raw_file, tree_listing
from genenv_core.errors import DownloadError

TOGETHER = 32
"""Files to read before yielding the first of them; a failure loses so many at most."""

MOST = 8_000_000
"""Bytes of a listing; a file takes about 400."""


class Commit:
    """A commit's folders; it asks for each listing once."""

    def __init__(self, origin: DownloadOrigin, repo: str, commit: str) -> None:
        self._origin, self._repo, self._commit = origin, repo, commit
        self._known: dict[str, list[TreeEntry]] = {}

    def folder(self, path: str) -> list[TreeEntry]:
        """Return a folder's entries; raises DownloadError for a missing folder."""
        entries = self._listed(self._commit)
        for part in PurePosixPath(path).parts:
            found = [one for one in entries if one.name == part and one.mode == FOLDER_MODE]
            if not found:
                raise DownloadError(f"{self._repo} at {self._commit[:12]} has no folder {path}")
            entries = self._listed(found[0].git_id)
        return entries

    def files(
        self, path: str, entries: Sequence[TreeEntry], most: int
    ) -> Iterator[tuple[TreeEntry, bytes]]:
        """Yield the contents of a folder's entries, some at a time; raises DownloadError.

        `most` bounds their bytes together; the size in its entry bounds each.
        """
        if sum(entry.size for entry in entries) > most:
            raise DownloadError(f"{self._repo}, {path}: more than {most:,} bytes")
        for start in range(0, len(entries), TOGETHER):
            some = entries[start : start + TOGETHER]
            wanted = [
                (raw_file(self._repo, self._commit, f"{path}/{entry.name}"), entry.size)
                for entry in some
            ]
            yield from zip(some, self._origin.read_all(wanted), strict=True)

    def _listed(self, name: str) -> list[TreeEntry]:
        if name not in self._known:
            self._known[name] = self._read(name)
        return self._known[name]

    def _read(self, name: str) -> list[TreeEntry]:
        address = tree_listing(self._repo, name)
        try:
            value: Any = json.loads(self._origin.read(address, MOST))
            rows = cast("list[dict[str, Any]]", value["tree"])
            entries = [
                TreeEntry(
                    str(row["mode"]).lstrip("0"),
                    checked(str(row["path"])),
                    bytes.fromhex(row["sha"]).hex(),
                    int(row.get("size", 0)),
                )
                for row in rows
            ]
            whole = value.get("truncated") is not True
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DownloadError(f"{address}: no listing of a folder: {error!r}") from error
        if not whole:
            raise DownloadError(f"{address}: the listing is cut off")
        # The commit's id covers more than its folder, so the first listing has another id.
        if name != self._commit and (found := git_id_of_entries(entries)) != name:
            raise DownloadError(f"{address}: expected git id {name}, found {found}: refused")
        return entries


def is_file(entry: TreeEntry) -> bool:
    """Return whether an entry is a plain file."""
    return entry.mode in (FILE_MODE, RUN_MODE)
