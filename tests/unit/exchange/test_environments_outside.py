"""Environments that left a run, in the hands of those who play them: openenv and verifiers.

Invariant: their own checks pass, a right attempt earns 1 and an empty one 0, and 1,000 attempts
earn in each of them what the domain itself gives; what went out comes back in as the same tasks.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from genenv_core.domains.openenv import openenv
from genenv_core.domains.protocol import right_turns
from genenv_core.domains.registry import get_domain
from genenv_core.exchange.environments.passports import TaskSelection
from genenv_core.exchange.environments.playing import ExportedAttempt, TurnLimits
from genenv_core.exchange.environments.writing import export_environment
from genenv_core.storage.sql.catalog import connect
from genenv_core.types import TaskDraft
from tests.pipeline.commands import REPOSITORY
from tests.unit.builders_tables import world
from tests.unit.domains.openenv.real import RealServer, installed, python
from tests.unit.exchange.test_environments import PACKAGE
from tests.unit.exchange.test_export import stored, with_drafts

pytestmark = pytest.mark.slow

LOCK = Path(__file__).parent / "verifiers.lock"
ENVIRONMENT = REPOSITORY / ".venv-verifiers"
TRAILS: Any = get_domain("trails")
LIMITS = TurnLimits(turns=8, errors=3)
ATTEMPTS = 1000


@cache
def _tables() -> dict[str, pl.DataFrame]:
    """Return the tables of a small run of the domain trails: 58 tasks of several turns."""
    found = with_drafts(world(tasks=30), TRAILS.base_tasks(3, 200))
    said = json.dumps([{"role": "user", "content": "?"}, {"role": "assistant", "content": ""}])
    found["trace_tokens"] = found["trace_tokens"].with_columns(messages=pl.lit(said))
    config = {
        **{"arm": "genenv", "seed": 0, "domain": {"name": "trails", "options": {}}},
        **{"rollout": {"max_turns": 8}, "tools": {"max_errors": 3}},
    }
    found["runs"] = found["runs"].with_columns(config=pl.lit(json.dumps(config)))
    return found


def given_away(folder: Path, format_: Any) -> tuple[Path, list[TaskDraft]]:
    """Return an exported folder, and its tasks in order."""
    out = folder / format_
    with connect([stored(folder / "tables", _tables())]) as con:
        export_environment(con, "run-a", format_, out, TaskSelection())
    text = (out / PACKAGE / "tasks.jsonl").read_text(encoding="utf-8")
    drafts: list[TaskDraft] = []
    for line in map(json.loads, text.splitlines()):
        del line["task_id"], line["passport"]
        drafts.append(TaskDraft(**line))
    return out, drafts


def attempts(drafts: list[TaskDraft]) -> list[tuple[int, list[str], float]]:
    """Return attempts, some right and most of them not: the task, the turns, the reward.

    What the agent says is cut to what the environment answers, as an agent would not say more.
    """
    rng = random.Random(5)
    made: list[tuple[int, list[str], float]] = []
    while len(made) < ATTEMPTS:
        place = rng.randrange(len(drafts))
        turns = right_turns(TRAILS, drafts[place])
        for _ in range(rng.randrange(3)):
            other = right_turns(TRAILS, drafts[rng.randrange(len(drafts))])
            odd = rng.choice([rng.choice(other), "<tool_call>{</tool_call>", "", "hm"])
            turns[rng.randrange(len(turns))] = odd
        attempt = ExportedAttempt(TRAILS, drafts[place], LIMITS, 0)
        said: list[str] = []
        for turn in turns:
            attempt.say(turn)
            said.append(turn)
            if attempt.done:
                break
        if attempt.done:  # else nobody gives a reward yet
            made.append((place, said, attempt.verdict().reward))
    return made


def test_openenv_plays_them_as_the_run_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, drafts = given_away(tmp_path, "openenv")
    made = attempts(drafts)
    assert 0.2 < sum(reward == 0 for _, _, reward in made) / len(made) < 0.8
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GENENV_OPENENV_PYTHON", str(python()))
    hidden = ["messages", "tools"]
    domain = openenv({"serve": "server.app:app", "hidden": hidden, "explain": False, "wait_s": 60})
    back: dict[int, TaskDraft] = {}
    for draft in (*domain.base_tasks(0, 44), *domain.heldout_tasks(0, 14)):
        back[json.loads(draft.program)["index"]] = draft
    assert len(back) == len(drafts)
    for place, turns, reward in made:
        draft = back[place]
        assert ExportedAttempt(TRAILS, drafts[place], LIMITS, 0).opening() in draft.prompt
        episode = domain.episode(draft, 0)
        messages = list(domain.agent_messages(draft))
        for turn in turns:
            answer = episode.step(turn)
            messages += [{"role": "assistant", "content": turn}, *answer.messages]
        assert answer.done
        assert domain.score(draft, messages).reward == reward


OPENENV_CHECKS = """
import json, sys
from openenv.cli._validation import validate_running_environment
from openenv.validation import Level, run_validation
folder, url = sys.argv[1:]
print(run_validation(folder, max_level=Level.STATIC).verdict.value)
print(json.dumps(validate_running_environment(url)))
"""
"""What `openenv validate FOLDER --level static` and `openenv validate URL` do; the command itself
imports libraries that no server needs."""


def test_openenvs_own_checks_pass(tmp_path: Path) -> None:
    folder = given_away(tmp_path, "openenv")[0]
    server = RealServer(tmp_path / "log", app="server.app:app", folder=folder)
    try:
        said = subprocess.run(
            [python(), "-c", OPENENV_CHECKS, str(folder), server.url],
            capture_output=True, text=True, check=True,
        ).stdout.splitlines()  # fmt: skip
    finally:
        server.kill()
    assert said[-2] == "pass"
    report = json.loads(said[-1])
    assert report["passed"] and len(report["criteria"]) >= 6, report


SCORES = """
import asyncio, json, sys
import verifiers.v1 as vf
from verifiers.v1.graph import MessageNode
from verifiers.v1.trace import Trace, TraceTask
from verifiers.v1.types import AssistantMessage
from verifiers.v1.utils.loaders import environment_class, taskset_class

