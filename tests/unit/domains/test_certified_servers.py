"""What `genenv certify --model` says of the tasks that a server of an environment serves.

Invariants: with an endpoint that answers a known share right, success with its interval, reachable,
separating, headroom, variance and signal are what follows from that share, in each of the three
protocols; where no field says what is right, the attempts alone tell what is reachable.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from aiohttp import web
from typer.testing import CliRunner, Result

from flows.cli.app import app
from genenv_core.algorithm.success.shares import wilson
from genenv_core.domains.tool_calls import written
from genenv_core.evidence.worth import AttemptedTask, GroupCounts, worth_of
from genenv_core.types import JsonObject
from tests.mutations import mutation
from tests.unit.domains.nemo_gym import double as nemo_gym
from tests.unit.domains.openenv import double as openenv
from tests.unit.domains.ors import double as ors
from tests.unit.exchange.test_chat_endpoint import Server, said, server

__all__ = ["server"]

N = 4
"""Attempts at each task."""

TASKS = 20

SKILLS = {"always": N, "half": N // 2, "never": 0, "late": 0}
"""Successes of N attempts at a task, by what the endpoint knows of it."""

NUMBER = {"type": "integer", "minimum": 1, "maximum": 9}


def skill_of(first: int, second: int) -> str:
    """Return what the endpoint knows of a sum."""
    return list(SKILLS)[(first + 2 * second) % 4]


def asked_in(text: str) -> tuple[int, int]:
    """Return the sum that a request asks for."""
    first, second = re.findall(r"(\d+) \+ (\d+) =", text)[-1]
    return int(first), int(second)


def knows_a_share(name: str) -> Callable[[JsonObject], web.Response]:
    """Return a model's answers, right in a share of the attempts that is known for each task.

    Late is a right answer after a wrong one, with NeMo Gym after a hint: its reward is a half,
    which is no success.
    """
    opened: dict[tuple[int, int], int] = {}

    def answer(value: int) -> web.Response:
        call = {"name": "say", "arguments": {"sum": str(value)}}
        return said(written(call) if name == "ors" else str(value))

    def reply(body: JsonObject) -> web.Response:
        first, second = pair = asked_in(" ".join(str(one["content"]) for one in body["messages"]))
        skill = skill_of(*pair)
        if any(one["role"] == "assistant" for one in body["messages"]):
            return answer(first + second + (skill != "late"))
        opened[pair] = opened.get(pair, 0) + 1
        if skill == "late" and name == "nemo_gym":
            return said(written({"name": "hint", "arguments": {}}))
        right = skill == "always" or (skill == "half" and opened[pair] % 2 == 0)
        return answer(first + second + (not right))

    return reply


@contextmanager
def serving(name: str, folder: Path) -> Iterator[JsonObject]:
    """Yield the options of a domain whose double runs."""
    module: Any = {"openenv": openenv, "ors": ors, "nemo_gym": nemo_gym}[name]
    more: dict[str, JsonObject] = {
        "openenv": {"reset": {"properties": {"first": NUMBER, "second": NUMBER}}},
        "ors": {},
        "nemo_gym": {"split_field": "split"},
    }
    if name == "nemo_gym":
        more[name]["rows"] = nemo_gym.written_rows(folder)
    with module.serving() as started:
        yield {"url": started.url, "explain": False, "wait_s": 5} | more[name]


def command(*words: str) -> Result:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    return done


@mutation(
    "any reward is a success", "genenv_core/domains/kit/served/served_domain.py",
    "success = reward >= self.options.success_at - SLACK", "success = reward > 0",
)  # fmt: skip
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "answer"),
    [("openenv", "right"), ("ors", "right"), ("nemo_gym", "right"), ("openenv", None)],
)
def test_a_certificate_says_what_a_model_knows_of_a_servers_tasks(
    server: Server, tmp_path: Path, name: str, answer: str | None
) -> None:
    server.always = knows_a_share(name)
    root, file = ("--root", str(tmp_path / "root")), tmp_path / "rows.csv"
    with serving(name, tmp_path) as options:
        given = {**options, "answer": answer}
        sets = [f"domain.options.{key}={json.dumps(value)}" for key, value in given.items()]
        done = command(
            *("certify", name, "--tasks", "15", "--heldout", "5", "--samples", str(N)),
            *("--model", server.url, "--model-name", "big", *root, "-o", str(file)),
            *(word for one in sets for word in ("--set", one)),
        )
    assert re.search(rf"{TASKS} of {TASKS} tasks attempted by big at .*: 80 attempts", done.output)
    rows = {row["check"]: row for row in pl.read_csv(file).to_dicts()}
    prompts = command("sql", "SELECT prompt FROM tasks ORDER BY task_id", *root, "--format", "csv")
    sums = map(asked_in, re.findall(r"\d+ \+ \d+ =", prompts.output))
    skills = [skill_of(*pair) for pair in sums]
    assert len(skills) == TASKS and set(skills) == set(SKILLS)

    successes = [SKILLS[skill] for skill in skills]
    agent, halves = sum(count > 0 for count in successes), skills.count("half")
    # Where the server tells what is right, the domain itself solves every task.
    known = {"reachable": TASKS if answer else agent, "separating": halves, "signal": halves}
    for check, count in known.items():
        found = rows[check]
        assert (found["n"], found["estimate"]) == (TASKS, pytest.approx(count / TASKS)), check
        assert (found["low"], found["high"]) == pytest.approx(wilson(count, TASKS)), check
    assert rows["reachable"]["detail"] == f"the agent solved {agent}"
    failures = 1 - sum(successes) / (N * TASKS)
    assert rows["headroom"]["estimate"] == pytest.approx(failures)
    attempted = [AttemptedTask(N, count, True, 0.0) for count in successes]
    expected = {one.name: one for one in worth_of(attempted, GroupCounts(0, 0, 0), (0, TASKS))}
    for check in ("headroom", "variance"):
        found, one = rows[check], expected[check]
        wanted = (one.estimate, one.low, one.high)
        assert (found["estimate"], found["low"], found["high"]) == pytest.approx(wanted), check
        assert found["verdict"] == "pass"
    # An outcome follows from the task but for tasks that are solved half of the time.
    assert rows["variance"]["estimate"] > 0.5
