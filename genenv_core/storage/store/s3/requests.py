"""Makes single requests to a bucket, repeats them after passing faults, and finds out their fate.

A write whose answer got lost may have happened all the same, so the store may refuse a second try
because of the first; and aiohttp makes second tries of its own when a connection breaks. So every
conditional write leaves a token in the object's metadata, beside the tokens of the object's
creation and of the writes before. After a refusal the writer looks for its token there, and finds
it even when others have written since.

s3fs gives the session, the credentials and the endpoint. Its own retries are off, since they would
take such a refusal for another process's write.
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
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar, cast

import s3fs
from botocore.handlers import add_expect_header

from genenv_core.errors import NotFound, StorageError
from genenv_core.storage.store.s3.away import Away
from genenv_core.storage.store.s3.faults import (
    ConditionFailed,
    ForeignAnswer,
    Unlike,
    fault,
    foreign,
    no_store,
    status_of,
    why,
)

log = logging.getLogger("genenv.storage.s3")

T = TypeVar("T")

TRIES = 10
"""Tries of one request; with the pauses between them they outlast half a minute of trouble."""

PAUSE_S = 0.1
LONGEST_PAUSE_S = 8.0
CONNECT_S = 10
READ_S = 30
AT_ONCE = 32
"""Requests at the same time."""

LARGE_AT_ONCE = 3
"""Objects in pieces at the same time, as memory holds some pieces of each."""

WRITERS = "genenv-writers"
CREATOR = "genenv-creator"
DIGEST = "genenv-sha256"
REMEMBERED = 128
"""Writes that an object's metadata remembers: S3 takes 2 KB, and a token has 9 bytes."""


@dataclass(frozen=True, slots=True)
class Head:
    """What a bucket knows of an object; `modified` is in seconds, by the bucket's clock."""

    etag: str
    bytes: int
    modified: float
    writers: tuple[str, ...] = ()
    creator: str = ""
    sha256: str = ""


