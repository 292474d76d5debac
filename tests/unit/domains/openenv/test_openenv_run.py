"""Whole runs against a server of the real openenv package.

Invariants: a run whose server and whose own process were killed in the middle ends with the outputs
and weights of one that nothing happened to; where nothing can be repeated, a run that was killed
goes on with the attempts that had ended, and plays the others from their beginning; environments of
several servers go into one run, beside a domain without a server, and each is played and measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from genenv_core.pools import frame
from tests.pipeline.conftest import api
from tests.unit.domains.killed_runs import KilledRuns
from tests.unit.domains.openenv.double import Sums, serving
from tests.unit.domains.openenv.real import RealServer
from tests.unit.domains.openenv.test_openenv_server import NAME, OPTIONS

__all__ = ["api"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RealServer]:
    """Serve sums in two sessions at once, for many more attempts in step."""
    started = RealServer(tmp_path / "server.log", SUMS_ROOM="2")
    yield started
    started.kill()


@pytest.mark.slow
def test_a_run_survives_its_own_end_and_that_of_its_server(
    api: None, server: RealServer, tmp_path: Path
) -> None:
    rewards = KilledRuns(NAME, {**OPTIONS, "url": server.url}, epochs=2).end_alike(server, tmp_path)
    assert {0.0, 1.0} <= set(rewards) <= {0.0, 0.5, 1.0}


class Counting(Sums):
    """One that says with each answer how many it has given, so that no two are equal."""

    given = count(1)

    def step(self, data: dict[str, Any]) -> dict[str, Any]:
        found = super().step(data)
        found["observation"]["said"] += f" #{next(self.given)}"
        return found


@pytest.mark.slow
def test_a_killed_run_keeps_the_ended_attempts_of_what_cannot_be_repeated(
    api: None, tmp_path: Path
) -> None:
    with serving(session=Counting) as server:
        runs = KilledRuns(NAME, {**OPTIONS, "repeatable": False, "url": server.url})
        at_kill = list[int]()
        stored = runs.end_after_a_kill(tmp_path, lambda: at_kill.append(next(Counting.given)))
    rows = frame(
        tmp_path,
        "SELECT k.messages, t.cause FROM trace_tokens AS k JOIN traces AS t USING (trace_id) "
        "WHERE t.policy_version = 0",
    )
    answers = [list(map(int, re.findall(r"#(\d+)", text))) for text in rows["messages"]]
    assert all(numbers for numbers in answers) and set(rows["cause"]) <= {None, "agent"}
    of_all = [number for numbers in answers for number in numbers]
    assert len(set(of_all)) == len(of_all)
    before = [numbers for numbers in answers if numbers[-1] < at_kill[0]]
    after = [numbers for numbers in answers if numbers[0] > at_kill[0]]
    assert len(before) >= stored and after and len(before) + len(after) == len(answers)


@pytest.mark.slow
def test_two_servers_and_desk_in_one_run(api: None, tmp_path: Path) -> None:
    with serving() as first, serving(room=2) as second:
        parts: list[dict[str, Any]] = [
            {"name": NAME, "as": label, "options": {**OPTIONS, "url": server.url}}
            for label, server in (("first", first), ("second", second))
        ]
        options = {"parts": [*parts, {"name": "desk", "options": {"max_calls": 2}}]}
        KilledRuns("several", options).end(tmp_path)
        assert first.most > 0 and second.most == 2
    rows = frame(tmp_path, "FROM domains WHERE epoch = 1 ORDER BY domain")
    assert list(rows["domain"]) == ["desk", "first", "second"]
    assert all(rows["attempts"] > 0) and all(rows["test_tasks"] > 0)
    played = frame(
        tmp_path,
        "SELECT d.domain, t.cause, count(*) AS n, "
        "count(*) FILTER (k.messages LIKE '%rewards%') AS rewarded FROM traces AS t "
        "JOIN trace_tokens AS k USING (trace_id) JOIN task_domains AS d ON d.task_id = t.task_id "
        "GROUP BY ALL ORDER BY d.domain",
    )
    assert set(played["cause"]) <= {None, "agent"} and list(played["domain"]) == list(
        rows["domain"]
    )
    assert [n > 0 for n in played["rewarded"]] == [False, True, True]
