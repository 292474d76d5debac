"""Reads addresses within limits: from the net, or from a mirror that has the same paths."""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

import aiohttp

from genenv_core.errors import ConfigError, DownloadError, one_line

CHUNK = 2**18
BUSY = (429, 500, 502, 503, 504)
AT_ONCE = 8
"""Small files to request at the same time."""


@dataclass(frozen=True, slots=True)
class DownloadLimits:
    """Seconds for a connection, for a pause within an answer, for one request in all, and for pip.

    It repeats a request to a busy server, or one whose answer broke off, after waits that double.
    """

    connect_s: float = 30.0
    pause_s: float = 60.0
    request_s: float = 3600.0
    pip_s: float = 600.0
    tries: int = 3
    wait_s: float = 1.0


class DownloadOrigin:
    """Reads addresses from the net or from a mirror.

    A mirror is a folder or an http(s) address. An address `https://host/path` lies in it as
    `host/path`, as `wget --force-directories` puts it. With a mirror, no request goes elsewhere.
    The mirror gets the user and the password in its address, and no message repeats them.
    """

    def __init__(self, mirror: str | None = None, limits: DownloadLimits | None = None) -> None:
        """Take a mirror, None for the net itself; raises ConfigError for one of another kind."""
        self.limits = limits or DownloadLimits()
        self.mirror = mirror
        self._folder: Path | None = None
        if mirror and not mirror.startswith(("http://", "https://")):
            self._folder = Path(mirror).expanduser()
            if "://" in mirror or not os.path.isdir(self._folder):
                raise ConfigError(f"--from {mirror}: neither a folder nor an http(s) address")
        self._auth: aiohttp.BasicAuth | None = None
        user, at, host = urlsplit(mirror or "").netloc.rpartition("@")
        if mirror and at and not self._folder:
            name, _, password = map(unquote, user.partition(":"))
            self._auth = aiohttp.BasicAuth(name, password, "utf-8")
            self.mirror = mirror.replace(f"{user}@{host}", host, 1)

    def place(self, address: str) -> str:
        """Return the place that holds an address: the net's or the mirror's."""
        if not self.mirror:
            return address
        parts = urlsplit(address)
        if self._folder:
            return str(self._folder / parts.netloc / unquote(parts.path).lstrip("/"))
        return f"{self.mirror.rstrip('/')}/{parts.netloc}{parts.path}"

    def save(self, address: str, path: Path, most: int) -> None:
        """Write an address's content to a file; raises DownloadError, also above `most` bytes."""
        with path.open("wb") as file:
            asyncio.run(self._all([_Wanted(address, most, file)]))

    def read(self, address: str, most: int) -> bytes:
        """Return an address's content; raises DownloadError, also above `most` bytes."""
        return self.read_all([(address, most)])[0]

    def read_all(self, wanted: Sequence[tuple[str, int]]) -> list[bytes]:
        """Return the contents of several addresses, each within its limit; raises DownloadError."""
        sinks = [io.BytesIO() for _ in wanted]
        asyncio.run(
            self._all([_Wanted(*one, sink) for one, sink in zip(wanted, sinks, strict=True)])
        )
        return [sink.getvalue() for sink in sinks]

    async def _all(self, wanted: Sequence[_Wanted]) -> None:
        if self._folder:
            for one in wanted:
                self._copy(one)
            return
        limits = aiohttp.ClientTimeout(
            total=self.limits.request_s,
            sock_connect=self.limits.connect_s,
            sock_read=self.limits.pause_s,
        )
        turns = asyncio.Semaphore(AT_ONCE)
        async with aiohttp.ClientSession(timeout=limits, trust_env=True) as session:

            async def in_turn(one: _Wanted) -> None:
                async with turns:
                    await self._stream(session, one)

            await asyncio.gather(*map(in_turn, wanted))

    async def _stream(self, session: aiohttp.ClientSession, one: _Wanted) -> None:
        place = self.place(one.address)
        for left in reversed(range(self.limits.tries)):
            try:
                return await _streamed(session, one, place, self._auth)
            except TimeoutError as error:
                raise DownloadError(f"{place}: no answer in time") from error
            except (_Busy, aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError) as error:
                if not left:
                    raise DownloadError(f"{place}: {one_line(error, 200)}") from error
            except (aiohttp.ClientError, OSError, ValueError) as error:
                raise DownloadError(f"{place}: {one_line(error, 200)}") from error
            one.again()
            await asyncio.sleep(self.limits.wait_s * 2 ** (self.limits.tries - 1 - left))

    def _copy(self, one: _Wanted) -> None:
        place = self.place(one.address)
        try:
            with Path(place).open("rb") as file:
                while chunk := file.read(CHUNK):
                    one.take(chunk, place)
        except OSError as error:
            raise DownloadError(f"{place}: {error.strerror}") from error


class _Busy(Exception):
    """The server has no answer now."""


async def _streamed(
    session: aiohttp.ClientSession, one: _Wanted, place: str, auth: aiohttp.BasicAuth | None
) -> None:
    # For this request alone, so that a redirect does not send it to another host.
    async with session.get(place, auth=auth) as answer:
        if answer.status in BUSY:
            raise _Busy(f"HTTP {answer.status} {answer.reason}")
        if answer.status != 200:
            raise DownloadError(f"{place}: HTTP {answer.status} {answer.reason}")
        if leaves_https(place, str(answer.url)):
            raise DownloadError(f"{place}: it leads to {answer.url.origin()}, not to https")
        async for chunk in answer.content.iter_chunked(CHUNK):
            one.take(chunk, place)


def leaves_https(asked: str, answered: str) -> bool:
    """Return whether a request by https got its answer from an address of another kind."""
    return asked.startswith("https:") and not answered.startswith("https:")


@dataclass(slots=True)
class _Wanted:
    address: str
    most: int
    sink: BinaryIO
    got: int = 0

    def take(self, chunk: bytes, place: str) -> None:
        self.got += len(chunk)
        if self.got > self.most:
            raise DownloadError(f"{place}: more than the {self.most:,} bytes that it may have")
        self.sink.write(chunk)

    def again(self) -> None:
        self.got = 0
        self.sink.seek(0)
        self.sink.truncate()
