"""One vLLM server as the engine sees it: checks its health and its weights, and asks it.

How the checkpoint gets into a server that we did not start, and how answers prove that:

- it serves a model under the checkpoint's name already: every answer names it;
- the LoRA endpoint loads adapters under that name: every answer names it;
- the weight-update endpoints read whole weights from a path that both sides see. An answer then
  names the server's own model. So the engine reads the server's weight version, which we set, again
  after every answer; another client that loads other weights changes it first.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
from pydantic import ValidationError

from genenv_core.config.sections.compute import VllmConfig
from genenv_core.engines.vllm.server import VllmServer, adapter_rank
from genenv_core.engines.vllm.wire import (
    Aborted,
    Models,
    WireRequest,
    body,
    completions,
    wrong_model,
)
from genenv_core.errors import EngineError, one_line
from genenv_core.types import Completion, SamplingParams

Result = TypeVar("Result")
SHORT_S = 10.0
"""Longest wait for an answer that costs a server nothing: health, names, versions."""

LOAD_S = 1800.0
"""Longest wait for a server to read a checkpoint."""

COLLECT_S = 0.02
"""How long answers wait for others, so that one look at the weight version serves them all."""

CUT = 300
COMPUTED = re.compile(rb"^vllm:(?:prompt|generation)_tokens_total(?:\{[^}]*\})? (\S+)$", re.M)
"""The tokens that a server has computed, in its metrics."""


class LostAnswer(Exception):
    """No answer: an error of the server, a lost connection or, where `slow`, a time-out."""

    def __init__(self, message: str, *, slow: bool = False) -> None:
        super().__init__(message)
        self.slow = slow


class Forgotten(LostAnswer):
    """A server does not have the checkpoint any more: somebody started it anew."""


class RefusedRequest(Exception):
    """The server refuses the request as wrong."""


class Replica:
    """A server at a URL, or one of our own, and the requests under way there."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        *,
        url: str = "",
        key: str = "",
        server: VllmServer | None = None,
    ) -> None:
        """Take a server that may not be there yet."""
        self._session, self._url, self._key = session, url.rstrip("/"), key
        self.server = server
        self.up = False
        self.load = 0
        """Completions under way."""
        self.given = 0
        """Requests handed to it so far."""
        self.tasks: set[asyncio.Task[None]] = set()
        self.last_sign = self.since = time.monotonic()
        self.longest: int | None = None
        self._model = ""
        self._version = ""
        self._confirming: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Return its address, which changes with each start of our own."""
        return self.server.url if self.server else self._url

    @property
    def where(self) -> str:
        """Return its name in errors."""
        return f"engine vllm: {self.url}"

    def all_tasks(self) -> list[asyncio.Task[None]]:
        """Return all tasks that run for it now."""
        return [*self.tasks, *([self._confirming] if self._confirming else [])]

    async def prepare(self, name: str, checkpoint: Path, config: VllmConfig) -> None:
        """Return once it answers and has the checkpoint under its name.

        Raises LostAnswer while it does not answer, EngineError when it can never serve the
        checkpoint as configured.
        """
        status, _ = await self._call("GET", "/health", SHORT_S)
        if status != 200:
            raise LostAnswer(f"/health answers {status}")
        await self._check_version(config.version)
        models = await self._models()
        if models.longest and config.max_model_len and models.longest < config.max_model_len:
            raise EngineError(
                f"{self.where} takes sequences of {models.longest} tokens, and "
                f"compute.vllm.max_model_len is {config.max_model_len}: results depend on it; "
                "lower the field, or start the server with a larger --max-model-len"
            )
        self._version = ""
        if name in models.names:
            self._model = name
        elif self.server is not None:
            raise wrong_model(self.where, wanted=name, found=", ".join(models.names))
        elif adapter_rank(checkpoint):
            await self._load_adapter(name, checkpoint)
        else:
            await self._load_weights(name, checkpoint, models)
        if self.server is not None:
            await self._warm_up()
        self.longest = models.longest
        self.last_sign = time.monotonic()

    async def complete(
        self, ask: WireRequest, params: SamplingParams, max_tokens: int, timeout_s: float
    ) -> list[Completion]:
        """Return the completions of one request.

        Raises LostAnswer when another try may help (Forgotten when the server lacks the
        checkpoint), RefusedRequest when none will, EngineError when no answer of this server can be
        used.
        """
        payload = body(self._model, ask, params, max_tokens)
        status, data = await self._call("POST", "/v1/completions", timeout_s, payload)
        if status >= 500 or status in (408, 429):
            raise LostAnswer(f"{self.url} answers {status}: {_cut(data)}")
        if status == 404:
            raise Forgotten(f"{self.url} answers 404 for the model {self._model!r}: {_cut(data)}")
        if status in (401, 403):
            raise EngineError(f"{self.where} answers {status}: set GENENV_VLLM_API_KEY to its key")
        if status != 200:
            raise RefusedRequest(f"the server refused the request with {status}: {_cut(data)}")
        try:
            made = completions(
                data, ask, where=self.where, model=self._model, max_tokens=max_tokens
            )
        except Aborted as error:
            raise LostAnswer(f"{self.url} {error}") from error
        self.last_sign = time.monotonic()
        await self._confirm()
        return made

    async def alive(self, timeout_s: float, *, token: bool) -> bool:
        """Return whether it answers in time; `token` asks for a token, which a hung engine lacks.

        The token waits behind earlier requests, so a server that computes other tokens meanwhile
        counts as alive too.
        """
        if self.server is not None and not self.server.running:
            return False
        one = {"model": self._model, "prompt": [0], "max_tokens": 1}
        before = await self._computed(timeout_s) if token else None
        try:
            if token:
                status, _ = await self._call("POST", "/v1/completions", timeout_s, one)
            else:
                status, _ = await self._call("GET", "/health", min(timeout_s, SHORT_S))
        except LostAnswer as error:
            after = await self._computed(timeout_s) if token and error.slow else None
            if before is None or after is None or after <= before:
                return False
            status = 200
        if status < 500:
            self.last_sign = time.monotonic()
        return status < 500

    async def _computed(self, timeout_s: float) -> float | None:
        """Return how many tokens it has computed so far, None where it has no such metric."""
        try:
            status, data = await self._call("GET", "/metrics", min(timeout_s, SHORT_S))
        except LostAnswer:
            return None
        found = COMPUTED.findall(data) if status == 200 else []
        return sum(map(float, found)) if found else None

    async def _warm_up(self) -> None:
        """Sample one token: the first one may compile code for a minute, which is no hanging."""
        ask = WireRequest((0,), 0, 1)
        payload = body(self._model, ask, SamplingParams(max_tokens=1), 1)
        status, data = await self._call("POST", "/v1/completions", LOAD_S, payload)
        if status != 200:
            raise LostAnswer(f"{self.url} answers {status}: {_cut(data)}")

    async def _check_version(self, wanted: str) -> None:
        answer = await self._json("GET", "/version")
        found = str(answer.get("version", "unknown")).partition("+")[0]
        if found != wanted:
            raise EngineError(
                f"{self.where} runs vLLM {found}, and compute.vllm.version says {wanted}: results "
                "depend on it; set the field, or run that version"
            )

    async def _models(self) -> Models:
        status, data = await self._call("GET", "/v1/models", SHORT_S)
        if status in (401, 403) and self.server is None:  # ours knows its key: this is another one
            raise EngineError(f"{self.where} answers {status}: set GENENV_VLLM_API_KEY to its key")
        try:
            models = Models.model_validate_json(data if status == 200 else b"")
        except ValidationError:
            raise LostAnswer(f"{self.url}/v1/models answers {status}: {_cut(data)}") from None
        if not models.data:
            raise EngineError(f"{self.where} serves no model")
        return models

    async def _load_adapter(self, name: str, checkpoint: Path) -> None:
        payload = {"lora_name": name, "lora_path": str(checkpoint)}
        status, data = await self._call("POST", "/v1/load_lora_adapter", LOAD_S, payload)
        if status == 404:
            raise EngineError(
                f"{self.where} has no LoRA endpoint, and the model {name!r} is none of its own: "
                "start it with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"
            )
        if status != 200:
            raise EngineError(f"{self.where} does not load the adapters {payload}: {_cut(data)}")
        names = (await self._models()).names
        if name not in names:
            raise wrong_model(self.where, wanted=name, found=", ".join(names))
        self._model = name

    async def _load_weights(self, name: str, checkpoint: Path, models: Models) -> None:
        status, data = await self._call("GET", "/weight_info", SHORT_S)
        if status == 404:
            raise EngineError(
                f"{self.where} serves {', '.join(models.names)}, {name!r} was asked for; it has "
                "no weight-update endpoint: start it with VLLM_SERVER_DEV_MODE=1 in a trusted "
                "network, or serve the checkpoint under that name"
            )
        self._model = models.names[0]
        if status != 200 or _json(data).get("weight_version") != name:
            # Whoever reads the version while weights are being changed must not find an old one.
            await self._step("/update_weight_version", {"new_version": f"loading {name}"})
            await self._step("/pause?mode=wait")
            try:
                change = {"weights_path": str(checkpoint)}
                rpc = {"method": "reload_weights", "kwargs": change}
                await self._step("/collective_rpc", rpc)
                await self._step("/reset_prefix_cache")
            finally:
                await self._step("/resume")
            await self._step("/update_weight_version", {"new_version": name})
        self._version = name

    async def _step(self, path: str, payload: dict[str, Any] | None = None) -> None:
        status, data = await self._call("POST", path, LOAD_S, payload)
        if status != 200:
            raise EngineError(
                f"{self.where}{path} answers {status}: {_cut(data)}; the server has to see the "
                "checkpoint under the same path, and its model has to be of the same shape"
            )

    async def _confirm(self) -> None:
        """Return once the server has confirmed, after this call, that it still has our weights."""
        if not self._version:
            return
        if self._confirming is None:
            self._confirming = asyncio.create_task(self._read_version())
        await asyncio.shield(self._confirming)

    async def _read_version(self) -> None:
        await asyncio.sleep(COLLECT_S)
        self._confirming = None  # later callers need a look that begins after their call
        found = str((await self._json("GET", "/weight_info")).get("weight_version"))
        if found == "default":
            raise Forgotten(f"{self.url} has the weights that it was started with")
        if found != self._version:
            raise wrong_model(self.where, wanted=self._version, found=found)

    async def _json(self, method: str, path: str) -> dict[str, Any]:
        status, data = await self._call(method, path, SHORT_S)
        if status != 200:
            raise LostAnswer(f"{self.url}{path} answers {status}: {_cut(data)}")
        return _json(data)

    async def _call(
        self, method: str, path: str, timeout_s: float, payload: dict[str, Any] | None = None
    ) -> tuple[int, bytes]:
        """Return status and body; raises LostAnswer without an answer in time."""
        key = self.server.key if self.server else self._key
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._session.request(
                    method, f"{self.url}{path}", json=payload, headers=headers
                ) as answer,
            ):
                return answer.status, await answer.read()
        except TimeoutError:
            plain = path.partition("?")[0]
            raise LostAnswer(
                f"{self.url}{plain}: no answer in {timeout_s:g} s", slow=True
            ) from None
        except (aiohttp.ClientError, OSError) as error:
            raise LostAnswer(f"{self.url}: {type(error).__name__}: {error}"[:CUT]) from error


async def until(
    ready: Callable[[], Awaitable[Result]],
    *,
    seconds: float,
    goes_on: Callable[[], bool],
    pause_s: float = 0.2,
) -> Result:
    """Call `ready` until it raises no LostAnswer, and return its result.

    Raises the last LostAnswer when the time is up, or at once when it no longer `goes_on`.
    """
    deadline = time.monotonic() + seconds
    while True:
        limit = asyncio.timeout(max(0.0, deadline - time.monotonic()))
        try:
            async with limit:
                return await ready()
        except TimeoutError:
            if not limit.expired():
                raise
            raise LostAnswer(f"not ready in {seconds:g} s", slow=True) from None
        except LostAnswer:
            if time.monotonic() > deadline or not goes_on():
                raise
        await asyncio.sleep(pause_s)


def _json(data: bytes) -> dict[str, Any]:
    try:
        return dict(json.loads(data))
    except (ValueError, TypeError):
        return {}


def _cut(data: bytes) -> str:
    """Return the message of an error's body, in one short line."""
    error = _json(data).get("error", "")
    message = error.get("message", "") if isinstance(error, dict) else error  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    text = str(message or data.decode(errors="replace"))  # pyright: ignore[reportUnknownArgumentType]
    return one_line(text, CUT)
