"""The domain ors against a server: a double in this process, and the real package.

Invariants: the domain plays without a fault; verdicts come from stored rewards alone; an agent that
stops without a reward has failed, and a server that ends an attempt without one has not judged it;
a session that the server drops is made anew; whatever else the server does wrong is the
environment's failure.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from genenv_core.domains.ors import ors
from genenv_core.domains.ors.ors_domain import OrsDomain
from genenv_core.domains.protocol import tools_of
from genenv_core.domains.steps import stepped
from genenv_core.domains.tool_calls import written
from genenv_core.errors import ConfigError, DomainError
from genenv_core.play.certificate import certify
from genenv_core.play.checking.domain_checks import check_domain
from genenv_core.types import Cause, Flaw, Observation, Rejected, Rejection, TaskDraft
from tests.examples import some
from tests.mutations import mutation
from tests.unit.domains.openenv.real import EXAMPLES
from tests.unit.domains.ors.double import OrsSums, OrsSumsServer, serving
from tests.unit.domains.ors.real import python, real_server
from tests.unit.domains.served_play import goes_on_after_a_kill, played
from tests.waiting import BOUND_S, until

NAME = "ors"
OPTIONS: dict[str, Any] = {"answer": "right", "explain": False}
HINT = written({"name": "hint", "arguments": {}})


def say(sum_: object) -> str:
    return written({"name": "say", "arguments": {"sum": sum_}})


@pytest.fixture
def server() -> Iterator[OrsSumsServer]:
    with serving() as started:
        yield started


@pytest.fixture(params=some(["double", "real"], ["double"]))
def any_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """Serve sums by the double, or by the real package."""
    if request.param == "double":
        with serving() as started:
            yield started
        return
    real = real_server(tmp_path / "log")
    yield real
    real.kill()


def made(url: str, **options: Any) -> OrsDomain:
    return ors({**OPTIONS, "url": url, "wait_s": 5, **options})


def task(domain: OrsDomain, index: int = 1) -> TaskDraft:
    (draft,) = domain.parse(f'{{"index": {index}, "split": "train"}}')
    assert isinstance(draft, TaskDraft), draft
    return draft


@pytest.mark.parametrize("options", some([OPTIONS, {"environment": "Sums"}], [OPTIONS]))
def test_an_environment_of_ors_plays_without_a_fault(
    any_server: Any, options: dict[str, Any]
) -> None:
    told = {**options, "url": any_server.url, "explain": True}
    assert check_domain(NAME, told, base=10, heldout=5) == []


def test_the_real_server_of_ors_and_the_double_say_the_same(any_server: Any) -> None:
    domain = made(any_server.url, family="second", difficulty="first")
    draft = task(domain)
    assert (draft.prompt, draft.ground_truth) == ("2 + 1 =", say("3"))
    assert (draft.family, draft.difficulty) == ("1", 2.0)
    assert {one.spec["reset"]["split"] for one in domain.heldout_tasks(0, 20)} == {"test"}
    episode = domain.episode(draft, 0)
    hint: Any = {"role": "tool", "name": "hint", "rewards": {"reward": None}}
    assert episode.step(HINT) == Observation(({**hint, "content": "one digit"},), done=False)
    assert episode.step(say("8")).messages[0]["content"] == "try again"
    (refused,) = episode.step(say(3)).messages
    assert refused["content"].startswith("error: Tool input validation error")
    right: Any = {"role": "tool", "name": "say", "content": "right", "rewards": {"reward": 0.5}}
    assert episode.step(say("3")) == Observation((right,), done=True)
    both = domain.episode(draft, 0).step(HINT + say("3") + HINT)
    assert [one["content"] for one in both.messages] == ["one digit", "right"] and both.done


@mutation(
    "an agent of ors that stops has lost its environment", "genenv_core/domains/ors/ors_domain.py",
    "may_stop=True", "may_stop=False",
)  # fmt: skip
def test_an_agent_that_stops_without_a_reward_has_failed(server: OrsSumsServer) -> None:
    domain = made(server.url)
    draft = task(domain)
    verdict = domain.score(draft, played(domain, draft, HINT, "it is 3"))
    assert (verdict.reward, verdict.success, verdict.failure) == (
        0,
        False,
        "no reward before the end",
    )
    assert domain.score(draft, played(domain, draft, say("3"))).success
    second = played(domain, draft, say("4"), say("3"))
    assert domain.score(draft, second).reward == 0.5
    assert made(server.url, success_at=0.5).score(draft, second).success
    with pytest.raises(DomainError, match="no rewards at turn 1"):
        domain.score(
            draft,
            [{"role": "assistant", "content": say("3")}, {"role": "tool", "content": "right"}],
        )


@mutation(
    "a session that is dropped is not made anew", "genenv_core/domains/ors/client.py",
    "LOST = (404, ", "LOST = (",
)  # fmt: skip
def test_an_attempt_goes_on_where_its_session_was_dropped(server: OrsSumsServer) -> None:
    domain = made(server.url)
    draft = task(domain)
    episode = domain.episode(draft, 0)
    assert not episode.step(HINT + say("8")).done
    server.sessions.clear()
    assert episode.step(say("3")).messages[-1]["rewards"] == {"reward": 0.5}  # type: ignore[typeddict-item]

    episode = domain.episode(draft, 0)
    assert not episode.step(say("8")).done
    server.stop()
    server.start()
    assert episode.step(say("3")).done

    once = made(server.url, repeatable=False)
    episode = once.episode(draft, 0)
    assert not episode.step(say("8")).done
    server.sessions.clear()
    lost = stepped(episode.step, say("3"))
    assert lost.failed and lost.cause is Cause.ENVIRONMENT
    again = stepped(episode.step, say("3"))
    assert "domain.options.repeatable is false" in again.messages[0]["content"]


def _ended(result: str) -> str:
    return f"event: end\ndata: {result}\n\n"


@mutation(
    "an error of an environment of ors is about the call", "genenv_core/domains/ors/events.py",
    "raise RefusedByServer(FAILED,", 'raise RefusedByServer("VALIDATION_ERROR",',
)  # fmt: skip
@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (_ended("{no json"), "answers no JSON"),
        (_ended('{"ok": true, "output": {"reward": 1}}'), "answers without blocks"),
        (_ended('{"ok": true, "output": {"blocks": [], "reward": "x"}}'), "the reward x"),
        (_ended('{"ok": true, "output": {"blocks": [], "reward": NaN}}'), "is nan"),
        (_ended('{"ok": true, "output": {"blocks": [], "finished": true}}'), "gave no reward"),
        ("event: chunk\ndata: {\n\n", "stopped in the middle"),
        ("event: error\ndata: ouch\n\n", "the server fails: EXECUTION_ERROR: ouch"),
        (500, "the server fails: EXECUTION_ERROR: KeyError: 'no such row'"),
        (503, "answers 503"),
        (None, "Server disconnected"),
    ],
)
def test_a_broken_answer_of_ors_is_the_environments_failure(
    server: OrsSumsServer, sent: str | int | None, said: str
) -> None:
    domain = made(server.url, wait_s=0)
    draft = task(domain)
    server.spoil = lambda route, text: sent if route == "call" else text
    failed = stepped(domain.episode(draft, 0).step, say("3"))
    assert failed.failed and failed.cause is Cause.ENVIRONMENT
    assert said in failed.messages[0]["content"]


def test_a_task_that_the_server_cannot_set_up_is_no_task(server: OrsSumsServer) -> None:
    domain = made(server.url, wait_s=0)
    server.spoil = lambda route, text: 500 if route == "prompt" else text
    (refused,) = domain.parse('{"index": 1, "split": "train"}')
    why = "the server refuses it: KeyError: 'no such row'"
    assert refused == Rejected(Rejection.OUT_OF_RANGE, why)
    for route, sent in (("prompt", "{}"), ("create_session", "x"), ("create", 404)):
        server.spoil = lambda at, text, route=route, sent=sent: sent if at == route else text
        with pytest.raises(DomainError, match="domain ors: no task was made of"):
            domain.parse('{"index": 1, "split": "train"}')
    (unknown,) = domain.parse('{"index": 40, "split": "train"}')
    assert isinstance(unknown, Rejected) and unknown.reason is Rejection.UNPARSEABLE
    (held,) = domain.parse('{"index": 4, "split": "test"}')
    assert isinstance(held, Rejected) and held.reason is Rejection.IN_HELDOUT


@mutation(
    "sessions of ors that nobody needs stay open", "genenv_core/domains/ors/client.py",
    "        if self._id:\n", "        if not self._url:\n",
)  # fmt: skip
def test_attempts_share_sessions_and_end_them(server: OrsSumsServer) -> None:
    domain = made(server.url, sessions=2)
    drafts = [task(domain, index) for index in range(6)]
    episodes = [domain.episode(draft, 0) for draft in drafts]
    assert not any(episode.step(say("0")).done for episode in episodes)
    ends = [one.step(draft.ground_truth) for one, draft in zip(episodes, drafts, strict=True)]
    assert [one.messages[-1]["rewards"] for one in ends] == [{"reward": 0.5}] * 6  # type: ignore[typeddict-item]
    assert server.most == 2
    until(lambda: not server.sessions)


def test_a_server_of_ors_that_answers_otherwise_is_named(server: OrsSumsServer) -> None:
    count = iter(range(1000))

    class Restless(OrsSums):
        def prompt(self) -> list[dict[str, Any]]:
            return [{"text": f"question {next(count)}"}]

    server.session = Restless
    domain = made(server.url)
    failed = stepped(domain.episode(task(domain), 0).step, say("7"))
    said = "seed what is random in it, or set domain.options.repeatable to false"
    assert said in failed.messages[0]["content"]


@mutation(
    "tools of one task are forgotten", "genenv_core/domains/ors/ors_domain.py",
    'spec["tools"] = listed', "pass",
)  # fmt: skip
def test_a_task_may_have_tools_of_its_own(server: OrsSumsServer) -> None:
    plain = made(server.url)
    assert "tools" not in task(plain).spec
    server.own = [{"name": "say_loudly", "description": "Says it.", "input_schema": None}]
    domain = made(server.url)
    assert domain.version == plain.version and domain.tools == plain.tools
    draft = task(domain)
    names = [tool["function"]["name"] for tool in tools_of(domain, draft)]
    assert names == ["hint", "say", "say_loudly"]

    class Loud(OrsSums):
        def say_loudly(self, arguments: dict[str, Any]) -> dict[str, Any]:
            return self.say({"sum": self.spec["right"]})

    server.session = Loud
    loudly = written({"name": "say_loudly", "arguments": {}})
    assert domain.score(draft, played(domain, draft, loudly)).success
    server.shared = server.shared[:1]
    assert made(server.url, answer=None).version != made(server.url).version != plain.version


def test_a_certificate_of_ors_is_played(server: OrsSumsServer) -> None:
    domain = made(server.url, wait_s=0)
    draft = task(domain)
    checks = certify(draft, domain)
    assert all(check.passed for check in checks)
    assert {Flaw.REJECTS_GROUND_TRUTH, Flaw.UNREACHABLE} <= {check.flaw for check in checks}
    server.spoil = lambda route, text: None if route == "call" else text
    with pytest.raises(DomainError, match="no certificate of the task '2 \\+ 1 ='"):
        certify(draft, domain)


def test_what_is_no_environment_of_ors_is_said(server: OrsSumsServer) -> None:
    with pytest.raises(ConfigError, match="no server answers there"):
        made("http://127.0.0.1:9", wait_s=0)
    with pytest.raises(ConfigError, match="set GENENV_ORS_URL"):
        ors({})
    with pytest.raises(ConfigError, match="environment 'products': the server has sums"):
        made(server.url, environment="products")
    with pytest.raises(ConfigError, match="split 'more': the server has the splits train, test"):
        made(server.url, split="more")
    server.counts = {}
    with pytest.raises(ConfigError, match="its environment sums has no tasks"):
        made(server.url)
    server.environments = []
    with pytest.raises(ConfigError, match="lists no environments, so it is no ORS server"):
        made(server.url)


ASKING = f"""
from genenv_core.domains.ors import ors
domain = ors({{"url": URL}})
episode = domain.episode(domain.base_tasks(0, 1)[0], 0)
print(episode.step({HINT!r}).messages[0]["content"])
"""


def test_a_process_ends_its_sessions_with_itself(server: OrsSumsServer) -> None:
    asking = ASKING.replace("URL", repr(server.url))
    subprocess.run([sys.executable, "-c", asking], check=True, timeout=BOUND_S)
    assert server.made >= 2 and not server.sessions


@pytest.mark.slow
def test_an_app_of_ors_is_served_here_and_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GENENV_ORS_PYTHON", str(python()))
    monkeypatch.chdir(EXAMPLES)
    domain = ors({**OPTIONS, "serve": "ors_sums:app", "wait_s": BOUND_S})
    goes_on_after_a_kill("ors_sums:app", domain, task(domain), wrong=say("8"), right=say("3"))
