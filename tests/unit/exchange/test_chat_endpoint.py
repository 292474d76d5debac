"""A teacher behind a real HTTP server on 127.0.0.1 that speaks chat completions.

Invariants: each request says the model, the messages, the sampling and a seed, with the key in its
header; answers come in order, several at a time; a lost or refused request is asked again as often
as configured, and then fails alone; a wrong key, an unknown model and an endpoint that answers
nothing stop the stage and say what to do; no error shows the key; what was answered is not asked
again.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from genenv_core.config.sections.curriculum import GenerationConfig
from genenv_core.config.sections.endpoint import EndpointAsking
from genenv_core.epoch.writing.intake import TaskRequest, TaskText
from genenv_core.errors import ConfigError, EngineError
from genenv_core.exchange.chat_client import GIVE_UP, Endpoint
from genenv_core.exchange.chat_endpoint import ChatEndpoint
from genenv_core.types import AgentHistory, Context, FinishReason
from tests.mutations import mutation
from tests.unit.epoch.builders_epoch import draft

CHAT_CLIENT = "genenv_core/exchange/chat_client.py"

KEY = "sk-very-secret"
SETTINGS = GenerationConfig(max_tokens=9, temperature=0.5, top_p=0.75)
Reply = Callable[[dict[str, Any]], web.Response]


def said(text: str | None, reason: str = "stop", **more: Any) -> web.Response:
    """Return a chat completion with this text."""
    choice = {"index": 0, "finish_reason": reason, "message": {"content": text}}
    usage = {"prompt_tokens": 5, "completion_tokens": 2}
    return web.json_response({"choices": [choice], "usage": usage} | more)


def refused(status: int, message: str = "no", **headers: str) -> web.Response:
    return web.json_response({"error": {"message": message}}, status=status, headers=headers)


@dataclass
class Server:
    """What was asked, and what is answered: `replies` first, then an echo."""

    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[str] = field(default_factory=list)
    replies: list[web.Response] = field(default_factory=list)
    always: Reply | None = None
    delay_s: float = 0.0
    busy: int = 0
    most: int = 0

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.bodies.append(body)
        self.headers.append(request.headers.get("Authorization", ""))
        self.busy += 1
        self.most = max(self.most, self.busy)
        await asyncio.sleep(self.delay_s)
        self.busy -= 1
        if self.replies:
            return self.replies.pop(0)
        return self.always(body) if self.always else said(body["messages"][-1]["content"])


@pytest.fixture
def server() -> Iterator[Server]:
    """Serve on a free port in a thread, and stop at the end."""
    state, loop, ready = Server(), asyncio.new_event_loop(), threading.Event()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", state.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)

    async def start() -> None:
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        state.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        ready.set()

    def serve() -> None:
        loop.run_until_complete(start())
        loop.run_forever()

    thread = threading.Thread(target=serve)
    thread.start()
    assert ready.wait(30)
    yield state
    asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(30)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(30)
    loop.close()


def asked(*words: str) -> list[TaskRequest]:
    return [
        TaskRequest(
            Context(f"c{place}", "b", draft(word), AgentHistory()),
            [{"role": "user", "content": word}],
            2**31 + place,
        )
        for place, word in enumerate(words)
    ]


def endpoint(server: Server, folder: Path, *, url: str = "", **more: Any) -> ChatEndpoint:
    request = more.pop("request", {})
    check = more.pop("check", lambda: None)
    asking = EndpointAsking(**{"retries": 1, "backoff_seconds": 0.0, **more})
    kept = folder / "answers.jsonl"
    endpoint = Endpoint(
        "teacher", "generate_tasks", url or server.url, "big", request, asking, check
    )
    return ChatEndpoint(endpoint, SETTINGS, kept)


def test_a_request_says_everything_and_answers_come_in_order(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEACHER_KEY", KEY)
    words = [f"w{place}" for place in range(12)]
    server.delay_s = 0.05
    teacher = endpoint(server, tmp_path, key_env="TEACHER_KEY", concurrency=4)
    answers = teacher.write(asked(*words))
    assert answers == [TaskText(word, FinishReason.STOP, 5, 2) for word in words]
    assert 2 <= server.most <= 4
    assert set(server.headers) == {f"Bearer {KEY}"}
    first = min(server.bodies, key=lambda body: body["seed"])
    assert first == {
        "model": "big",
        "messages": [{"role": "user", "content": "w0"}],
        "max_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.75,
        "seed": 0,
    }
    assert KEY not in (tmp_path / "answers.jsonl").read_text()


def test_more_fields_are_sent_and_null_leaves_one_out(server: Server, tmp_path: Path) -> None:
    request = {"max_tokens": None, "max_completion_tokens": 7, "seed": None}
    endpoint(server, tmp_path, request=request).write(asked("aa"))
    (body,) = server.bodies
    assert body["max_completion_tokens"] == 7 and {"max_tokens", "seed"} & set(body) == set()
    assert server.headers == [""]


def test_what_an_answer_may_be(server: Server, tmp_path: Path) -> None:
    server.replies = [
        said("aa", "length"),
        said(None),
        said("x", "content_filter"),
        said("bb", usage=None),
        *(web.json_response({"choices": []}) for _ in range(2)),
    ]
    answers = endpoint(server, tmp_path, concurrency=1).write(asked(*"abcde"))
    assert answers[:4] == [
        TaskText("aa", FinishReason.LENGTH, 5, 2),
        TaskText("", FinishReason.STOP, 5, 2),
        TaskText("x", FinishReason.ERROR, 5, 2, "ended with content_filter"),
        TaskText("bb", FinishReason.STOP, 0, 0),
    ]
    assert answers[4].finish_reason is FinishReason.ERROR
    assert "is no chat completion (choices" in answers[4].error


def test_a_request_is_asked_again_and_then_fails_alone(server: Server, tmp_path: Path) -> None:
    server.replies = [refused(503), said("aa"), refused(429, **{"Retry-After": "0.01"}), said("b")]
    server.replies += [refused(500, "full"), refused(500, "full"), refused(400, "too long")]
    answers = endpoint(server, tmp_path, concurrency=1).write(asked(*"abcde"))
    assert [answer.text for answer in answers] == ["aa", "b", "", "", "e"]
    assert answers[2].error == "the endpoint answers 500: full"
    assert answers[3].error == "the endpoint answers 400: too long"
    assert len(server.bodies) == 8  # 400 is not asked again


def test_a_late_answer_counts_as_none(server: Server, tmp_path: Path) -> None:
    server.delay_s = 0.6
    teacher = endpoint(server, tmp_path, request_seconds=0.1, retries=0)
    with pytest.raises(EngineError, match=r"no answer in 0\.1 s \(execution\.teacher\.request_s"):
        teacher.write(asked("a"))


@mutation(
    "a refused key is tried for every request", CHAT_CLIENT,
    "if fault.status in (401, 403):", "if fault.status in ():",
)  # fmt: skip
@pytest.mark.parametrize("status", [401, 403])
def test_a_wrong_key_stops_the_stage_and_is_not_shown(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setenv("TEACHER_KEY", KEY)
    server.always = lambda body: refused(status, f"wrong key {KEY}")
    teacher = endpoint(server, tmp_path, key_env="TEACHER_KEY", concurrency=1)
    with pytest.raises(
        EngineError, match=f"answers {status}: it refuses the key in TEACHER_KEY"
    ) as e:
        teacher.write(asked("a", "b", "c"))
    assert KEY not in str(e.value) and "sk-" not in str(e.value)
    assert len(server.bodies) == 1


def test_an_unknown_model_stops_the_stage(server: Server, tmp_path: Path) -> None:
    server.always = lambda body: refused(404, "no such model")
    with pytest.raises(EngineError, match=r"404: no such model; it has no model 'big'"):
        endpoint(server, tmp_path).write(asked("a"))


@mutation(
    "an error of the endpoint shows the key", CHAT_CLIENT,
    'text.replace(self._key, "***") if self._key else text', "text",
)  # fmt: skip
def test_no_message_of_the_endpoint_shows_the_key(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEACHER_KEY", KEY)
    server.replies = [refused(400, f"{KEY} is odd"), said("b")]
    teacher = endpoint(server, tmp_path, key_env="TEACHER_KEY", concurrency=1)
    assert teacher.write(asked("a", "b"))[0].error == "the endpoint answers 400: *** is odd"


@mutation(
    "an endpoint that answers nothing is asked for ever", CHAT_CLIENT,
    "if self._lost >= GIVE_UP:", "if False:",
)  # fmt: skip
def test_an_endpoint_that_refuses_everything_stops_the_stage(
    server: Server, tmp_path: Path
) -> None:
    server.always = lambda body: refused(400, "no field top_p")
    with pytest.raises(EngineError, match=f"{GIVE_UP} requests in a row failed.*no field top_p"):
        endpoint(server, tmp_path, concurrency=1).write(asked(*map(str, range(40))))
    assert len(server.bodies) == GIVE_UP
    with pytest.raises(EngineError, match="2 requests in a row failed"):
        endpoint(server, tmp_path).write(asked("a", "b"))
    with pytest.raises(EngineError, match="ClientConnectorError"):
        endpoint(server, tmp_path, url="http://127.0.0.1:1/v1").write(asked("a"))


@mutation(
    "what an endpoint answered before a crash is asked again",
    "genenv_core/exchange/chat_endpoint.py", "self._answers = _read(kept)",
    "self._answers = dict[str, Answer]()",
)  # fmt: skip
def test_what_was_answered_is_not_asked_again(server: Server, tmp_path: Path) -> None:
    words = list("abcdefghijkl")
    server.replies = [said("a"), said("b"), *(refused(500) for _ in range(GIVE_UP))]
    with pytest.raises(EngineError, match="its answers so far are kept"):
        endpoint(server, tmp_path, concurrency=1, retries=0).write(asked(*words))
    file = tmp_path / "answers.jsonl"
    file.write_bytes(file.read_bytes() + b'\n{"name": "cut o')
    before = len(server.bodies)
    assert [a.text for a in endpoint(server, tmp_path).write(asked(*words))] == words
    assert len(server.bodies) == before + len(words) - 2
    assert [a.text for a in endpoint(server, tmp_path).write(asked(*words))] == words
    assert len(server.bodies) == before + len(words) - 2


def test_a_cancelled_stage_waits_for_no_answer(server: Server, tmp_path: Path) -> None:
    server.delay_s = 1.0

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        endpoint(server, tmp_path, check=stop).write(asked("a"))


@pytest.mark.parametrize("value", [None, "", "  "])
def test_a_missing_variable_is_named_before_anything_is_asked(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.delenv("TEACHER_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("TEACHER_KEY", value)
    with pytest.raises(ConfigError, match="names the variable TEACHER_KEY, which is not set"):
        endpoint(server, tmp_path, key_env="TEACHER_KEY")
    assert not server.bodies
