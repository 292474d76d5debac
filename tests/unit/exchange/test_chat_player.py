"""A model behind a real HTTP server on 127.0.0.1 that attempts tasks with tools.

Invariants: each request has the whole conversation, the task's own tools and the sampling; a call
is executed and its answer goes back under the call's id; a call that cannot be read reaches the
domain as malformed; bounds end attempts; a refused request ends its attempt alone; one that had no
answer leaves its task out and fails the stage after the others; what the journal holds is not
asked again.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from genenv_core.benchmarks.measuring.journal import Journaled
from genenv_core.config.sections.endpoint import EndpointAsking
from genenv_core.domains.tool_calls import said as read
from genenv_core.engines.retries import NEVER, Retries
from genenv_core.errors import ConfigError, DomainError, EngineError
from genenv_core.exchange.chat_client import Endpoint
from genenv_core.exchange.chat_player import ChatPlayer
from genenv_core.play.attempt import AttemptBounds
from genenv_core.types import (
    Cause,
    FinishReason,
    JsonObject,
    Message,
    Observation,
    Rollout,
    SamplingParams,
    TaskDraft,
)
from tests.mutations import mutation
from tests.unit.exchange.test_chat_endpoint import KEY, Server, refused, said, server
from tests.waiting import BOUND_S, until

CHAT_PLAYER = "genenv_core/exchange/chat_player.py"
JOURNAL = "genenv_core/benchmarks/measuring/journal.py"

IDS = {f"t{place}" for place in range(3)}
TOO_LONG = "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens"
PARAMS = SamplingParams(max_tokens=9, temperature=0.0)
TOOL = {"type": "function", "function": {"name": "double", "parameters": {"type": "object"}}}


class Doubling:
    """A domain whose agent calls `double` until it says done; `seen` are its texts."""

    name = "doubling"
    tools = ()

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.opened = 0

    def tools_of(self, task: TaskDraft) -> Sequence[JsonObject]:
        return [TOOL] if task.prompt != "no tools" else []

    def agent_messages(self, task: TaskDraft) -> list[Message]:
        if task.prompt == "broken":
            raise ValueError("no such task")
        return [{"role": "user", "content": task.prompt}]

    def episode(self, task: TaskDraft, seed: int) -> Doubling:
        self.opened += 1
        if task.prompt == "closed" or (task.prompt == "late" and self.opened < 3):
            raise RuntimeError("nobody is in")
        return self

    def step(self, action: str) -> Observation:
        self.seen.append(action)
        turn = read(action)
        if not turn.calls:
            return Observation(done=not turn.malformed)
        answers: list[Message] = [
            {"role": "tool", "content": str(2 * call.arguments["x"]), "name": call.name}
            for call in turn.calls
        ]
        return Observation(tuple(answers), done=False)


def task(prompt: str) -> TaskDraft:
    return TaskDraft(prompt, {}, "", "", "all", 0.0, prompt)


def called(*arguments: Any, text: str | None = None) -> web.Response:
    calls = [
        {
            "id": f"c{place}",
            "type": "function",
            "function": {
                "name": "double",
                "arguments": one if isinstance(one, str) else json.dumps(one),
            },
        }
        for place, one in enumerate(arguments)
    ]
    choice = {
        "index": 0,
        "finish_reason": "tool_calls",
        "message": {"content": text, "tool_calls": calls},
    }
    usage = {"prompt_tokens": 5, "completion_tokens": 2}
    return web.json_response({"choices": [choice], "usage": usage})


def player(server: Server, domain: Any, **more: Any) -> ChatPlayer:
    own = {name: more.pop(name) for name in ("answered", "seconds") if name in more}
    own |= {"retries": more.pop("again", NEVER)}
    bounds = more.pop("bounds", AttemptBounds(n=1, max_turns=4, max_length=100, max_errors=2))
    asking = EndpointAsking(
        **{"retries": 1, "backoff_seconds": 0.0, "concurrency": 1, **more},
    )
    endpoint = Endpoint("benchmark", "benchmark", server.url, "big", {}, asking, lambda: None)
    return ChatPlayer(endpoint, domain, bounds, **own)


def played(one: Any, *prompts: str, n: int = 1) -> dict[int, list[Rollout]]:
    tasks = [(f"t{place}", task(prompt)) for place, prompt in enumerate(prompts)]
    return dict(one.groups([tasks], n=n, params=PARAMS, seed_of=lambda *parts: hash(parts) % 2**31))


def test_calls_are_executed_and_their_answers_go_back(server: Server) -> None:
    server.replies = [called({"x": 3}, {"x": 4}, text="both"), said("done")]
    domain = Doubling()
    (rollout,) = played(player(server, domain), "go")[0]
    first, second = server.bodies
    assert first["messages"] == [{"role": "user", "content": "go"}]
    assert (first["tools"], first["model"], first["temperature"]) == ([TOOL], "big", 0.0)
    assert (first["max_tokens"], "top_p" in first) == (9, False)
    asked, *answers = second["messages"][1:]
    assert [json.loads(c["function"]["arguments"]) for c in asked["tool_calls"]] == [
        {"x": 3},
        {"x": 4},
    ]
    ids = [call["id"] for call in asked["tool_calls"]]
    assert [(m["role"], m["tool_call_id"], m["content"]) for m in answers] == [
        ("tool", ids[0], "6"),
        ("tool", ids[1], "8"),
    ]
    assert (rollout.finish_reason, rollout.turns, rollout.error) == (FinishReason.STOP, 2, "")
    assert (rollout.usage, rollout.token_ids, rollout.prompt_ids) == ((5, 4), (), ())
    assert [m["role"] for m in rollout.messages] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
    ]


def test_a_call_without_json_is_malformed(server: Server) -> None:
    server.replies = [called('{"x": '), said("done")]
    domain = Doubling()
    played(player(server, domain), "go")
    assert read(domain.seen[0]).malformed and not read(domain.seen[0]).calls


def test_a_task_without_tools_sends_none(server: Server) -> None:
    played(player(server, Doubling()), "no tools")
    assert "tools" not in server.bodies[0]


@mutation(
    "a prompt that the endpoint's context cannot hold is no verdict", CHAT_PLAYER,
    "FinishReason.ERROR, why, Cause.AGENT)", "FinishReason.ERROR, why, Cause.ENGINE)",
)  # fmt: skip
@mutation(
    "an endpoint's attempt goes on behind its bounds", CHAT_PLAYER,
    "if attempt.turns >= self._bounds.max_turns or used >= self._bounds.max_length:",
    "if attempt.turns >= self._bounds.max_turns:",
)  # fmt: skip
@pytest.mark.parametrize(
    ("replies", "bounds", "finish", "cause"),
    [
        ([said("cut", reason="length")], {}, FinishReason.LENGTH, None),
        ([called({"x": 1}), called({"x": 1})], {"max_turns": 2}, FinishReason.LENGTH, None),
        ([called({"x": 1})], {"max_length": 7}, FinishReason.LENGTH, None),
        ([called({"y": 1}), called({"y": 1})], {}, FinishReason.ERROR, Cause.ENVIRONMENT),
        ([said("no", reason="content_filter")], {}, FinishReason.ERROR, Cause.ENGINE),
        ([refused(400, "no such field")], {}, FinishReason.ERROR, Cause.ENGINE),
        (
            [said(None, reason="gone"), said(None, reason="gone")],
            {},
            FinishReason.ERROR,
            Cause.ENGINE,
        ),
        ([refused(400, TOO_LONG), refused(400, TOO_LONG)], {}, FinishReason.ERROR, Cause.AGENT),
        (
            [called({"x": 1}), refused(400, TOO_LONG), refused(400, TOO_LONG)],
            {},
            FinishReason.LENGTH,
            None,
        ),
    ],
)
def test_what_ends_an_attempt(
    server: Server,
    replies: list[Any],
    bounds: dict[str, int],
    finish: FinishReason,
    cause: Cause | None,
) -> None:
    server.replies = replies
    limits = AttemptBounds(**{"n": 1, "max_turns": 4, "max_length": 100, "max_errors": 2, **bounds})
    (rollout,) = played(player(server, Doubling(), bounds=limits), "go")[0]
    assert rollout.finish_reason is finish
    assert bool(rollout.error) is (finish is FinishReason.ERROR)
    assert rollout.cause is cause
    assert server.replies == []


@mutation(
    "an answer without room for its bound is given up", "genenv_core/exchange/chat_client.py",
    "if unbounded == body:", "if True:",
)  # fmt: skip
def test_an_answer_is_bounded_by_the_room_that_the_context_leaves(server: Server) -> None:
    server.replies = [refused(400, TOO_LONG), said("short")]
    (rollout,) = played(player(server, Doubling()), "go")[0]
    assert (rollout.finish_reason, rollout.messages[-1]["content"]) == (FinishReason.STOP, "short")
    assert ["max_tokens" in body for body in server.bodies] == [True, False]


@mutation(
    "an error inside of an answer is refused at once", "genenv_core/exchange/chat_client.py",
    "if found.status in AGAIN or found.status >= 500:",
    "if not found.inside and (found.status in AGAIN or found.status >= 500):",
)  # fmt: skip
def test_an_error_inside_of_an_answer_is_no_answer(server: Server) -> None:
    busy = [web.json_response({"error": {"message": "overloaded"}}) for _ in range(3)]
    server.replies = [busy[0], said("fine"), *busy[1:]]
    one = player(server, Doubling())
    with pytest.raises(EngineError, match=r"1 of 2 .* 200 with an error \(500\): overloaded"):
        played(one, "a", "b")
    assert server.replies == [] and len(server.bodies) == 4


def test_an_attempt_that_takes_too_long_fails_alone(server: Server) -> None:
    end, ended = threading.Event(), threading.Event()

    class Slow(Doubling):
        def step(self, action: str) -> Observation:
            if "x" in action:
                end.wait(BOUND_S)
                ended.set()
            return super().step(action)

    server.replies = [called({"x": 1})]
    found = played(player(server, Slow(), seconds=0.5), "slow", "quick")
    assert not ended.is_set()  # nobody has waited for it
    end.set()
    until(ended.is_set)
    (slow,), (quick,) = found[0], found[1]
    assert slow.error == "took longer than 0.5 s, which is the limit"
    assert (slow.finish_reason, slow.turns) == (FinishReason.ERROR, 1)
    assert slow.cause is Cause.RUN
    assert quick.finish_reason is FinishReason.STOP


def test_an_episode_that_does_not_open_is_an_error_and_a_broken_domain_is_named(
    server: Server,
) -> None:
    domain = Doubling()
    (rollout,) = played(player(server, domain, again=Retries(2)), "closed")[0]
    assert (
        rollout.error
        == "the episode could not start: RuntimeError: nobody is in; in episode of task t0"
    )
    assert (rollout.cause, domain.opened) == (Cause.ENVIRONMENT, 3)
    with pytest.raises(DomainError, match=r"doubling: agent_messages .* t0: ValueError: no such"):
        played(player(server, Doubling()), "broken")


@mutation(
    "an endpoint's attempt has one try at its environment", CHAT_PLAYER,
    "range(1, self._retries.tries + 1)", "range(0)",
)  # fmt: skip
def test_an_episode_that_opens_late_is_played(server: Server) -> None:
    server.replies = [said("fine")]
    (rollout,) = played(player(server, Doubling(), again=Retries(2)), "late")[0]
    assert (rollout.finish_reason, rollout.cause) == (FinishReason.STOP, None)


@mutation(
    "a task without an answer counts as attempted", CHAT_PLAYER,
    "        if lost:\n", "        if False:\n",
)  # fmt: skip
@mutation("a kept attempt is made again", JOURNAL, "if task[0] not in self._done]", "]")
def test_a_task_without_an_answer_is_left_out_and_the_others_are_kept(
    server: Server, tmp_path: Path
) -> None:
    def answer(body: dict[str, Any]) -> web.Response:
        return refused(503, "busy") if body["messages"][0]["content"] == "b" else said("done")

    server.always = answer
    done: list[int] = []
    kept = tmp_path / "attempts.jsonl"

    def journaled() -> Journaled:
        return Journaled(player(server, Doubling()), kept, IDS, lambda: done.append(1))

    journal = journaled()
    with pytest.raises(EngineError, match=r"1 of 3 tasks had no answer after all tries.*503: busy"):
        played(journal, "a", "b", "c")
    assert len(done) == 2
    kept.write_bytes(kept.read_bytes() + b'\n{"task": "t1", "roll')  # a crash in the middle
    server.always, server.bodies = None, []
    found = played(journaled(), "a", "b", "c")
    assert [body["messages"][0]["content"] for body in server.bodies] == ["b"]
    assert sorted(found) == [0, 1, 2] and len(done) == 2 + 3
    again = played(journaled(), "a", "b", "c")
    assert again == found
    assert len(server.bodies) == 1


@mutation(
    "a refused prompt in the middle ends the stage", "genenv_core/exchange/chat_client.py",
    "if isinstance(error, EndpointLost) or not self._answered:", "if True:",
)  # fmt: skip
@mutation(
    "an attempt that broke off is kept", JOURNAL,
    "if not any(one.error for one in rollouts):", "if True:",
)  # fmt: skip
def test_refused_requests_end_a_stage_only_before_the_first_answer(
    server: Server, tmp_path: Path
) -> None:
    server.always = lambda body: refused(400, "too long")
    with pytest.raises(EngineError, match=r"8 requests in a row failed.*400: too long"):
        played(player(server, Doubling()), *"abcdefghij")
    kept = tmp_path / "kept"
    ids = {f"t{place}" for place in range(10)}
    patient = Journaled(player(server, Doubling(), answered=True), kept, ids, lambda: None)
    found = played(patient, *"abcdefghij")
    assert all("too long" in made[0].error for made in found.values()) and len(found) == 10
    assert not kept.exists()  # another try may have an answer


@mutation(
    "half a character of a tool ends the stage", "genenv_core/domains/steps.py",
    "return replace(observation, messages=messages)",
    "return observation",
)  # fmt: skip
def test_half_a_character_of_an_endpoint_can_be_kept(server: Server, tmp_path: Path) -> None:
    half = r'{"x": "\ud83d"}'
    server.replies = [called(half), said("done"), said("half \ud83d")]
    journal = Journaled(player(server, Doubling()), tmp_path / "kept", IDS, lambda: None)
    found = played(journal, "a", "b")
    assert [message["role"] for message in found[0][0].messages][1] == "assistant"
    assert found[1][0].messages[-1]["content"] == "half ?" and not found[1][0].error


def test_several_attempts_have_seeds_of_their_own(server: Server) -> None:
    rollouts = played(player(server, Doubling(), concurrency=3), "a", "b", n=2)
    assert {len(of) for of in rollouts.values()} == {2}
    assert len({body["seed"] for body in server.bodies}) == 4


def test_the_key_is_sent_and_its_absence_refused(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"execution\.benchmark\.key_env names .* MODEL_KEY"):
        player(server, Doubling(), key_env="MODEL_KEY")
    monkeypatch.setenv("MODEL_KEY", KEY)
    played(player(server, Doubling(), key_env="MODEL_KEY"), "a")
    assert server.headers == [f"Bearer {KEY}"]


@mutation(
    "requests go on when nobody listens", CHAT_PLAYER,
    "            stopped.set()", "            pass",
)  # fmt: skip
def test_who_stops_to_listen_ends_the_requests(server: Server) -> None:
    server.delay_s = 0.05
    asked = player(server, Doubling()).groups(
        [[(f"t{place}", task("a")) for place in range(1000)]],
        n=1,
        params=PARAMS,
        seed_of=lambda *parts: 1,
    )
    assert next(asked)[0] == 0
    asked.close()  # type: ignore[attr-defined]
    for thread in threading.enumerate():
        if thread.name == "genenv-chat":
            thread.join(30)
            assert not thread.is_alive()
    assert len(server.bodies) < 1000


__all__ = ["server"]
