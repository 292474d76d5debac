"""Tells whether a server is still the same process.

A resources server keeps sessions in memory, and its cookies outlive the process. After a restart,
it answers a session that it does not know as if nothing had happened.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from urllib.parse import urlsplit

from genenv_core.domains.kit.served.client import answering, loop


class OpenLine:
    """A connection without traffic: it ends when the process at its other end does."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @property
    def ended(self) -> bool:
        """Return whether the other end has closed it."""
        return self._reader.at_eof() or self._reader.exception() is not None

    def close(self) -> None:
        """Close this end, from any thread."""
        with suppress(RuntimeError):  # the loop has ended, and all connections with it
            loop().call_soon_threadsafe(self._writer.close)


async def open_line(url: str, timeout_s: float) -> OpenLine:
    """Return a connection with the server at a URL; raises EnvironmentLost without an answer."""
    parts = urlsplit(url)
    safe = parts.scheme == "https"
    async with answering(url, timeout_s):
        port = parts.port or (443 if safe else 80)
        return OpenLine(*await asyncio.open_connection(parts.hostname, port, ssl=safe or None))
