"""A double of a resources server of NeMo Gym in this process, with faults on demand.

It keeps what a real one (`nemo-gym` 0.7, played by hand) does and what is easily missed: its
cookies hold after a new start, and a session that it does not know begins without a word.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.unit.domains.doubles import Double, running

HINT: dict[str, Any] = {
    "type": "function", "name": "hint", "description": "Say whether the sum has two digits.",
    "parameters": {"type": "object", "properties": {"loud": {"type": "boolean"}}}, "strict": True,
}  # fmt: skip
COOKIE = "Sums___sums"
PATHS: dict[str, Any] = {
    path: {"post": {}} for path in ("/seed_session", "/close_session", "/verify", "/hint")
}


def row(split: str, index: int) -> dict[str, Any]:
    first, second = 1 + index % 9, 1 + index // 9 + 5 * (split == "test")
    asked = {"role": "user", "content": f"{first} + {second} ="}
    params = {"input": [asked], "tools": [HINT]}
    sums = {"first": first, "second": second, "right": str(first + second)}
    return {"responses_create_params": params, "split": split, **sums}


def written_rows(folder: Path) -> str:
    """Write 40 rows to train on and 20 held-out ones; returns the file's path."""
    rows = [*(row("train", one) for one in range(40)), *(row("test", one) for one in range(20))]
    path = folder / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


@dataclass
class GymSumsServer(Double):
    """The server; the fields may be changed while it runs.

    `spoil` gets each route and the text of its answer, and returns what is sent; None closes the
    connection instead, and a number is a status without JSON. `more` goes into every verdict.
    """

    spoil: Callable[[str, str], str | int | None] = lambda _, text: text
    paths: dict[str, Any] = field(default_factory=lambda: dict(PATHS))
    more: dict[str, Any] = field(default_factory=dict)
    hints: dict[str, int] = field(default_factory=dict)
    """Hints that each session was given."""
    verified: list[dict[str, Any]] = field(default_factory=list)
    """What `/verify` was asked."""
    made: int = 0
    most: int = 0
    """Sessions at once so far."""

    def stop(self) -> None:
        """Close everything, as a process that dies does."""
        super().stop()
        self.hints.clear()

    def kill(self) -> None:
        """Do the same; a real server has this name for it."""
        self.stop()

    def routes(self, app: web.Application) -> None:
        """Add the routes of the server."""
        app.router.add_get("/openapi.json", self._openapi)
        app.router.add_post("/seed_session", self._seed)
        app.router.add_post("/hint", self._hint)
        app.router.add_post("/verify", self._verify)
        app.router.add_post("/close_session", self._close)

    async def _openapi(self, request: web.Request) -> web.Response:
        about = {"title": "Sums", "version": "0.1.0"}
        return web.json_response({"info": about, "paths": self.paths})

    async def _seed(self, request: web.Request) -> web.Response:
        asked = await request.json()
        if "right" not in asked:
            return web.json_response({"detail": "right: Field required"}, status=422)
        return self._sent(request, "seed_session", "{}")

    async def _hint(self, request: web.Request) -> web.Response:
        session, asked = self._session(request), await request.json()
        if not isinstance(asked.get("loud", False), bool):
            return web.json_response({"detail": "loud: Input should be a boolean"}, status=422)
        self.hints[session] += 1
        return self._sent(request, "hint", json.dumps({"hint": self.hints[session]}))

    async def _verify(self, request: web.Request) -> web.Response:
        session, asked = self._session(request), await request.json()
        self.verified.append(asked)
        output = asked["response"]["output"]
        said = [one["content"][0]["text"] for one in output if one["type"] == "message"]
        right = bool(said) and said[-1].strip() == asked["right"]
        parts = {"correct": float(right), "calls": sum("arguments" in one for one in output)}
        reward = right / (1 + self.hints[session])
        verdict = {"reward": reward, "mask_sample": False, "failure_kind": None, "silent": not said}
        text = json.dumps({**asked, **verdict, "reward_components": parts, **self.more})
        return self._sent(request, "verify", text)

    async def _close(self, request: web.Request) -> web.Response:
        self.hints.pop(request.cookies[COOKIE])
        return web.json_response({"closed": True})

    def _session(self, request: web.Request) -> str:
        session = request.cookies.get(COOKIE)
        if session is None:
            self.made += 1
            session = f"s{self.made}"
        self.hints.setdefault(session, 0)
        self.most = max(self.most, len(self.hints))
        return session

    def _sent(self, request: web.Request, route: str, text: str) -> web.Response:
        said = self.spoil(route, text)
        if said is None:
            assert request.transport is not None
            request.transport.abort()
        if isinstance(said, int):
            return web.Response(text="Internal Server Error", status=said)
        answer = web.Response(text=said or "", content_type="application/json")
        answer.set_cookie(COOKIE, self._session(request))
        return answer


@contextmanager
def serving(**fields: Any) -> Iterator[GymSumsServer]:
    """Serve while the context lasts."""
    with running(GymSumsServer(**fields)) as server:
        yield server
