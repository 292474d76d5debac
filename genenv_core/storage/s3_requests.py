"""Single requests to a bucket: each is tried again after a passing fault, and its fate is known.

A write whose answer was lost may have happened all the same, so a second try can be refused because
of the first, and aiohttp makes second tries of its own when a connection breaks. Every conditional
write therefore leaves a token in the object's metadata, beside the one of the object's creation and
those of the last writes that it replaced: whoever is refused looks for its token there, and finds
it also when others have written since.

s3fs gives the session, the credentials and the endpoint; its own retries are off, since they would
take such a refusal for somebody else's.
"""

# s3fs, fsspec and botocore have no stubs.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import os
import random
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast

import aiohttp
import s3fs
from botocore import exceptions as boto
from botocore.parsers import ResponseParserError
from fsspec.asyn import sync

from genenv_core.errors import NotFound, StorageError

log = logging.getLogger("genenv.storage")

T = TypeVar("T")

TRIES = 10
"""Tries of one request; with the pauses between them they bear about half a minute of trouble."""

PAUSE_S = 0.1
LONGEST_PAUSE_S = 8.0
CONNECT_S = 10
READ_S = 30
AT_ONCE = 32
"""Requests at the same time."""

PIECE_BYTES = 32 * 2**20
"""Objects larger than this go up and come down in pieces of it, each with its own tries."""

MOST_PIECES = 9_000
COPY_BYTES = 5 * 2**30
"""Larger objects are copied in pieces."""

WRITERS = "genenv-writers"
CREATOR = "genenv-creator"
DIGEST = "genenv-sha256"
REMEMBERED = 16
"""Writes that an object's metadata remembers."""

_PASSING = {
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "RequestLimitExceeded",
    "RequestTimeout",
    "InternalError",
    "ServiceUnavailable",
    "BadDigest",
    "IncompleteBody",
    "OperationAborted",
    "ConditionalRequestConflict",
}
_LOST = (
    aiohttp.ClientError,
    boto.HTTPClientError,
    boto.IncompleteReadError,
    ResponseParserError,
    ConnectionError,
    TimeoutError,
    asyncio.IncompleteReadError,
)


@dataclass(frozen=True, slots=True)
class Head:
    """What a bucket tells of an object; `modified` is in seconds, by the bucket's clock."""

    etag: str
    bytes: int
    modified: float
    writers: tuple[str, ...] = ()
    creator: str = ""
    sha256: str = ""


class Refused(Exception):
    """The condition of a request does not hold."""


class Unlike(Exception):
    """The bytes that came are not those that were announced."""


