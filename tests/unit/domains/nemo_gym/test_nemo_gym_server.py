"""The domain nemo_gym against a double of a resources server.

Invariants: the domain plays without a fault; the verdict is the server's reward, and its other
numbers are stored by name; attempts have a session each, also where a cookie has no say in it; a
server that has begun anew is noticed, though it takes cookies of before; whatever else it does
wrong is the environment's failure.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from genenv_core.domains.nemo_gym import nemo_gym
from genenv_core.domains.nemo_gym.nemo_gym_domain import GymDomain
from genenv_core.domains.protocol import tools_of
from genenv_core.domains.steps import stepped
from genenv_core.domains.tool_calls import written
from genenv_core.errors import ConfigError, DomainError
from genenv_core.play.certificate import certify
from genenv_core.play.checking.domain_checks import check_domain
from genenv_core.types import Cause, Observation, Rejected, Rejection, TaskDraft
from tests.examples import some
from tests.mutations import mutation
from tests.unit.domains.nemo_gym.double import GymSumsServer, serving, written_rows
from tests.unit.domains.served_play import played
from tests.waiting import BOUND_S, until

NAME = "nemo_gym"
OPTIONS: dict[str, Any] = {"answer": "right", "explain": False, "split_field": "split"}
HINT = written({"name": "hint", "arguments": {}})

Make = Callable[..., GymDomain]


@pytest.fixture
def server() -> Iterator[GymSumsServer]:
    with serving() as started:
        yield started


@pytest.fixture
def made(server: GymSumsServer, tmp_path: Path) -> Make:
    """Return what makes the domain with options."""
    rows = written_rows(tmp_path)
    return lambda **more: nemo_gym(
        {**OPTIONS, "url": server.url, "rows": rows, "wait_s": 5, **more}
    )


def task(domain: GymDomain, index: int = 1) -> TaskDraft:
    (draft,) = domain.parse(f'{{"index": {index}, "split": "train"}}')
    assert isinstance(draft, TaskDraft), draft
    return draft


def rewards(observation: Observation) -> dict[str, float | None]:
    found: Any = observation.messages[-1]
    return found["rewards"]


@pytest.mark.parametrize("options", some([OPTIONS, {}], [OPTIONS]))
def test_a_resources_server_plays_without_a_fault(
    server: GymSumsServer, tmp_path: Path, options: dict[str, Any]
) -> None:
    told = {**options, "url": server.url, "rows": written_rows(tmp_path), "explain": True}
    assert check_domain(NAME, told, base=10, heldout=5) == []


@mutation(
    "other numbers of a verdict are lost", "genenv_core/domains/nemo_gym/client.py",
    "reward, True, {**own, **parts})", "reward, True, {})",
)  # fmt: skip
@mutation(
    "a field of the row is a reward", "genenv_core/domains/nemo_gym/client.py",
    "if name not in NO_REWARDS | self._row.keys()", "if name not in NO_REWARDS",
)  # fmt: skip
def test_the_verdict_is_the_servers_and_its_numbers_have_names(
    server: GymSumsServer, made: Make
) -> None:
    domain = made(family="second", difficulty="first")
    draft = task(domain)
    assert (draft.prompt, draft.ground_truth) == ("2 + 1 =", "3")
    assert (draft.family, draft.difficulty) == ("1", 2.0)
    assert domain.agent_messages(draft) == [{"role": "user", "content": "2 + 1 ="}]
    assert [tool["function"]["name"] for tool in tools_of(domain, draft)] == ["hint"]
    assert {one.spec["reset"]["split"] for one in domain.heldout_tasks(0, 20)} == {"test"}

    episode = domain.episode(draft, 0)
    hint: Any = {"role": "tool", "name": "hint", "rewards": {"reward": None}}
    hinted: Any = {**hint, "content": '{"hint": 1}'}
    assert episode.step(HINT) == Observation((hinted,), done=False)
    ended = episode.step("<think>two and one</think> 3")
    named = {"calls": 1.0, "correct": 1.0, "silent": 0.0}
    assert ended.done and rewards(ended) == {"reward": 0.5, **named}

    right = played(domain, draft, "3")
    assert domain.score(draft, right).success
    assert domain.score(draft, played(domain, draft, HINT, "3")).reward == 0.5
    assert domain.score(draft, played(domain, draft, "4")).failure == "reward 0"
    assert domain.score(draft, played(domain, draft, HINT)).failure == "no reward before the end"
    with pytest.raises(DomainError, match="no rewards at turn 1"):
        domain.score(draft, [{"role": "assistant", "content": "3"}, right[0]])

    chosen = made(other_rewards=["calls", "reward", "more"])
    assert rewards(chosen.episode(draft, 0).step("3")) == {"reward": 1.0, "calls": 0.0}
    server.more = {"loss": float("nan"), "note": "good", "first": 7, "wide": 1e300}
    unclear = rewards(domain.episode(draft, 0).step("3"))
    assert unclear == {"reward": 1.0, "calls": 0.0, "correct": 1.0, "silent": 0.0, "wide": 1e300}


@mutation(
    "a verifier reads no call that has no tool", "genenv_core/domains/nemo_gym/turns.py",
    'made: JsonObject = {"answer": action} if isinstance(action, str) else action',
    "made: Any = action",
)  # fmt: skip
def test_the_verifier_reads_all_that_the_agent_said(server: GymSumsServer, made: Make) -> None:
    domain = made()
    draft = task(domain)
    wrong = written({"name": "hint", "arguments": {"loud": "é"}})
    absent = written({"name": "verify", "arguments": {}})
    transcript = played(domain, draft, f"Well. {HINT}{wrong}", f"{absent}<tool_call>{{", "3")
    assert [one["content"] for one in transcript if one["role"] == "tool"] == [
        '{"hint": 1}',
        '{"detail": "loud: Input should be a boolean"}',
        "error: there is no tool 'verify'; the tools are hint",
        "error: the call is no JSON object with name and arguments",
    ]
    asked = server.verified[-1]
    response = asked.pop("response")
    assert asked.keys() == {"responses_create_params", "split", "first", "second", "right"}
    assert (response["object"], response["tools"]) == (
        "response",
        asked["responses_create_params"]["tools"],
    )
    output = response["output"]
    assert [one["type"] for one in output] == [
        *("message", "function_call", "function_call", "function_call_output"),
        *("function_call_output", "function_call", "function_call", "function_call_output"),
        *("function_call_output", "message"),
    ]
    calls = [one for one in output if one["type"] == "function_call"]
    assert [(one["name"], one["arguments"]) for one in calls] == [
        ("hint", "{}"), ("hint", '{"loud": "é"}'), ("verify", "{}"), ("hint", "{"),
    ]  # fmt: skip
    answers = [one["call_id"] for one in output if one["type"] == "function_call_output"]
    assert answers == [one["call_id"] for one in calls]
    assert output[0]["content"][0]["text"] == "Well."


@mutation(
    "a server that has begun anew is not noticed", "genenv_core/domains/nemo_gym/client.py",
    "if self._line is None or self._line.ended:", "if self._line is None:",
)  # fmt: skip
def test_an_attempt_goes_on_where_the_server_began_anew(server: GymSumsServer, made: Make) -> None:
    domain = made()
    draft = task(domain)
    episode = domain.episode(draft, 0)
    assert not episode.step(HINT).done
    server.stop()
    server.start()
    assert episode.step(HINT).messages[-1]["content"] == '{"hint": 2}'
    server.stop()
    server.start()
    assert rewards(episode.step("3"))["reward"] == pytest.approx(1 / 3)

    once = made(repeatable=False)
    episode = once.episode(draft, 0)
    assert not episode.step(HINT).done
    server.stop()
    server.start()
    lost = stepped(episode.step, "3")
    assert lost.failed and lost.cause is Cause.ENVIRONMENT
    again = stepped(episode.step, "3")
    assert "domain.options.repeatable is false" in again.messages[0]["content"]


@mutation(
    "sessions of one host share cookies", "genenv_core/domains/kit/served/client.py",
    "cookie_jar=aiohttp.DummyCookieJar(),", "cookie_jar=aiohttp.CookieJar(unsafe=True),",
)  # fmt: skip
def test_attempts_have_sessions_of_their_own(server: GymSumsServer, made: Make) -> None:
    domain = made()
    drafts = [task(domain, index) for index in range(4)]
    episodes = [domain.episode(draft, 0) for draft in drafts]
    hints = [one.step(HINT).messages[0]["content"] for one in episodes]
    assert hints == ['{"hint": 1}'] * 4
    assert all(one.step(HINT).messages[0]["content"] == '{"hint": 2}' for one in episodes)


@mutation(
    "sessions of nemo_gym that nobody needs stay open", "genenv_core/domains/nemo_gym/client.py",
    "if self._cookies and self._server.closes:", "if not self._url:",
)  # fmt: skip
def test_attempts_share_sessions_and_close_them(server: GymSumsServer, made: Make) -> None:
    domain = made(sessions=2)
    drafts = [task(domain, index) for index in range(6)]
    episodes = [domain.episode(draft, 0) for draft in drafts]
    assert not any(episode.step(HINT).done for episode in episodes)
    ends = [one.step(draft.ground_truth) for one, draft in zip(episodes, drafts, strict=True)]
    assert [rewards(one)["reward"] for one in ends] == [0.5] * 6
    assert server.most == 2
    until(lambda: not server.hints)


def _masked(**fields: Any) -> str:
    return json.dumps({"reward": 0.0, **fields})


@mutation(
    "a reward that measures nothing is a zero", "genenv_core/domains/nemo_gym/client.py",
    "        _check_measured(said)\n", "        pass\n",
)  # fmt: skip
@mutation(
    "a tool's answer that is no JSON is read", "genenv_core/domains/nemo_gym/client.py",
    "if reply.is_json or reply.status >= 500:", "if reply.status >= 500:",
)  # fmt: skip
@pytest.mark.parametrize(
    ("route", "sent", "said"),
    [
        ("verify", "{no json", "answers no JSON"),
        ("verify", "[]", "answers without a reward"),
        ("verify", '{"reward": "x"}', "the reward x"),
        ("verify", '{"reward": NaN}', "is nan"),
        ("verify", 500, "the server fails: EXECUTION_ERROR: 500: Internal Server Error"),
        ("verify", 503, "answers 503"),
        ("verify", None, "Server disconnected"),
        (
            "verify",
            _masked(mask_sample=True, failure_kind="judge_failed", failure_reason="no key"),
            "it could not measure the attempt: judge_failed: no key",
        ),
        ("verify", _masked(mask_sample=True, failure_kind="session_lost"), "session_lost"),
        ("verify", _masked(instance_config={"mask_sample": True}), "measure the attempt: no kind"),
        ("verify", _masked(_ng_failure_class="judge_failed"), "judge_failed"),
        ("hint", "{no json", "answers no JSON"),
        ("hint", 500, "the server fails: EXECUTION_ERROR: 500: Internal Server Error"),
        ("hint", 404, "answers 404"),
    ],
)
def test_a_broken_answer_is_the_environments_failure(
    server: GymSumsServer, made: Make, route: str, sent: str | int | None, said: str
) -> None:
    domain = made(wait_s=0)
    draft = task(domain)
    server.spoil = lambda at, text: sent if at == route else text
    failed = stepped(domain.episode(draft, 0).step, HINT if route == "hint" else "3")
    assert failed.failed and failed.cause is Cause.ENVIRONMENT
    assert said in failed.messages[0]["content"]


def test_a_reward_that_is_valid_may_have_a_kind_of_failure(
    server: GymSumsServer, made: Make
) -> None:
    server.more = {"failure_kind": "judge_unparseable"}
    domain = made()
    assert domain.score(task(domain), played(domain, task(domain), "3")).success


def test_a_judge_that_comes_back_is_asked_again(server: GymSumsServer, made: Make) -> None:
    domain = made()
    draft = task(domain)
    masked = iter([_masked(mask_sample=True, failure_kind="session_lost")])
    server.spoil = lambda at, text: next(masked, text) if at == "verify" else text
    episode = domain.episode(draft, 0)
    assert not episode.step(HINT).done
    assert rewards(episode.step("3"))["reward"] == 0.5


def test_a_row_that_the_server_refuses_is_no_task(server: GymSumsServer, made: Make) -> None:
    domain = made(wait_s=0)
    domain._rows["train"][1].fields.pop("right")
    (refused,) = domain.parse('{"index": 1, "split": "train"}')
    why = 'the server refuses it: 422: {"detail": "right: Field required"}'
    assert refused == Rejected(Rejection.OUT_OF_RANGE, why)
    server.spoil = lambda at, text: 503
    with pytest.raises(DomainError, match="domain nemo_gym: no task was made of"):
        domain.parse('{"index": 2, "split": "train"}')
    (unknown,) = domain.parse('{"index": 40, "split": "train"}')
    assert isinstance(unknown, Rejected) and unknown.reason is Rejection.UNPARSEABLE
    (held,) = domain.parse('{"index": 4, "split": "test"}')
    assert isinstance(held, Rejected) and held.reason is Rejection.IN_HELDOUT


def test_a_certificate_of_nemo_gym_is_played(server: GymSumsServer, made: Make) -> None:
    domain = made(wait_s=0)
    draft = task(domain)
    assert all(check.passed for check in certify(draft, domain))
    server.spoil = lambda at, text: None if at == "verify" else text
    with pytest.raises(DomainError, match="no certificate of the task '2 \\+ 1 ='"):
        certify(draft, domain)


@mutation(
    "the schema of a server is in no key", "genenv_core/domains/nemo_gym/nemo_gym_domain.py",
    "facts.version, facts.schema)", "facts.version)",
)  # fmt: skip
def test_what_the_server_is_decides_the_version(
    server: GymSumsServer, made: Make, tmp_path: Path
) -> None:
    before = made()
    assert made(sessions=3).version == before.version and before.files == made().files
    moved = Path(before.files[0]).rename(tmp_path / "moved.jsonl")
    assert made(rows=str(moved)).version == before.version
    server.paths["/shout"] = {"post": {}}
    assert made(rows=str(moved)).version != before.version


def test_what_is_no_resources_server_is_said(server: GymSumsServer, made: Make) -> None:
    with pytest.raises(ConfigError, match="no server answers there"):
        made(url="http://127.0.0.1:9", wait_s=0)
    with pytest.raises(ConfigError, match="set GENENV_NEMO_GYM_URL"):
        made(url=None)
    with pytest.raises(ConfigError, match=r"domain\.options\.rows"):
        nemo_gym({"url": server.url})
    with pytest.raises(ConfigError, match="split 'more': the server has the splits train, test"):
        made(split="more")
    with pytest.raises(ConfigError, match=r"with more rows .* or ask for fewer .*--base"):
        made().base_tasks(0, 41)
    del server.paths["/verify"]
    with pytest.raises(ConfigError, match="has no route /verify, so it is no resources server"):
        made()


ASKING = f"""
from genenv_core.domains.nemo_gym import nemo_gym
domain = nemo_gym({{"url": URL, "rows": ROWS}})
episode = domain.episode(domain.base_tasks(0, 1)[0], 0)
print(episode.step({HINT!r}).messages[0]["content"])
"""


def test_a_process_closes_its_sessions_with_itself(server: GymSumsServer, tmp_path: Path) -> None:
    asking = ASKING.replace("URL", repr(server.url)).replace("ROWS", repr(written_rows(tmp_path)))
    subprocess.run([sys.executable, "-c", asking], check=True, timeout=BOUND_S)
    assert server.made >= 2 and not server.hints