class _OneTry(s3fs.S3FileSystem):
    retries = 1

    async def set_session(self, refresh: bool = False, kwargs: Any = None) -> Any:
        """Return a client that sends a body at once.

        botocore would first ask for permission (Expect: 100-continue), and aiohttp waits for that
        answer without end: a server that does not know the question would hold a run for ever.
        """
        client = await super().set_session(refresh, kwargs or {})
        client.meta.events.unregister("before-call.s3", add_expect_header)
        return client

    async def request(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Make one request of S3's API."""
        return await self._call_s3(method, **arguments)


@lru_cache(4)
def _connections(
    usual: tuple[tuple[str, str], ...], pid: int
) -> tuple[_OneTry, asyncio.Semaphore, asyncio.Semaphore]:
    """Return the connections of this process under one environment; to make them takes a while.

    It also returns the semaphores for requests and for large objects.
    """
    files = _OneTry(
        config_kwargs={
            "connect_timeout": CONNECT_S,
            "read_timeout": READ_S,
            "max_pool_connections": AT_ONCE,
            "retries": {"total_max_attempts": 1},
            # Content-MD5, which every store knows, guards uploads; digests guard downloads.
            "request_checksum_calculation": "when_required",
            "response_checksum_validation": "when_required",
        },
        use_listings_cache=False,
        skip_instance_cache=True,
    )
    return files, asyncio.Semaphore(AT_ONCE), asyncio.Semaphore(LARGE_AT_ONCE)


class S3Requests:
    """Requests for the objects of one bucket below a prefix, for fsspec's event loop."""

    def __init__(self, name: str, prefix: str) -> None:
        """Take a bucket's name, without a request. The usual chain gives the credentials."""
        self.name = name
        self._prefix = f"{prefix}/" if prefix else ""
        self._where = f"s3://{name}/{self._prefix}"
        self._away = Away(self._where)
        usual = tuple(sorted(item for item in os.environ.items() if item[0].startswith("AWS_")))
        self._files, self._room, self._large = _connections(usual, os.getpid())

    async def _call(self, method: str, path: str | None, **arguments: Any) -> dict[str, Any]:
        """Make one request, once."""
        if path is not None:
            arguments["Key"] = self._prefix + path
        async with self._room:
            return await self._files.request(method, Bucket=self.name, **arguments)

    async def _tried(self, path: str, work: Callable[[], Awaitable[T]]) -> T:
        """Return what `work` returns; repeat it after passing faults."""
        since = time.monotonic()
        for number in range(TRIES):
            try:
                done = await work()
            except (ConditionFailed, StorageError):
                self._away.answered(path)
                raise
            except Exception as error:
                what = fault(error)
                if what is None or number == TRIES - 1:
                    self._away.given_up(path)
                if what is None:
                    raise StorageError(f"{self._where}{path}: {why(error, self.name)}") from error
                if number == TRIES - 1:
                    hint = "run the same command again when the store is well"
                    if other := foreign(error):
                        hint = no_store(other)
                    raise StorageError(
                        f"{self._where}{path}: {what}, {TRIES} times: {hint}"
                    ) from error
                log.debug("object=%s try=%d %s", path, number + 1, what)
                self._away.tried(path, what, time.monotonic() - since)
            else:
                self._away.answered(path)
                return done
            pause = min(LONGEST_PAUSE_S, PAUSE_S * 2**number)
            await asyncio.sleep(random.uniform(pause / 2, pause))
        raise AssertionError  # the last try returns or raises

    async def _asked(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        """Make one request, once; raises NotFound and ConditionFailed."""
        try:
            return await self._call(method, path, **arguments)
        except Exception as error:
            status, code = status_of(error)
            if code == "NoSuchBucket" or foreign(error):
                raise
            if status == 404:
                raise NotFound(f"{self._where}{path} does not exist") from error
            if status == 412:
                raise ConditionFailed from error
            raise

    async def _head(self, path: str) -> Head | None:
        try:
            found = await self._tried(path, lambda: self._asked("head_object", path))
        except NotFound:
            return None
        return _head_of(found)

    async def _get(self, path: str) -> tuple[bytes, Head]:
        async def once() -> tuple[bytes, Head]:
            answer = await self._asked("get_object", path)
            head = _head_of(answer)
            data = await body_of(answer)
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
        token = secrets.token_urlsafe(6)
        condition = {"IfMatch": before.etag} if before else {"IfNoneMatch": "*"}
        writers = (token, *(before.writers if before else ()))
        known = metadata(writers, before.creator if before else token, sha256)

        async def once() -> bool:
            try:
                await self._asked(
                    "put_object", path, Body=data, ContentMD5=md5(data), Metadata=known,
                    **condition,
                )  # fmt: skip
                return True
            except (ConditionFailed, NotFound):
                return await self._is_mine(path, token, before)

        return await self._tried(path, once)

    async def _is_mine(self, path: str, token: str, before: Head | None) -> bool:
        """Return whether a refused write did happen: its own first try may cause the refusal.

        False where somebody has made the object anew: what the write did went with the old object.
        Raises StorageError where the object's metadata cannot tell.
        """
        head = await self._head(path)
        if head is None:
            if before is None:  # the object that caused the refusal has gone
                raise Unlike
            return False
        if token in (head.creator, *head.writers):
            return True
        if before is None or before.writers[:1] == () or before.writers[0] in head.writers:
            return False
        if head.creator not in ("", before.creator):
            return False
        raise StorageError(
            f"{self._where}{path}: the store refused a write, and genenv cannot tell whether an "
            "earlier try of it succeeded, because too many other writes followed, or one of "
            "another tool: run the same command again"
        )

    async def _touch(self, path: str, head: Head) -> bool:
        source = {"Bucket": self.name, "Key": self._prefix + path}
        arguments: dict[str, Any] = {
            "CopySource": source,
            "CopySourceIfMatch": head.etag,
            "Metadata": metadata(head.writers, head.creator, head.sha256),
            "MetadataDirective": "REPLACE",
        }
        try:
            await self._tried(path, lambda: self._asked("copy_object", path, **arguments))
        except (NotFound, ConditionFailed):
            return False
        return True

    async def _delete(self, path: str) -> None:
        await self._tried(path, lambda: self._gone("delete_object", path))

    async def _gone(self, method: str, path: str, **arguments: Any) -> None:
        try:
            await self._asked(method, path, **arguments)
        except NotFound:
            return

    async def _list(self, prefix: str, delimiter: str) -> tuple[dict[str, Head], Sequence[str]]:
        begin = self._prefix + (prefix.rstrip("/") + "/" if prefix else "")
        found: dict[str, Head] = {}
        folders: list[str] = []
        more: dict[str, Any] = {}
        while True:
            asked = {"Prefix": begin, "Delimiter": delimiter, **more}
            page = await self._tried(prefix, lambda asked=asked: self._page(asked))
            for item in page.get("Contents", ()):
                path = str(item["Key"]).removeprefix(self._prefix)
                if not path.endswith("/"):  # some tools make an object that shows a folder
                    found[path] = Head(
                        item["ETag"], int(item["Size"]), item["LastModified"].timestamp()
                    )
            for item in page.get("CommonPrefixes", ()):
                folders.append(str(item["Prefix"]).removeprefix(begin).rstrip("/"))
            if not page.get("IsTruncated"):
                return found, folders
            more = {"ContinuationToken": page["NextContinuationToken"]}

    async def _page(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        page = await self._call("list_objects_v2", None, **asked)
        if not page.keys() & {"Name", "IsTruncated", "KeyCount", "Contents"}:
            # botocore takes any XML, even a web page, for an empty listing.
            raise ForeignAnswer("a listing without Name")
        return page


async def together(work: Sequence[Awaitable[T]]) -> list[T]:
    """Return the results in order, or raise the first error among them, when all have ended."""
    done = await asyncio.gather(*work, return_exceptions=True)
    for item in done:
        if isinstance(item, BaseException):
            raise item
    return cast(list[T], done)


async def body_of(answer: Mapping[str, Any]) -> bytes:
    """Return the whole body of an answer of S3."""
    async with answer["Body"] as stream:
        return await stream.read()


def _head_of(answer: Mapping[str, Any]) -> Head:
    if lost := {"ETag", "ContentLength", "LastModified", "Metadata"} - answer.keys():
        raise ForeignAnswer(f"an answer without {min(lost)}")
    known = {str(name).lower(): str(value) for name, value in answer["Metadata"].items()}
    return Head(
        etag=answer["ETag"],
        bytes=int(answer["ContentLength"]),
        modified=answer["LastModified"].timestamp(),
        writers=tuple(known.get(WRITERS, "").split()),
        creator=known.get(CREATOR, ""),
        sha256=known.get(DIGEST, ""),
    )


def metadata(writers: Sequence[str], creator: str, sha256: str) -> dict[str, str]:
    """Return an object's metadata: its writers' and its creator's tokens, and a digest if given."""
    known = {WRITERS: " ".join(writers[:REMEMBERED]), CREATOR: creator}
    return known | ({DIGEST: sha256} if sha256 else {})


def md5(data: bytes) -> str:
    """Return the MD5 of bytes in Base64, as the header Content-MD5 has it."""
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
