"""Uploads, downloads and copies large objects of a bucket in pieces, each with its own tries.

The receiver compares every byte: a piece that goes up carries its MD5, and the caller compares the
digest of a whole download. An upload becomes an object at its end, under a condition.
"""

# s3fs, fsspec and botocore have no stubs.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from genenv_core.errors import NotFound, StorageError
from genenv_core.storage.store.s3.faults import ConditionFailed, Unlike
from genenv_core.storage.store.s3.requests import Head, S3Requests, body_of, md5, metadata, together

PIECE_BYTES = 32 * 2**20
"""Objects larger than this go up and come down in pieces of this size."""

MOST_PIECES = 9_000
COPY_BYTES = 5 * 2**30
"""Size above which a copy goes in pieces."""

AHEAD = 4
"""Pieces of one object in transit at the same time."""

RESTARTS = 5
"""How often a read begins again because another process overwrote the object."""


class Multipart(S3Requests):
    """Requests for objects of any size; large ones go in pieces."""

    async def _touch(self, path: str, head: Head) -> bool:
        if head.bytes <= COPY_BYTES:
            return await super()._touch(path, head)
        source = {"Bucket": self.name, "Key": self._prefix + path}
        known = metadata(head.writers, head.creator, head.sha256)
        begun = await self._tried(
            path, lambda: self._asked("create_multipart_upload", path, Metadata=known)
        )
        upload = str(begun["UploadId"])

        async def copy(number: int, start: int) -> dict[str, Any]:
            end = min(head.bytes, start + COPY_BYTES) - 1
            done = await self._tried(
                path,
                lambda: self._asked(
                    "upload_part_copy", path, UploadId=upload, PartNumber=number,
                    CopySource=source, CopySourceIfMatch=head.etag,
                    CopySourceRange=f"bytes={start}-{end}",
                ),
            )  # fmt: skip
            return {"PartNumber": number, "ETag": done["CopyPartResult"]["ETag"]}

        starts = range(0, head.bytes, COPY_BYTES)
        try:
            pieces = await together([copy(n, start) for n, start in enumerate(starts, 1)])
            await self._finish(path, upload, pieces, {"IfMatch": head.etag})
        except BaseException as error:
            await self._abort(path, upload)
            if isinstance(error, NotFound | ConditionFailed):
                return False
            raise
        return True

    async def _upload(self, path: str, source: Path, sha256: str) -> None:
        size = source.stat().st_size
        if size <= PIECE_BYTES:
            await self._put(path, await asyncio.to_thread(source.read_bytes), None, sha256)
            return
        known = metadata((), secrets.token_urlsafe(6), sha256)
        async with self._large:
            begun = await self._tried(
                path, lambda: self._asked("create_multipart_upload", path, Metadata=known)
            )
            upload = str(begun["UploadId"])
            try:
                pieces = await self._pieces(path, upload, source, size)
                await self._finish(path, upload, pieces, {"IfNoneMatch": "*"})
            except BaseException:
                await self._abort(path, upload)
                raise

    async def _abort(self, path: str, upload: str) -> None:
        """Remove the pieces of an upload; a lifecycle rule removes those of a killed process."""
        await self._tried(path, lambda: self._gone("abort_multipart_upload", path, UploadId=upload))

    async def _pieces(
        self, path: str, upload: str, source: Path, size: int
    ) -> Sequence[dict[str, Any]]:
        length = max(PIECE_BYTES, -(-size // MOST_PIECES))
        some = asyncio.Semaphore(AHEAD)

        async def send(number: int) -> dict[str, Any]:
            async with some:
                data = await asyncio.to_thread(_piece, source, (number - 1) * length, length)
                guard = await asyncio.to_thread(md5, data)
                done = await self._tried(
                    path,
                    lambda: self._asked(
                        "upload_part", path, UploadId=upload, PartNumber=number, Body=data,
                        ContentMD5=guard,
                    ),
                )  # fmt: skip
            return {"PartNumber": number, "ETag": done["ETag"]}

        return await together([send(number) for number in range(1, -(-size // length) + 1)])

    async def _finish(
        self,
        path: str,
        upload: str,
        pieces: Sequence[dict[str, Any]],
        condition: Mapping[str, str],
    ) -> None:
        """Make the object of its pieces, unless it exists: equal names have equal content."""

        async def once() -> None:
            try:
                await self._asked(
                    "complete_multipart_upload", path, UploadId=upload,
                    MultipartUpload={"Parts": list(pieces)}, **condition,
                )  # fmt: skip
            except ConditionFailed:  # somebody was first
                await self._gone("abort_multipart_upload", path, UploadId=upload)
            except NotFound:
                # The store also forgets an upload that an earlier try finished.
                if await self._head(path) is None:
                    raise

        await self._tried(path, once)

    async def _download(self, path: str, target: Path | None) -> str:
        for _ in range(RESTARTS):
            head = await self._head(path)
            if head is None:
                raise NotFound(f"{self._where}{path} does not exist")
            try:
                if head.bytes <= PIECE_BYTES:
                    return await self._read(path, head, target)
                async with self._large:
                    return await self._read(path, head, target)
            except ConditionFailed:  # a touch may have given it another ETag
                continue
        raise StorageError(
            f"others wrote {self._where}{path} anew during each read: run the same command again"
        )

    async def _read(self, path: str, head: Head, target: Path | None) -> str:
        """Write an object as of `head` into a file; return its digest. Raises ConditionFailed."""
        seen = hashlib.sha256()
        handle = target.open("wb") if target else None
        try:
            starts = range(0, head.bytes, PIECE_BYTES)
            # Reads some pieces ahead, and writes and digests them in their order.
            for at in range(0, len(starts), AHEAD):
                group = [self._range(path, head, start) for start in starts[at : at + AHEAD]]
                for data in await together(group):
                    await asyncio.to_thread(seen.update, data)
                    if handle:
                        await asyncio.to_thread(handle.write, data)
        finally:
            if handle:
                handle.close()
        return seen.hexdigest()

    async def _range(self, path: str, head: Head, start: int) -> bytes:
        end = min(head.bytes, start + PIECE_BYTES) - 1

        async def once() -> bytes:
            answer = await self._asked(
                "get_object", path, Range=f"bytes={start}-{end}", IfMatch=head.etag
            )
            data = await body_of(answer)
            if len(data) != end - start + 1:
                raise Unlike
            return data

        return await self._tried(path, once)


def _piece(source: Path, start: int, length: int) -> bytes:
    with source.open("rb") as handle:
        handle.seek(start)
        return handle.read(length)
