"""A bucket on this machine: moto's server, and a proxy before it that makes requests fail.

The proxy answers 500 or 503 (403 on request), or drops the connection, before a request reaches the
store or after it took effect there; or it removes the conditions of requests, like stores that do
not know them; or it hides objects from listings; or it is slow.
Behind the proxy moto answers one request after the other, so that each takes effect as a whole.
"""

from __future__ import annotations

import asyncio
import io
import os
import random
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from werkzeug.wsgi import get_input_stream

from tests.waiting import BOUND_S

BUCKET = "pools"
CONDITIONS = ("if-none-match", "if-match")
FAULTS = ("500", "503", "drop")
_HOP = {"transfer-encoding", "connection", "content-encoding", "content-length", "host"}
_SLOW_DOWN = "<?xml version='1.0'?><Error><Code>{code}</Code><Message>on purpose</Message></Error>"


class OneAtATime:
    """Lets an application answer one request after the other.

    S3 carries out each request as a whole. moto works on each in a thread of its own: it compares
    an ETag before it writes, and shows an object before it gives it the metadata. A writer that
    reads the object between the two would take the tokens of earlier writers away.
    """

    def __init__(self, application: Any) -> None:
        """Stand before a WSGI application."""
        self._application = application
        self._turn = threading.Lock()
        self.waiting: list[bytes] = []
        """Bodies of the requests that have come and wait for their turn."""

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Answer a request once its body is there: its sender may stop or die amid it."""
        body = get_input_stream(environ).read()
        environ["wsgi.input"] = io.BytesIO(body)
        self.waiting.append(body)
        with self._turn:
            self.waiting.remove(body)
            return self._application(environ, start_response)


@contextmanager
def moto() -> Iterator[str]:
    """Serve an empty bucket; yields the address."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    assert server._server is not None
    server._server.app = OneAtATime(server._server.app)
    host, port = server.get_host_and_port()
    try:
        make_bucket(f"http://{host}:{port}")
        yield f"http://{host}:{port}"
    finally:
        server.stop()


def make_bucket(url: str) -> None:
    """Make the bucket."""
    asyncio.run(_put(f"{url}/{BUCKET}"))


async def _put(url: str) -> None:
    async with aiohttp.ClientSession() as session, session.put(url) as answer:
        assert answer.status == 200, await answer.text()


def age(seconds: float) -> None:
    """Make every object in the bucket this much older, as `os.utime` does for files."""
    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.s3.models import s3_backends

    for item in s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets[BUCKET].keys.values():
        item.last_modified -= timedelta(seconds=seconds)


def environment(url: str) -> dict[str, str]:
    """Return the environment variables that the AWS credential chain reads."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "AKIATESTTESTTESTTEST",
        "AWS_SECRET_ACCESS_KEY": "s3cret-never-in-a-log",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }


def settled(url: str, folder: Path, patch: pytest.MonkeyPatch) -> str:
    """Set the environment of a bucket, with local folders below `folder`; returns a root."""
    for name, value in environment(url).items():
        patch.setenv(name, value)
    patch.setenv("GENENV_CACHE_DIR", str(folder / "cache"))
    patch.setenv("GENENV_STATE_DIR", str(folder / "state"))
    return f"s3://{BUCKET}/{folder.name}"


@dataclass
class Faults:
    """Faults of the proxy: a share `rate` of all requests fails, and `plan` lists single faults.

    Each request takes at least `delay_s`. An item of the plan is (method, part of the path, fault,
    `before` or `after` the request takes effect).
    """

    rate: float = 0.0
    delay_s: float = 0.0
    seed: int = 0
    strip: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    plan: list[tuple[str, str, str, str]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        """Seed the random faults."""
        self._random = random.Random(self.seed)

    def draw(self, method: str, path: str) -> tuple[str, str] | None:
        """Return the fault of one request and its moment, or None."""
        self.counts["requests"] += 1
        for item in self.plan:
            if item[0] == method and item[1] in path:
                self.plan.remove(item)
                return item[2], item[3]
        if self._random.random() < self.rate:
            return self._random.choice(FAULTS), self._random.choice(("before", "after"))
        return None


@contextmanager
def proxy(behind: str, faults: Faults) -> Iterator[str]:
    """Serve the proxy in a thread of its own; yields its address."""
    loop = asyncio.new_event_loop()
    ready = threading.Event()
    found: list[str] = []

    async def serve() -> None:
        async with aiohttp.ClientSession(auto_decompress=False) as session:
            app = web.Application(client_max_size=2**30)

            async def handle(request: web.Request) -> web.StreamResponse:
                return await _forward(session, behind, faults, request)

            app.router.add_route("*", "/{tail:.*}", handle)
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            found.append("http://{}:{}".format(*runner.addresses[0][:2]))
            ready.set()
            await stop.wait()
            await runner.cleanup()

    stop = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
    thread.start()
    assert ready.wait(BOUND_S)
    try:
        yield found[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(BOUND_S)
        loop.close()


async def _forward(
    session: aiohttp.ClientSession, behind: str, faults: Faults, request: web.Request
) -> web.StreamResponse:
    body = await request.read()
    await asyncio.sleep(faults.delay_s)
    fault = faults.draw(request.method, request.path)
    if fault and fault[1] == "before":
        return _fail(fault, faults, request)
    headers = {
        name: value
        for name, value in request.headers.items()
        if name.lower() not in {*_HOP, *faults.strip}
    }
    url = behind + request.raw_path
    async with session.request(
        request.method, url, data=body, headers=headers, skip_auto_headers=("Content-Type",)
    ) as answer:
        data = await answer.read()
        if fault:
            return _fail(fault, faults, request)
        kept = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP}
        if request.method == "HEAD":
            kept["Content-Length"] = answer.headers.get("Content-Length", "0")
        if "list-type" in request.query:
            data = _without(data, faults.hidden)
        return web.Response(status=answer.status, body=data, headers=kept)


def _fail(fault: tuple[str, str], faults: Faults, request: web.Request) -> web.StreamResponse:
    faults.counts[f"{fault[0]} {fault[1]}"] += 1
    if fault[0] == "drop":
        assert request.transport is not None
        request.transport.close()
        return web.Response()
    code = {"403": "AccessDenied", "500": "InternalError", "503": "SlowDown"}[fault[0]]
    return web.Response(
        status=int(fault[0]), text=_SLOW_DOWN.format(code=code), content_type="application/xml"
    )


def _without(listing: bytes, hidden: tuple[str, ...]) -> bytes:
    """Return a listing without the objects whose names contain these words."""
    head, *items = listing.split(b"<Contents>")
    kept = [item for item in items if not any(word.encode() in item for word in hidden)]
    if len(kept) < len(items) and items[-1] not in kept:
        kept.append(items[-1].partition(b"</Contents>")[2])
        return b"<Contents>".join([head, *kept[:-1]]) + kept[-1]
    return b"<Contents>".join([head, *kept])
