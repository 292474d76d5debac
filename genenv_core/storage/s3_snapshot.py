"""A bucket as one query sees it: records from a cache on this machine, as far as they are current.

Which copy of a record is current is told by its ETag in a listing: one request for a thousand
records instead of one each. This decides nothing: what a listing does not show is asked for by its
path, and one that were behind would show pools as they were a moment before, whole like those of
now. What a run reuses or computes is never told in this way.
"""

from __future__ import annotations

from collections.abc import Sequence

from genenv_core.errors import NotFound
from genenv_core.storage import paths
from genenv_core.storage.canonical import sha256
from genenv_core.storage.s3 import S3Store
from genenv_core.storage.s3_requests import Head


class S3Snapshot(S3Store):
    """The store of a root for one query; for reading alone."""

    def __init__(self, of: S3Store) -> None:
        """Look at the same root through the same connections."""
        self.uri, self.home = of.uri, of.home
        self._here, self._cache, self._bucket = of._here, of._cache, of._bucket
        self._ahead = of._ahead
        self._listed: dict[str, dict[str, Head]] = {}

    def snapshot(self) -> S3Store:
        """Return itself."""
        return self

    def read(self, path: str) -> bytes:
        """Return the bytes at `path`: the copy of them that is kept here, or what is there."""
        (data,) = self.read_all([path])
        if data is None:
            raise NotFound(f"{self.uri}/{path} does not exist")
        return data

    def read_all(self, paths: Sequence[str]) -> list[bytes | None]:
        """Return the bytes at each path, None where nothing is."""
        found = {path: self._kept(path) for path in paths}
        missing = [path for path, data in found.items() if data is None]
        got_all = self._bucket.get_all(missing) if missing else []
        for path, got in zip(missing, got_all, strict=True):
            if got is not None:
                found[path] = got[0]
                self._cache.keep(self._name(path, got[1].etag), got[0])
        return [found[path] for path in paths]

    def mark(self, path: str) -> str:
        """Return what changes whenever the object gets other bytes, '' when nothing is there."""
        head = self._head(path)
        return head.etag if head else super().mark(path)

    def names(self, prefix: str) -> list[str]:
        """Return the names right below `prefix`, sorted."""
        if _group(f"{prefix}/x") is None:
            return super().names(prefix)
        start = f"{prefix}/"
        below = (path.removeprefix(start) for path in self._group(start) if path.startswith(start))
        return sorted({name.partition("/")[0] for name in below})

    def _kept(self, path: str) -> bytes | None:
        head = self._head(path)
        return self._cache.recall(self._name(path, head.etag)) if head else None

    def _head(self, path: str) -> Head | None:
        return self._group(path).get(path)

    def _group(self, path: str) -> dict[str, Head]:
        """Return what a listing says of the records that are read together with this one."""
        group = _group(path)
        if group is None:
            return {}
        if group not in self._listed:
            self._listed[group] = self._bucket.list(group)
            # Those that are new here come all together, before they are asked for one by one.
            new = [p for p in self._listed[group] if self._kept(p) is None]
            self.read_all(new)
        return self._listed[group]

    def _name(self, path: str, etag: str) -> str:
        return sha256(f"{self.uri} {path} {etag}".encode())


def _group(path: str) -> str | None:
    """Return the prefix that is listed for a path, None for what is not read by many."""
    parts = path.split("/")
    if parts[0] == paths.runs() and len(parts) > 2:
        return paths.run(parts[1])
    return "stages" if parts[0] == "stages" and len(parts) > 2 else None
