"""A small double of vLLM's OpenAI-compatible server, which can fail in the ways that servers do.

A completion is a hash of model, prompt and seed, so a test can see which weights answered, and a
repeated request gets the same answer. `Faults` are what goes wrong.
Run as a program it takes vLLM's own arguments (`python fake_vllm.py --model=... --port=...`), and
starts a second process, as vLLM does.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

VERSION = "0.31.0"
END = 1
VOCABULARY = 50


def tokens(model: str, prompt: list[int], seed: int, limit: int) -> list[int]:
    """Return the model's completion of a prompt: 1 to 6 tokens, the last one END."""
    digest = hashlib.sha256(json.dumps([model, prompt, seed]).encode()).digest()
    length = 1 + digest[0] % 5
    made = [2 + byte % (VOCABULARY - 2) for byte in digest[1 : 1 + length]]
    return [*made, END][:limit]


@dataclass
class Faults:
    """The faults of a server; each occurrence lowers its count by one."""

    errors: int = 0
    """Answers 503."""
    drops: int = 0
    """Connections closed without an answer."""
    held: bool = False
    """Whether requests wait until this is False; health checks are answered."""
    first: int = 10**9
    """Requests, besides warm-up, that are answered before others wait for the file `released`."""
    released: Path = Path("/nowhere")
    frozen: bool = False
    """Whether nothing is answered at all."""
    unhealthy: bool = False
    answers_for: str = ""
    """A wrong model name for the answers."""
    extra_logprobs: int = 0
    other_prompt: bool = False
    no_ids: bool = False
    dies: bool = False
    """Whether a request, other than a warm-up, ends the server."""
    refuse_above: int = 10**9
    """Prompts with a larger token id are answered 400."""
    delay_s: float = 0.0
    aborts: int = 0
    """Answers whose finish reason is `abort`."""
    computes: bool = False
    """Whether the metrics report more tokens each time."""


@dataclass
class FakeVllm:
    """The server's state: its models, the requests so far and its faults."""

    model: str = "m"
    max_model_len: int | None = 64
    version: str = VERSION
    key: str = ""
    lora: bool = False
    dev: bool = False
    faults: Faults = field(default_factory=Faults)
    asked: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    most_at_once: int = 0
    at_once: int = 0
    adapters: list[str] = field(default_factory=list[str])
    weight_version: str = "default"
    weights: str = "first"
    steps: list[str] = field(default_factory=list[str])
    computed: int = 0

    def app(self) -> web.Application:
        """Return the routes."""
        app = web.Application(middlewares=[self._common])
        app.router.add_get("/health", self._health)
        app.router.add_get("/version", self._version)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/completions", self._completions)
        if self.lora:
            app.router.add_post("/v1/load_lora_adapter", self._load_lora)
        if self.dev:
            app.router.add_get("/weight_info", self._weight_info)
            app.router.add_post("/update_weight_version", self._set_version)
            app.router.add_post("/collective_rpc", self._rpc)
            for path in ("/pause", "/resume", "/reset_prefix_cache"):
                app.router.add_post(path, self._done)
        return app

    @web.middleware
    async def _common(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if self.faults.frozen:
            await asyncio.sleep(3600)
        wanted = f"Bearer {self.key}" if self.key and request.path.startswith("/v1") else None
        if wanted and request.headers.get("Authorization") != wanted:
            return _error(401, "Unauthorized")
        return await handler(request)

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(status=503 if self.faults.unhealthy else 200)

    async def _metrics(self, _: web.Request) -> web.Response:
        self.computed += self.faults.computes
        return web.Response(
            text="# TYPE vllm:generation_tokens counter\n"
            f'vllm:generation_tokens_total{{engine="0",model_name="m"}} {self.computed}.0\n'
            'vllm:generation_tokens_created{engine="0",model_name="m"} 1.7e+09\n'
        )

    async def _version(self, _: web.Request) -> web.Response:
        return web.json_response({"version": self.version})

    async def _models(self, _: web.Request) -> web.Response:
        names = [self.model, *self.adapters]
        data = [{"id": name, "max_model_len": self.max_model_len} for name in names]
        return web.json_response({"object": "list", "data": data})

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        body, faults = await request.json(), self.faults
        self.asked.append(body)
        self.at_once += body.get("n", 1)
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if faults.dies and body["prompt"] != [0]:
                os._exit(1)
            while faults.held:
                await asyncio.sleep(0.002)
            if body["prompt"] != [0]:
                while faults.first <= 0 and not faults.released.exists():
                    await asyncio.sleep(0.002)
                faults.first -= 1
            await asyncio.sleep(faults.delay_s)
            if faults.errors:
                faults.errors -= 1
                return _error(503, "overloaded")
            if faults.drops:
                faults.drops -= 1
                assert request.transport is not None
                request.transport.close()
                return web.Response()
            if body["model"] not in [self.model, *self.adapters]:
                return _error(404, f"The model `{body['model']}` does not exist.")
            if max(body["prompt"]) > faults.refuse_above:
                return _error(400, "Token id is out of vocabulary")
            answer = self._answer(body)
            if faults.aborts:
                faults.aborts -= 1
                answer["choices"][0].update(finish_reason="abort", token_ids=[], logprobs=None)
            return web.json_response(answer)
        finally:
            self.at_once -= body.get("n", 1)

    def _answer(self, body: dict[str, Any]) -> dict[str, Any]:
        faults, model = self.faults, body["model"]
        seen = model if model in self.adapters or not self.dev else self.weights
        choices: list[dict[str, Any]] = []
        for index in range(body.get("n", 1)):
            ids = tokens(seen, body["prompt"], body.get("seed", 0) + index, body["max_tokens"])
            choice = {
                "index": index,
                "text": "...",
                "finish_reason": "stop" if ids[-1] == END else "length",
                "logprobs": {
                    "token_logprobs": [-token / 100 for token in ids]
                    + [-1.0] * faults.extra_logprobs
                },
                "token_ids": ids,
                "prompt_token_ids": [9, 9] if faults.other_prompt else body["prompt"],
            }
            if faults.no_ids:
                del choice["token_ids"]
            choices.append(choice)
        return {"model": faults.answers_for or model, "choices": choices[::-1]}

    async def _load_lora(self, request: web.Request) -> web.Response:
        body = await request.json()
        if not Path(body["lora_path"]).is_dir():
            return _error(404, f"no adapter at {body['lora_path']}")
        self.adapters.append(body["lora_name"])
        return web.Response(text="loaded")

    async def _weight_info(self, _: web.Request) -> web.Response:
        return web.json_response({"weight_version": self.weight_version})

    async def _set_version(self, request: web.Request) -> web.Response:
        self.weight_version = (await request.json())["new_version"]
        self.steps.append(f"version {self.weight_version}")
        return web.json_response({"success": True})

    async def _rpc(self, request: web.Request) -> web.Response:
        body = await request.json()
        path = body["kwargs"]["weights_path"]
        self.steps.append(body["method"])
        if not Path(path).is_dir():
            return _error(500, f"no weights at {path}")
        self.weights = path
        return web.json_response({"results": [None]})

    async def _done(self, request: web.Request) -> web.Response:
        self.steps.append(request.path[1:])
        return web.json_response({})


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message, "code": status}}, status=status)