class _OneTry(s3fs.S3FileSystem):
    retries = 1

    async def request(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Make one request of S3's API."""
        return await self._call_s3(method, **arguments)


@lru_cache(4)
def _session(
    read_s: float, usual: tuple[tuple[str, str], ...], pid: int
) -> tuple[_OneTry, asyncio.Semaphore]:
    """Return the connections of this process under one environment: making them takes a while."""
    files = _OneTry(
        config_kwargs={
            "connect_timeout": CONNECT_S,
            "read_timeout": read_s,
            "max_pool_connections": AT_ONCE,
            "retries": {"total_max_attempts": 1},
            # Content-MD5 guards what is sent, and every store knows it; digests what comes.
            "request_checksum_calculation": "when_required",
            "response_checksum_validation": "when_required",
        },
        use_listings_cache=False,
        skip_instance_cache=True,
    )
    return files, asyncio.Semaphore(AT_ONCE)


class Bucket:
    """The objects of one bucket below a prefix; safe for threads, not for a fork."""

    def __init__(self, name: str, prefix: str, *, read_s: float = READ_S) -> None:
        """Name a bucket; nothing is asked yet. Credentials come from the usual chain alone."""
        self.name = name
        self._prefix = f"{prefix}/" if prefix else ""
        self._where = f"s3://{name}/{self._prefix}"
        usual = tuple(sorted(item for item in os.environ.items() if item[0].startswith("AWS_")))
        self._files, self._room = _session(read_s, usual, os.getpid())

    # One object.

    def head(self, path: str) -> Head | None:
        """Return what is known of an object, None when nothing is there."""
        return self._wait(self._head(path))

    def heads(self, paths: Sequence[str]) -> list[Head | None]:
        """Return what is known of many objects, asked for together."""
        return self._wait(_together([self._head(path) for path in paths]))

    def get(self, path: str) -> tuple[bytes, Head]:
        """Return an object's bytes and what was known of it then; raises NotFound."""
        return self._wait(self._get(path))

    def get_all(self, paths: Sequence[str]) -> list[tuple[bytes, Head] | None]:
        """Return many objects, asked for together, None where nothing is there."""
        return self._wait(_together([self._get_or_none(path) for path in paths]))

    def put(self, path: str, data: bytes, before: Head | None, sha256: str = "") -> bool:
        """Write an object if what is there still is `before`; returns whether this call did."""
        return self._wait(self._put(path, data, before, sha256))

    def touch(self, path: str, head: Head) -> bool:
        """Copy an object onto itself, so that it is new; returns whether it still was `head`."""
        return self._wait(self._touch(path, head))

    def delete(self, paths: Sequence[str]) -> None:
        """Remove objects; those that are not there do not matter."""
        self._wait(_together([self._delete(path) for path in paths]))

    def upload(self, path: str, source: Path, sha256: str) -> None:
        """Write a file as an object unless one is there."""
        self._wait(self._upload(path, source, sha256))

    def download(self, path: str, target: Path) -> str:
        """Write an object into a local file; returns the digest of what came. Raises NotFound."""
        return self._wait(self._download(path, target))

    def digest(self, path: str) -> str:
        """Return the digest of an object's bytes, which are not kept; raises NotFound."""
        return self._wait(self._download(path, None))

    # Many objects.

    def list(self, prefix: str) -> dict[str, Head]:
        """Return the objects below `prefix` by path, as far as a listing knows them."""
        return self._wait(self._list(prefix, ""))[0]

    def names(self, prefix: str) -> Sequence[str]:
        """Return the names right below `prefix`, sorted."""
        objects, folders = self._wait(self._list(prefix, "/"))
        return sorted({path.rpartition("/")[2] for path in objects} | set(folders))

    def _wait(self, work: Awaitable[T]) -> T:
        async def bounded() -> T:
            return await work

        return cast(T, sync(self._files.loop, bounded))

    async def _call(self, method: str, path: str | None, **arguments: Any) -> dict[str, Any]:
        """Make one request, once."""
        if path is not None:
            arguments["Key"] = self._prefix + path
        async with self._room:
            return await self._files.request(method, Bucket=self.name, **arguments)

    async def _tried(self, path: str, work: Callable[[], Awaitable[T]]) -> T:
        """Return what `work` returns, tried again after passing faults."""
        for number in range(TRIES):
            try:
                return await work()
            except (Refused, StorageError):
                raise
            except Exception as error:
                what = _fault(error)
                if what is None:
                    raise StorageError(f"{self._where}{path}: {self._why(error)}") from error
                if number == TRIES - 1:
                    raise StorageError(
                        f"{self._where}{path}: {what}, {TRIES} times: run the same command again "
                        "when the store is well"
                    ) from error
                log.debug("object=%s try=%d %s", path, number + 1, what)
            pause = min(LONGEST_PAUSE_S, PAUSE_S * 2**number)
            await asyncio.sleep(random.uniform(pause / 2, pause))
        raise AssertionError  # the last try returns or raises

    async def _head(self, path: str) -> Head | None:
        try:
            found = await self._tried(path, lambda: self._asked("head_object", path))
        except NotFound:
            return None
        return _head_of(found)

    async def _asked(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        """Make one request, once; raises NotFound and Refused."""
        try:
            return await self._call(method, path, **arguments)
        except Exception as error:
            status, code = _status(error)
            if code == "NoSuchBucket":
                raise
            if status == 404:
                raise NotFound(f"{self._where}{path} does not exist") from error
            if status == 412:
                raise Refused from error
            raise

    async def _get(self, path: str) -> tuple[bytes, Head]:
        async def once() -> tuple[bytes, Head]:
            answer = await self._asked("get_object", path)
            head = _head_of(answer)
            data = await _body(answer)
            if len(data) != head.bytes:
                raise Unlike
            return data, head

        return await self._tried(path, once)

    async def _get_or_none(self, path: str) -> tuple[bytes, Head] | None:
        try:
            return await self._get(path)
        except NotFound:
            return None

    async def _put(self, path: str, data: bytes, before: Head | None, sha256: str) -> bool:
        token = secrets.token_hex(8)
        condition = {"IfMatch": before.etag} if before else {"IfNoneMatch": "*"}
        writers = (token, *(before.writers if before else ()))
        known = _metadata(writers, before.creator if before else token, sha256)

        async def once() -> bool:
            try:
                await self._asked(
                    "put_object", path, Body=data, ContentMD5=_md5(data), Metadata=known,
                    **condition,
                )  # fmt: skip
                return True
            except (Refused, NotFound):
                return await self._is_mine(path, token, before)

        return await self._tried(path, once)

    async def _is_mine(self, path: str, token: str, before: Head | None) -> bool:
        """Return whether a write that was refused, maybe because of itself, did happen."""
        head = await self._head(path)
        if head is None:
            if before is None:  # what refused it is gone by now
                raise Unlike
            return False
        if token in (head.creator, *head.writers):
            return True
        if before is None or before.writers[:1] == () or before.writers[0] in head.writers:
            return False
        if len(head.writers) < REMEMBERED:
            return False
        raise StorageError(
            f"{self._where}{path}: a write was refused, and whether because of itself cannot be "
            "told any more, so many others there were: run the same command again"
        )

    async def _touch(self, path: str, head: Head) -> bool:
        if head.bytes > COPY_BYTES:
            return await self._touch_large(path, head)
        source = {"Bucket": self.name, "Key": self._prefix + path}
        arguments: dict[str, Any] = {
            "CopySource": source,
            "CopySourceIfMatch": head.etag,
            "Metadata": _metadata(head.writers, head.creator, head.sha256),
            "MetadataDirective": "REPLACE",
        }
        try:
            await self._tried(path, lambda: self._asked("copy_object", path, **arguments))
        except (NotFound, Refused):
            return False
        return True

    async def _touch_large(self, path: str, head: Head) -> bool:
        source = {"Bucket": self.name, "Key": self._prefix + path}
        known = _metadata(head.writers, head.creator, head.sha256)
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
            pieces = await _together([copy(n, start) for n, start in enumerate(starts, 1)])
            await self._finish(path, upload, pieces, {"IfMatch": head.etag})
        except (NotFound, Refused):
            await self._tried(
                path, lambda: self._gone("abort_multipart_upload", path, UploadId=upload)
            )
            return False
        return True

    async def _delete(self, path: str) -> None:
        try:
            await self._tried(path, lambda: self._asked("delete_object", path))
        except NotFound:
            return

    async def _upload(self, path: str, source: Path, sha256: str) -> None:
        size = source.stat().st_size
        if size <= PIECE_BYTES:
            await self._put(path, await asyncio.to_thread(source.read_bytes), None, sha256)
            return
        known = _metadata((), secrets.token_hex(8), sha256)
        begun = await self._tried(
            path, lambda: self._asked("create_multipart_upload", path, Metadata=known)
        )
        upload = str(begun["UploadId"])
        try:
            pieces = await self._pieces(path, upload, source, size)
            await self._finish(path, upload, pieces, {"IfNoneMatch": "*"})
        except BaseException:
            # Pieces that stay behind cost space: gc takes them, and so does a lifecycle rule.
            await self._tried(
                path, lambda: self._gone("abort_multipart_upload", path, UploadId=upload)
            )
            raise

    async def _pieces(
        self, path: str, upload: str, source: Path, size: int
    ) -> Sequence[dict[str, Any]]:
        length = max(PIECE_BYTES, -(-size // MOST_PIECES))
        some = asyncio.Semaphore(4)

        async def send(number: int) -> dict[str, Any]:
            async with some:
                data = await asyncio.to_thread(_piece, source, (number - 1) * length, length)
                guard = _md5(data)
                done = await self._tried(
                    path,
                    lambda: self._asked(
                        "upload_part", path, UploadId=upload, PartNumber=number, Body=data,
                        ContentMD5=guard,
                    ),
                )  # fmt: skip
            return {"PartNumber": number, "ETag": done["ETag"]}

        return await _together([send(number) for number in range(1, -(-size // length) + 1)])

    async def _finish(
        self,
        path: str,
        upload: str,
        pieces: Sequence[dict[str, Any]],
        condition: Mapping[str, str],
    ) -> None:
        """Make the object of its pieces, unless one is there; equal names have equal content."""

        async def once() -> None:
            try:
                await self._asked(
                    "complete_multipart_upload", path, UploadId=upload,
                    MultipartUpload={"Parts": list(pieces)}, **condition,
                )  # fmt: skip
            except Refused:  # somebody was first
                await self._gone("abort_multipart_upload", path, UploadId=upload)
            except NotFound:
                # An upload that is finished is not there any more either.
                if await self._head(path) is None:
                    raise

        await self._tried(path, once)

    async def _gone(self, method: str, path: str, **arguments: Any) -> None:
        try:
            await self._asked(method, path, **arguments)
        except NotFound:
            return

    async def _download(self, path: str, target: Path | None) -> str:
        head = await self._head(path)
        if head is None:
            raise NotFound(f"{self._where}{path} does not exist")
        seen = hashlib.sha256()
        handle = target.open("wb") if target else None
        try:
            starts = range(0, head.bytes, PIECE_BYTES)
            # Some pieces ahead, written and digested in their order.
            for at in range(0, len(starts), 4):
                group = [self._range(path, head, start) for start in starts[at : at + 4]]
                for data in await _together(group):
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
            try:
                answer = await self._asked(
                    "get_object", path, Range=f"bytes={start}-{end}", IfMatch=head.etag
                )
            except Refused as error:
                raise StorageError(
                    f"{self._where}{path} was written anew while it was read: run the same command "
                    "again"
                ) from error
            data = await _body(answer)
            if len(data) != end - start + 1:
                raise Unlike
            return data

        return await self._tried(path, once)

    async def _list(self, prefix: str, delimiter: str) -> tuple[dict[str, Head], Sequence[str]]:
        begin = self._prefix + (prefix.rstrip("/") + "/" if prefix else "")
        found: dict[str, Head] = {}
        folders: list[str] = []
        more: dict[str, Any] = {}
        while True:
            page = await self._tried(
                prefix,
                lambda more=more: self._call(
                    "list_objects_v2", None, Prefix=begin, Delimiter=delimiter, **more
                ),
            )
            for item in page.get("Contents", ()):
                path = str(item["Key"]).removeprefix(self._prefix)
                if not path.endswith("/"):  # what some tools make to show a folder
                    found[path] = Head(
                        item["ETag"], int(item["Size"]), item["LastModified"].timestamp()
                    )
            for item in page.get("CommonPrefixes", ()):
                folders.append(str(item["Prefix"]).removeprefix(begin).rstrip("/"))
            if not page.get("IsTruncated"):
                return found, folders
            more = {"ContinuationToken": page["NextContinuationToken"]}

    def _why(self, error: Exception) -> str:
        """Return what a person reads of a fault that will not pass."""
        status, code = _status(error)
        if isinstance(error, boto.NoCredentialsError | boto.PartialCredentialsError):
            return (
                "there are no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
                "AWS_PROFILE, or give this machine a role"
            )
        if code == "NoSuchBucket":
            return f"there is no bucket {self.name!r} at {endpoint()}: make it, or choose another"
        if status in (401, 403):
            return (
                f"access denied ({code or status}): check the credentials and their permissions; "
                "docs/s3.md lists those that are needed"
            )
        return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def endpoint() -> str:
    """Return where requests go, as far as the environment says it."""
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
        if os.environ.get(name):
            return os.environ[name]
    return "the endpoint of the AWS configuration"


async def _together(work: Sequence[Awaitable[T]]) -> list[T]:
    """Return the results in order; what fails first is raised when all have ended."""
    done = await asyncio.gather(*work, return_exceptions=True)
    for item in done:
        if isinstance(item, BaseException):
            raise item
    return cast(list[T], done)


async def _body(answer: Mapping[str, Any]) -> bytes:
    async with answer["Body"] as stream:
        return await stream.read()


def _head_of(answer: Mapping[str, Any]) -> Head:
    known = {str(name).lower(): str(value) for name, value in answer["Metadata"].items()}
    return Head(
        etag=answer["ETag"],
        bytes=int(answer["ContentLength"]),
        modified=answer["LastModified"].timestamp(),
        writers=tuple(known.get(WRITERS, "").split()),
        creator=known.get(CREATOR, ""),
        sha256=known.get(DIGEST, ""),
    )


def _metadata(writers: Sequence[str], creator: str, sha256: str) -> dict[str, str]:
    known = {WRITERS: " ".join(writers[:REMEMBERED]), CREATOR: creator}
    return known | ({DIGEST: sha256} if sha256 else {})


def _md5(data: bytes) -> str:
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()


def _piece(source: Path, start: int, length: int) -> bytes:
    with source.open("rb") as handle:
        handle.seek(start)
        return handle.read(length)


def _status(error: BaseException) -> tuple[int, str]:
    """Return the HTTP status and the code of an error answer, (0, '') of anything else."""
    for one in (error, error.__cause__):
        if isinstance(one, boto.ClientError):
            answer = cast(dict[str, Any], one.response)
            status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            code = str(answer.get("Error", {}).get("Code", ""))
            return int(status or (code if code.isdigit() else 0)), code
    return 0, ""


def _fault(error: Exception) -> str | None:
    """Return a passing fault in words, None for one that will not pass."""
    status, code = _status(error)
    if (status >= 500 and status != 501) or status == 429 or code in _PASSING:
        return f"the store answered {status} {code}".rstrip()
    if isinstance(error, Unlike):
        return "an answer was cut off"
    lost = (boto.ConnectionError, *_LOST)
    if isinstance(error, lost) or isinstance(error.__cause__, lost):
        return f"no answer from {endpoint()} ({type(error).__name__})"
    return None