package = sys.argv[1]
assert environment_class(package).__name__ == "ExportedEnv"
tasks = list(taskset_class(package)(vf.TasksetConfig(id=package)))

async def main():
    for line in sys.stdin:
        place, turns = json.loads(line)
        task = tasks[place]
        said = [AssistantMessage(content=turn) for turn in turns]
        nodes = [MessageNode(message=one, sampled=True) for one in said]
        about = TraceTask(type="VerifiersTask", data=task.data, key=task.key, hash=task.hash)
        agent = vf.AgentInfo(config=vf.AgentConfig())
        trace = Trace(task=about, state=vf.State(), agent=agent, nodes=nodes)
        await task.score(trace)
        print(json.dumps(trace.reward))

asyncio.run(main())
"""


def outside(folder: Path) -> dict[str, str]:
    """Return the variables of a process that finds an exported folder, and nothing of genenv."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {**kept, "PYTHONPATH": str(folder), "DO_NOT_TRACK": "1"}


def test_verifiers_plays_them_as_the_run_did(tmp_path: Path) -> None:
    folder, drafts = given_away(tmp_path, "verifiers")
    made = attempts(drafts)
    interpreter = installed(ENVIRONMENT, LOCK)
    asked = "".join(json.dumps([place, turns]) + "\n" for place, turns, _ in made)
    done = subprocess.run(
        [interpreter, "-c", SCORES, PACKAGE],
        input=asked, capture_output=True, text=True, cwd=tmp_path, env=outside(folder), check=False,
    )  # fmt: skip
    assert not done.returncode, done.stderr
    assert list(map(json.loads, done.stdout.splitlines())) == [reward for _, _, reward in made]


def test_verifiers_own_checks_pass(tmp_path: Path) -> None:
    folder, drafts = given_away(tmp_path, "verifiers")
    command = installed(ENVIRONMENT, LOCK).parent / "vf-validate"
    done = subprocess.run(
        [command, PACKAGE, "--runtime.type", "subprocess", "-o", str(tmp_path / "out")],
        capture_output=True, text=True, cwd=tmp_path, env=outside(folder), check=False,
    )  # fmt: skip
    assert not done.returncode, done.stderr
    (summary,) = (tmp_path / "out").rglob("summary.json")
    checks = json.loads(summary.read_text())["checks"]
    assert checks["gold"]["valid"] == checks["noop"]["valid"] == len(drafts)