class Running:
    """Runs a double in a thread, at `url`; a test can stop and start it."""

    def __init__(self, fake: FakeVllm) -> None:
        """Start it on a free port."""
        self.fake, self.port = fake, 0
        self.start()

    @property
    def url(self) -> str:
        """Return the address, which stays the same after a restart."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Serve."""
        ready = threading.Event()
        self._loop = asyncio.new_event_loop()

        async def serve() -> None:
            self._runner = web.AppRunner(
                self.fake.app(), shutdown_timeout=0.01, handler_cancellation=True
            )
            await self._runner.setup()
            site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
            await site.start()
            self.port = self._runner.addresses[0][1]
            ready.set()

        def run() -> None:
            self._loop.create_task(serve())
            self._loop.run_forever()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        assert ready.wait(60)

    def stop(self) -> None:
        """Close the port and every connection; a second call does nothing."""
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextlib.contextmanager
def serving(*fakes: FakeVllm) -> Iterator[list[Running]]:
    """Run doubles inside the block."""
    running = [Running(fake) for fake in fakes]
    try:
        yield running
    finally:
        for one in running:
            one.stop()


def write_interpreter(folder: Path, *, before: str = "") -> Path:
    """Return a program that takes the place of the python in vLLM's environment.

    Called as `python -m vllm.entrypoints.openai.api_server ...`, it runs the shell code `before`,
    then this file with the remaining arguments.
    """
    path = folder / "vllm-python"
    path.write_text(
        f'#!/bin/sh\n{before}\nshift 2\nexec "{sys.executable}" "{Path(__file__)}" "$@"\n',
        encoding="utf-8",
    )
    path.chmod(0o755)
    return path


def main(arguments: list[str]) -> None:
    """Print the pids of this process and of a second one, then serve until killed."""
    options = dict(argument[2:].partition("=")[::2] for argument in arguments)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    print(f"pids {os.getpid()} {child.pid}", flush=True)
    fake = FakeVllm(
        model=options["served-model-name"],
        key=os.environ["VLLM_API_KEY"],
        faults=Faults(
            held="VLLM_FAKE_HOLDS" in os.environ,
            first=int(os.environ.get("VLLM_FAKE_FIRST", 10**9)),
            released=Path(os.environ.get("VLLM_FAKE_RELEASED", "/nowhere")),
            dies="VLLM_FAKE_DIES" in os.environ,
        ),
    )
    web.run_app(fake.app(), host=options["host"], port=int(options["port"]), print=None)


if __name__ == "__main__":
    main(sys.argv[1:])
