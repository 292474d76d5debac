"""The domain openenv against a server: a double in this process, and the real package.

Invariants: the domain plays without a fault whatever its tasks come from; what the server refuses
is no task; verdicts come from stored rewards alone; a server with little room, or one that dies and
comes back, gives what one gives that has room and stays; where it cannot, the attempt fails with
the environment's cause.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from genenv_core.domains.kit.served.client import Patience
from genenv_core.domains.openenv import openenv
from genenv_core.domains.openenv.openenv_domain import OpenEnvDomain
from genenv_core.domains.protocol import Episode, fixed_sets
from genenv_core.domains.registry import get_domain
from genenv_core.domains.rewards import rewards_given
from genenv_core.domains.steps import stepped
from genenv_core.errors import ConfigError, DomainError
from genenv_core.play.certificate import CANARIES, certify
from genenv_core.play.checking.domain_checks import check_domain
from genenv_core.types import (
    Cause,
    Flaw,
    Message,
    Observation,
    Rejected,
    Rejection,
    TaskDraft,
)
from tests.examples import some
from tests.mutations import mutation
from tests.unit.domains.openenv.double import TASKS, Sums, SumsServer, serving
from tests.unit.domains.openenv.real import EXAMPLES, RealServer, python
from tests.unit.domains.served_play import goes_on_after_a_kill, played
from tests.waiting import BOUND_S

NAME, PLACE = "openenv", "genenv_core.domains.openenv:openenv"
NUMBER = {"type": "integer", "minimum": 1, "maximum": 9}
SCHEMA = {"properties": {"first": NUMBER, "second": NUMBER}}
GIVEN_ANYWAY = "        if not given:\n            continue\n        if given == 0:\n"
LOST_RAISES = (
    "        except EnvironmentLost:\n            raise\n"
    "        except FAILURES:\n            continue  # then"
)
OPTIONS: dict[str, Any] = {"reset": SCHEMA, "answer": "right", "explain": False}


@pytest.fixture
def server() -> Iterator[SumsServer]:
    with serving() as started:
        yield started


@pytest.fixture(params=some(["double", "real"], ["double"]))
def any_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """Serve sums in four sessions at once: by the double, or by the real package."""
    if request.param == "double":
        with serving(room=4) as started:
            yield started
        return
    real = RealServer(tmp_path / "log", SUMS_ROOM="4")
    yield real
    real.kill()


def made(url: str, **options: Any) -> OpenEnvDomain:
    return openenv({**OPTIONS, "url": url, "wait_s": 5, **options})


def task(domain: OpenEnvDomain, first: int = 2, second: int = 5) -> TaskDraft:
    (draft,) = domain.parse(f'{{"first": {first}, "second": {second}}}')
    assert isinstance(draft, TaskDraft), draft
    return draft


def test_it_plays_without_a_fault(any_server: Any) -> None:
    options = {**OPTIONS, "url": any_server.url, "explain": True}
    assert check_domain(NAME, options, base=20, heldout=5) == []


@pytest.mark.slow
def test_servers_are_domains_beside_others_without_a_fault(server: SumsServer) -> None:
    with serving() as other:
        parts: list[dict[str, Any]] = [
            {"name": NAME, "as": f"of_{place}", "options": {**OPTIONS, "url": one.url}}
            for place, one in enumerate((server, other))
        ]
        assert check_domain("several", {"parts": parts}, base=10, heldout=4) == []
        beside = {"parts": [parts[0], {"name": "desk"}]}
        assert check_domain("several", beside, base=10, heldout=4) == []


@pytest.mark.parametrize(
    ("tasks", "program"),
    [
        pytest.param(True, '{"index":3,"split":"train"}', marks=pytest.mark.slow),
        (False, '{"seed":3}'),
    ],
)
def test_without_a_schema_its_tasks_are_the_servers_own(tasks: bool, program: str) -> None:
    with serving(tasks=tasks) as server:
        options: dict[str, Any] = {"url": server.url, "seeds": 100}
        assert check_domain(NAME, options, base=20, heldout=10) == []
        domain = openenv(options)
        (draft,) = domain.parse(program)
        assert isinstance(draft, TaskDraft) and draft.program == program
        held = domain.heldout_tasks(0, 10)
        assert all(domain.parse(one.program)[0] != one for one in held)
        if tasks:
            assert {one.spec["reset"]["split"] for one in held} == {"test"}


@mutation(
    "held-out tasks count in a fixed set", "genenv_core/domains/kit/served/served_domain.py",
    "sum(not self.is_heldout(one) for one in chosen)", "len(chosen)",
)  # fmt: skip
@mutation(
    "arguments that pi_env writes are a fixed set", "genenv_core/domains/openenv/openenv_domain.py",
    "0 if options.reset or facts.splits else options.seeds", "options.seeds",
)  # fmt: skip
def test_a_fixed_set_is_counted_without_what_is_held_out(server: SumsServer) -> None:
    domain = made(server.url)
    assert domain.fixed_tasks() is None and fixed_sets("mine", domain) == {}
    seeds = openenv({"url": server.url, "seeds": 100})
    held = sum(seeds.is_heldout({"seed": seed}) for seed in range(100))
    assert held > 0 and fixed_sets("mine", seeds) == {"mine": 100 - held}
    assert openenv({"url": server.url, "seeds": 2**31 - 1}).fixed_tasks() in range(
        int(0.79 * 2**31), int(0.81 * 2**31)
    )
    with serving(tasks=True) as other:
        own, apart = openenv({"url": other.url}), {"test_split": "none"}
        assert own.fixed_tasks() == TASKS["train"]
        counted = openenv({"url": other.url, **apart}).fixed_tasks()
        assert counted is not None and 0 < counted < TASKS["train"]
        several = get_domain(
            "several",
            {
                "parts": [
                    {"name": PLACE, "as": "fixed", "options": {"url": other.url}},
                    {"name": PLACE, "as": "free", "options": {**OPTIONS, "url": server.url}},
                ]
            },
        )
        assert fixed_sets("several", several) == {"fixed": TASKS["train"]}


@pytest.mark.slow
def test_the_real_packages_own_tasks(tmp_path: Path) -> None:
    real = RealServer(tmp_path / "log", SUMS_TASKS="1")
    try:
        domain = openenv({"url": real.url})
        held = domain.heldout_tasks(0, 20)
        assert {one.spec["reset"]["split"] for one in held} == {"test"}
        assert len({one.prompt for one in held}) == 20
        with pytest.raises(ConfigError, match="only about 20 heldout tasks"):
            domain.heldout_tasks(0, 21)
    finally:
        real.kill()


def test_the_real_one_and_the_double_say_the_same(any_server: Any) -> None:
    domain = made(any_server.url)
    draft = task(domain)
    assert (draft.prompt, draft.ground_truth) == ("2 + 5 =", "7")
    episode = domain.episode(draft, 0)
    assert episode.step("8") == Observation(
        ({"role": "user", "content": "try again", "rewards": {"reward": None}},), done=False
    )
    assert episode.step("7") == Observation(
        ({"role": "user", "content": "right", "rewards": {"reward": 0.5}},), done=True
    )
    refused = domain.parse('{"first": 9, "second": 9}')
    assert refused == [
        Rejected(
            Rejection.OUT_OF_RANGE, "the server refuses it: sums above 16 are not for children"
        )
    ]


def test_a_text_that_spells_no_arguments_is_no_task(server: SumsServer) -> None:
    domain = made(server.url)
    for text in (
        "",
        "3",
        '{"first": 3}',
        '{"first": 3, "second": 0}',
        '{"first":3,"second":4,"x":1}',
    ):
        (found,) = domain.parse(text)
        assert isinstance(found, Rejected) and found.reason is Rejection.UNPARSEABLE
    held = domain.heldout_tasks(0, 1)[0].program
    assert [one.reason for one in domain.parse(held) if isinstance(one, Rejected)] == ["in_heldout"]


@mutation(
    "the last reward is the first", "genenv_core/domains/kit/served/served_domain.py",
    '"last": values[-1]', '"last": values[0]',
)  # fmt: skip
@mutation(
    "rewards are not scaled", "genenv_core/domains/kit/served/served_domain.py",
    "reward = (found - low) / (high - low)", "reward = found",
)  # fmt: skip
@pytest.mark.parametrize(
    ("options", "reward", "success"),
    [
        ({}, 0.5, False),
        ({"success_at": 0.5}, 0.5, True),
        ({"reward": "sum"}, 1.0, True),
        ({"reward": "max", "reward_range": [-1, 3]}, 0.375, False),
        ({"reward_range": [-0.5, 1.5]}, 0.5, False),
    ],
)
def test_the_verdict_is_made_of_the_stored_rewards(
    server: SumsServer, options: dict[str, Any], reward: float, success: bool
) -> None:
    domain = made(server.url, **options)
    rewards = [{"reward": 0.25}, {"reward": None}, {"reward": 0.25}, {"reward": 0.5}]
    messages: list[Any] = [{"role": "user", "content": "3 + 4 ="}]
    for given in rewards:
        messages.append({"role": "assistant", "content": "7"})
        messages.append({"role": "user", "content": "so", "rewards": given})
    verdict = domain.score(task(domain), messages)
    assert (verdict.reward, verdict.success) == (reward, success)


@mutation(
    "a reward may be out of range", "genenv_core/domains/kit/served/served_domain.py",
    "if not -SLACK <= reward <= 1 + SLACK:", "if False:",
)  # fmt: skip
@mutation(
    "a transcript without rewards is a failure", "genenv_core/domains/rewards.py",
    "        if not given:\n", GIVEN_ANYWAY,
)  # fmt: skip
def test_a_reward_out_of_range_and_a_transcript_of_others_are_refused(server: SumsServer) -> None:
    domain = made(server.url, reward_range=[0, 0.25])
    draft = task(domain)
    with pytest.raises(
        DomainError, match=r"the reward 1 of an attempt is outside of .* \[0, 0.25\]"
    ):
        domain.score(draft, played(domain, draft, "7"))
    others: list[Message] = [
        {"role": "assistant", "content": "7"}, {"role": "user", "content": "right"},
    ]  # fmt: skip
    with pytest.raises(DomainError, match="no rewards at turn 1: let the task be attempted again"):
        domain.score(draft, others)
    cut = [*played(domain, draft, "8"), Message(role="assistant", content="I thi")]
    assert domain.score(draft, cut).failure == "no reward before the end"


@mutation(
    "sessions are not shared", "genenv_core/domains/kit/served/sessions.py",
    "if free is not None or room or not shared:", "if True:",
)  # fmt: skip
@mutation(
    "a session that is taken is not begun anew", "genenv_core/domains/kit/served/episode.py",
    "if not own:", "if not own and not self._begun:",
)  # fmt: skip
def test_many_attempts_in_step_share_little_room(server: SumsServer) -> None:
    server.room = 2
    domain = made(server.url)
    drafts = [task(domain, 1 + place, 5) for place in range(8) if not _held(domain, 1 + place)]
    episodes = [domain.episode(draft, 0) for draft in drafts]
    first = [episode.step("0") for episode in episodes]
    second = [e.step(d.ground_truth) for e, d in zip(episodes, drafts, strict=True)]
    assert {one.done for one in first} == {False} and {one.done for one in second} == {True}
    assert [one.messages[-1]["rewards"] for one in second] == [{"reward": 0.5}] * len(drafts)  # type: ignore[typeddict-item]
    assert server.most == 2


def _held(domain: OpenEnvDomain, first: int) -> bool:
    return not isinstance(domain.parse(f'{{"first": {first}, "second": 5}}')[0], TaskDraft)


@mutation(
    "a lost server is not waited for", "genenv_core/domains/kit/served/sessions.py",
    "if self._patience.over() or time.monotonic() > deadline or final():", "if True:",
)  # fmt: skip
def test_an_attempt_goes_on_when_the_server_is_back(server: SumsServer) -> None:
    domain = made(server.url)
    draft = task(domain)
    episode = domain.episode(draft, 0)
    assert not episode.step("8").done
    server.stop()
    server.start()
    assert episode.step("7").messages[-1]["content"] == "right"

    once = made(server.url, repeatable=False)
    episode = once.episode(draft, 0)
    assert not episode.step("8").done
    server.stop()
    server.start()
    lost = stepped(episode.step, "7")
    assert lost.failed and lost.cause is Cause.ENVIRONMENT
    again = stepped(episode.step, "7")
    assert "domain.options.repeatable is false" in again.messages[0]["content"]


@mutation(
    "a full server is another refusal", "genenv_core/domains/kit/served/sessions.py",
    'raise EnvironmentLost(f"the server is full: {error.message}") from error', "raise",
)  # fmt: skip
@pytest.mark.parametrize(
    ("room", "sessions", "said"),
    [
        (1, 64, "the server is full: Server at capacity"),
        (
            64,
            1,
            "the server has room for 1 sessions, and all are in use: raise domain.options.sess",
        ),
    ],
)
def test_an_attempt_without_room_is_the_environments_failure(
    server: SumsServer, room: int, sessions: int, said: str
) -> None:
    server.room = room
    domain = made(server.url, wait_s=0, sessions=sessions, repeatable=False)
    draft = task(domain)
    first, second = domain.episode(draft, 0), domain.episode(draft, 0)
    assert not first.step("8").done
    failed = stepped(second.step, "7")
    assert failed.failed and failed.cause is Cause.ENVIRONMENT
    assert said in failed.messages[0]["content"]
    assert first.step("7").done and second.step("7").done


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ("{no json", "answers no JSON"),
        ('["x"]', "answers no JSON object"),
        ('{"type": "observation", "data": {"reward": 1, "done": true}}', "without an observation"),
        ('{"type": "observation", "data": {"observation": {}, "reward": "x"}}', "the reward x"),
        ('{"type": "observation", "data": {"observation": {}, "done": true}}', "gave no reward"),
        ('{"type": "observation", "data": {"observation": {}, "reward": NaN}}', "is nan"),
        ('{"type": "error", "data": {"code": "EXECUTION_ERROR", "message": "ouch"}}', "ouch"),
        (None, "closed the connection"),
    ],
)
def test_a_broken_answer_is_the_environments_failure(
    server: SumsServer, sent: str | None, said: str
) -> None:
    domain = made(server.url, wait_s=0)
    draft = task(domain)
    server.spoil = lambda asked, text: sent if asked["type"] == "step" else text
    failed = stepped(domain.episode(draft, 0).step, "7")
    assert failed.failed and failed.cause is Cause.ENVIRONMENT
    assert said in failed.messages[0]["content"]


def test_an_answer_that_does_not_come_is_the_environments_failure(server: SumsServer) -> None:
    domain = made(server.url, wait_s=0, timeout_s=0.3)
    draft, over = task(domain), threading.Event()

    def late(asked: dict[str, Any], text: str) -> str:
        if asked["type"] == "step":
            over.wait(BOUND_S)
        return text

    server.spoil = late
    failed = stepped(domain.episode(draft, 0).step, "7")
    over.set()
    assert failed.failed and failed.cause is Cause.ENVIRONMENT
    assert "gave no answer in 0.3 s" in failed.messages[0]["content"]


@mutation(
    "another answer than before is taken", "genenv_core/domains/kit/served/episode.py",
    "if heard != self._prompt:", "if False:",
)  # fmt: skip
def test_a_server_that_answers_otherwise_than_before_is_named(server: SumsServer) -> None:
    count = iter(range(1000))

    class Restless(Sums):
        def reset(self, data: dict[str, Any]) -> dict[str, Any]:
            found = super().reset(data)
            found["observation"]["id"] = next(count)
            return found

    server.session = Restless
    domain = made(server.url)
    failed = stepped(domain.episode(task(domain), 0).step, "7")
    assert "leave fields that differ out (domain.options.hidden)" in failed.messages[0]["content"]
    hidden = made(server.url, hidden=["id"])
    assert hidden.episode(task(hidden), 0).step("7").done


@mutation(
    "certificates pass with a lost server", "genenv_core/play/certificate.py",
    LOST_RAISES, "        except FAILURES:\n            continue  # then",
)  # fmt: skip
def test_a_certificate_is_played(server: SumsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    domain = made(server.url, wait_s=0)
    draft = task(domain)
    checks = certify(draft, domain)
    assert all(check.passed for check in checks)
    assert {Flaw.REJECTS_GROUND_TRUTH, Flaw.UNREACHABLE, Flaw.AMBIGUOUS} <= {c.flaw for c in checks}

    step = Sums.step
    monkeypatch.setattr(Sums, "step", lambda self, _: step(self, {"answer": str(self.total)}))
    found = {check.flaw for check in certify(draft, domain) if not check.passed}
    assert found == {Flaw.ACCEPTS_TRIVIAL, Flaw.ACCEPTS_CANARY}
    monkeypatch.undo()
    server.spoil = lambda asked, text: None if CANARIES[-1] in str(asked) else text
    with pytest.raises(DomainError, match="no certificate of the task '2 \\+ 5 ='"):
        certify(draft, domain)


@mutation(
    "every attempt waits for a lost server anew", "genenv_core/domains/kit/served/client.py",
    "self._since = now if self._since is None else self._since", "self._since = now",
)  # fmt: skip
def test_all_attempts_together_wait_for_a_lost_server() -> None:
    clock = iter(range(1000))
    patience = Patience(5, lambda: next(clock))
    assert [patience.over() for _ in range(8)] == [False] * 6 + [True] * 2
    patience.answered()
    assert not patience.over()


@mutation(
    "of several environments the first is taken unasked", "genenv_core/domains/openenv/facts.py",
    "if len(named) > 1:", "if len(named) > 2:",
)  # fmt: skip
def test_no_server_and_another_server_are_said(server: SumsServer) -> None:
    with pytest.raises(ConfigError, match="no server answers there"):
        made("http://127.0.0.1:9", wait_s=0)
    with pytest.raises(ConfigError, match="no server is named"):
        openenv({})
    with serving(environments=("sums", "words")) as both:
        with pytest.raises(ConfigError, match="lists sums, words, and a session of OpenEnv cannot"):
            openenv({"url": both.url})
        assert made(both.url).tools == ()
    server.action = {}
    with pytest.raises(ConfigError, match="names no action"):
        made(server.url)


def test_an_app_that_cannot_be_served_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    served = {**OPTIONS, "serve": "no_such_package:app"}
    monkeypatch.delenv("GENENV_OPENENV_PYTHON", raising=False)
    with pytest.raises(ConfigError, match="GENENV_OPENENV_PYTHON is not set: name the interp"):
        openenv(served)
    monkeypatch.setenv("GENENV_OPENENV_PYTHON", sys.executable)
    with pytest.raises(ConfigError, match=r"does not start .* No module named 'no_such_package'"):
        openenv(served)
    with pytest.raises(ConfigError, match="url and serve both name a server"):
        openenv({**served, "url": "http://127.0.0.1:9"})


@pytest.mark.slow
def test_an_app_is_served_here_and_begins_anew_when_it_dies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GENENV_OPENENV_PYTHON", str(python()))
    monkeypatch.setenv("SUMS_ROOM", "1")
    monkeypatch.chdir(EXAMPLES)
    options = {
        **OPTIONS,
        "serve": "openenv_sums:app",
        "variables": ["SUMS_ROOM"],
        "wait_s": BOUND_S,
    }
    domain = openenv(options)
    goes_on_after_a_kill("openenv_sums:app", domain, task(domain), wrong="8", right="7")


def test_its_version_follows_the_server_and_not_its_address(
    server: SumsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = made(server.url).version
    with serving() as other:
        assert made(other.url, timeout_s=7).version == first
        monkeypatch.setenv("GENENV_OPENENV_URL", other.url)
        assert openenv(OPTIONS).version == first
        other.action = {**other.action, "description": "another one"}
        assert made(other.url).version != first
    assert made(server.url, success_at=0.5).version != first


def test_an_episode_is_one_of_the_protocol(server: SumsServer) -> None:
    domain = made(server.url)
    episode: Episode = domain.episode(task(domain), 0)
    assert rewards_given(played(domain, task(domain), "8", "7")) == [
        {"reward": None},
        {"reward": 0.5},
    ]
    assert episode.step("7").done
