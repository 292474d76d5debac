"""Tasks of a run as folders of Harbor, and Harbor's own program that plays them.

Invariants: where an agent attempts a task lies no answer that its environment can do without; the
verdict is of what the agent said, and of nothing that it could have written beside; a right
attempt earns 1 and none 0; 1,000 attempts earn what the domain itself gives, also by the scripts
that Harbor runs.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from genenv_core.domains.protocol import right_turns
from genenv_core.domains.registry import get_domain
from genenv_core.domains.steps import EnvironmentLost
from genenv_core.exchange.environments.harbor import saying, serving
from genenv_core.exchange.environments.harbor.serving import ServedTask, judge, read_turns
from genenv_core.exchange.environments.harbor.withholding import PlayedTurns, withheld, without
from genenv_core.exchange.environments.playing import TurnLimits, read_tasks
from genenv_core.types import Message, Observation
from tests.mutations import mutation
from tests.pipeline.commands import REPOSITORY
from tests.unit.domains.openenv.real import installed
from tests.unit.exchange.test_environments import PACKAGE, given_away, lines, with_config
from tests.unit.exchange.test_environments_outside import attempts
from tests.unit.exchange.test_environments_outside import given_away as given_trails
from tests.unit.exchange.test_export import with_drafts

FOLDERS = "genenv_core/exchange/environments/harbor/folders.py"
SERVING = "genenv_core/exchange/environments/harbor/serving.py"
WITHHOLDING = "genenv_core/exchange/environments/harbor/withholding.py"
LOCK = Path(__file__).parent / "harbor.lock"
ENVIRONMENT = REPOSITORY / ".venv-harbor"
LIMITS = TurnLimits(turns=8, errors=3)
TRAILS: Any = get_domain("trails")


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int]]:
    """Return the export of a small run of desk, and what it says of the stored attempts."""
    given = with_config({"name": "desk", "options": {}})
    return given_away(tmp_path_factory.mktemp("desk"), "harbor", given)


@mutation(
    "where an agent attempts a task lies its answer", FOLDERS,
    "own.whole(without(draft, fields))", "own.whole(without(draft, ()))",
)  # fmt: skip
@mutation(
    "an agent reads the task that its environment has", FOLDERS,
    "chmod -R go= ", "chmod -R go=rX ",
)  # fmt: skip
@mutation(
    "the answer of a task comes to where its agent is", FOLDERS,
    '"environment_mode": "separate"', '"environment_mode": "shared"',
)  # fmt: skip
def test_each_task_is_a_folder_that_keeps_its_answer_apart(
    desk: tuple[Path, dict[str, int]],
) -> None:
    folder, changes = desk
    assert changes == {"stored attempts were scored again by the folder, with equal rewards": 24}
    given = lines(folder)
    assert sorted(path.name for path in (folder / "tasks").iterdir()) == [
        line["task_id"] for line in given
    ]
    codes: set[bytes] = set()
    for line in given:
        task = folder / "tasks" / line["task_id"]
        assert json.loads((task / "tests" / "tasks.jsonl").read_text()) == line
        assert json.loads((task / "passport.json").read_text()) == line["passport"]
        assert (task / "instruction.md").read_text().endswith(f"\n\n{line['prompt']}\n")
        for name in ("Dockerfile", "attempt", "environment.json", "tasks.jsonl"):
            text = (task / "environment" / name).read_text()
            assert line["ground_truth"] not in text and line["program"] not in text
        assert "chmod -R go= " in (task / "environment" / "Dockerfile").read_text()
        bare = json.loads((task / "environment" / "tasks.jsonl").read_text())
        assert (bare["spec"], bare["passport"]) == ({}, {}) and bare["prompt"] == line["prompt"]
        codes.add((task / "environment" / "code.zip").read_bytes())
        for script in ("solution/solve.sh", "tests/test.sh"):
            assert os.access(task / script, os.X_OK)
        about = tomllib.loads((task / "task.toml").read_text())
        assert about["artifacts"] == [str(serving.TURNS)]
        assert about["agent"]["user"] == "agent"
        assert about["verifier"]["environment_mode"] == "separate"
        assert about["metadata"]["digest"] == line["passport"]["digest"]
    assert len(codes) == 1 and len(codes.pop()) < 100_000
    readme = (folder / "README.md").read_text()
    assert "its container does not hold | spec, ground_truth, program, fingerprint |" in readme
    assert "`tasks/TASK/solution` | 6 |" in readme
    assert not (folder / "pyproject.toml").exists()
    named = {one["name"] for one in json.loads((folder / "statement.json").read_text())["subject"]}
    assert f"tasks/{given[0]['task_id']}/tests/test.sh" in named


@pytest.mark.slow
def test_a_task_without_a_known_answer_has_no_solution(tmp_path: Path) -> None:
    given = with_config(
        {"name": "desk", "options": {"max_operand": 4}}
    )  # out of whose range all is
    folder, _ = given_away(tmp_path, "harbor", given)
    assert not list(folder.glob("tasks/*/solution"))
    assert "`tasks/TASK/solution` | 0 |" in (folder / "README.md").read_text()


class Varying:
    """A domain whose answers are never the same."""

    def __init__(self, domain: Any) -> None:
        self._domain, self._said = domain, iter(range(1000))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._domain, name)

    def agent_messages(self, draft: Any) -> list[Message]:
        return [{"role": "user", "content": f"{draft.prompt} {next(self._said)}"}]


@mutation(
    "a container lacks what its environment needs", WITHHOLDING,
    "play) == whole for", "play) != [] for",
)  # fmt: skip
@mutation(
    "a task that nobody tried loses fields", WITHHOLDING,
    "if {play.index for play in known} != set(range(len(drafts))):", "if not known:",
)  # fmt: skip
def test_what_an_environment_needs_stays() -> None:
    spelled = ("ground_truth", "program", "fingerprint")
    for name, expected in (("desk", ("spec", *spelled)), ("trails", (*spelled, "spec.asked"))):
        domain: Any = get_domain(name)
        drafts = domain.base_tasks(0, 4)
        plays = [
            PlayedTurns(i, tuple(right_turns(domain, draft))) for i, draft in enumerate(drafts)
        ]
        assert withheld(domain, drafts, LIMITS, plays) == expected
        assert without(drafts[0], expected).spec.keys() <= {"cards"}
        assert withheld(domain, drafts, LIMITS, plays[1:]) == ()
        assert withheld(Varying(domain), drafts, LIMITS, plays) == ()  # pyright: ignore


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a task of trails of several turns."""
    folder = tmp_path_factory.mktemp("trails")
    given = with_config({"name": "trails", "options": {}}, max_turns=8)
    drafts = (draft for draft in TRAILS.base_tasks(0, 60) if draft.difficulty >= 3)
    out, _ = given_away(folder, "harbor", with_drafts(given, drafts))
    return sorted((out / "tasks").iterdir())[0]


def right(task: Path) -> list[str]:
    """Return the turns of a right attempt at the one task of a folder."""
    return right_turns(TRAILS, read_tasks(task / "tests").tasks[0].draft)


def served(task: Path, turns: Path, tests: Path | None = None) -> ServedTask:
    """Return the environment's part of a task, as it is where the agent is."""
    return ServedTask(read_tasks(task / "environment"), turns, tests or turns.parent / "tests")


def earned(task: Path, turns: Path) -> tuple[float, str]:
    """Return what an attempt earns, and why not more."""
    judge(task / "tests", turns, turns.parent / "verifier")
    why = json.loads((turns.parent / "verifier" / "verdict.json").read_text())
    reward = json.loads((turns.parent / "verifier" / "reward.json").read_text())
    assert reward == {"reward": why["reward"]}
    return why["reward"], why["failure"]


@mutation(
    "an attempt may be at another task", SERVING,
    "if over or _texts(attempt.say(turn.said)) != turn.answers:",
    "if over or not attempt.say(turn.said) and turn.answers:",
)  # fmt: skip
@mutation(
    "what is said after the end of an attempt counts", SERVING,
    "over = attempt.done", "over = False",
)  # fmt: skip
@mutation(
    "who reads the answer where it is judged may still say it", SERVING,
    "if self._tests.is_dir() and any(self._tests.iterdir()):", "if False:",
)  # fmt: skip
@mutation(
    "turns of an attempt are lost with a process", SERVING,
    "self._turns = read_turns(turns)", "self._turns = []",
)  # fmt: skip
@mutation(
    "half of a character ends a verdict", SERVING,
    "self._say(storable(text))", "self._say(text)",
)  # fmt: skip
def test_the_verdict_is_of_what_was_said(task: Path, tmp_path: Path) -> None:
    turns = tmp_path / "turns.jsonl"
    assert earned(task, turns) == (0.0, "nothing_said")
    *looks, answer = right(task)
    for look in looks:  # a process for each
        said = served(task, turns).asked({"say": look})["text"]
    assert read_turns(turns)[-1].answers == (said,)
    assert earned(task, turns)[0] == 0.0
    (tmp_path / "tests").mkdir()
    served(task, turns)
    (tmp_path / "tests" / "tasks.jsonl").touch()
    assert served(task, turns).asked({"say": answer}) == {"failed": serving.CLOSED}
    there = served(task, turns, tmp_path / "nowhere")
    assert there.asked({"say": answer}) == {"text": serving.OVER}
    assert there.asked({"say": answer}) == {"failed": serving.OVER}
    assert len(read_turns(turns)) == len(looks) + 1
    assert earned(task, turns) == (1.0, "")
    shown = there.asked({"show": True})["text"]
    assert shown.endswith(serving.OVER) and all(text in shown for text in (*looks, said, answer))
    assert "failed" in there.asked(["say"])
    half = served(task, tmp_path / "half", tmp_path / "nowhere")
    half.asked({"say": "half of a character: \ud83d"})
    assert earned(task, tmp_path / "half") == (0.0, "no_answer")
    whole = turns.read_text()
    turns.write_text(whole.replace(json.dumps([said]), json.dumps(["another"])))
    assert turns.read_text() != whole
    assert earned(task, turns) == (0.0, "other_answers")
    turns.write_text(whole + '{"said": "more", "answers": [], "lost": false}\n')
    assert earned(task, turns) == (0.0, "other_answers")


def test_an_environment_that_fails_says_nothing_about_the_agent(
    task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = tmp_path / "turns.jsonl"

    class Broken:
        def step(self, action: str) -> Observation:
            raise OSError("gone")

    monkeypatch.setattr(type(TRAILS), "episode", lambda *_: Broken())
    there = served(task, turns)
    assert there.asked({"say": "a"}) == {"failed": serving.LOST}
    assert there.asked({"say": "b"}) == {"failed": serving.OVER}
    monkeypatch.undo()
    assert served(task, turns).asked({"say": "b"}) == {"failed": serving.OVER}
    with pytest.raises(EnvironmentLost):
        judge(task / "tests", turns, tmp_path / "verifier")
    assert not (tmp_path / "verifier").exists()


@pytest.fixture
def answering(task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Answer the command `attempt` about a task; return the file of its turns."""
    turns, place = tmp_path / "turns.jsonl", os.path.relpath(tmp_path / "socket")
    monkeypatch.setattr(saying, "SOCKET", place)
    there = served(task, turns)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(place)
    listening.listen()

    def answer() -> None:
        with listening:  # else who asks would wait for ever
            while not there.asked({"show": True})["text"].endswith(serving.OVER):
                serving._answer(there, listening.accept()[0])

    thread = threading.Thread(target=answer)
    thread.start()
    yield turns
    thread.join()


@mutation(
    "an agent that sends nonsense ends its environment", SERVING,
    "suppress(OSError, ValueError, RecursionError)", "suppress(OSError)",
)  # fmt: skip
def test_the_command_says_a_turn(
    task: Path, answering: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["attempt", *words])
        code = saying.main()
        return code, *capsys.readouterr()

    said = answering.parent / "said"
    said.write_bytes(b"\n")
    assert run("say", str(said)) == (2, "", "Nothing was said: the text is empty.\n")
    assert run()[0] == run("tell")[0] == run("say", "a", "b")[0] == 2
    code, shown, _ = run("show")
    assert code == 0 and "tool_call" in shown
    look = (
        '<tool_call>{"name": "look", "arguments": {"card": "nobody", "field": "town"}}</tool_call>'
    )
    said.write_text(f"{look}\n")
    code, answer, _ = run("say", str(said))
    assert code == 0 and [
        (turn.said, "\n".join(turn.answers)) for turn in read_turns(answering)
    ] == [(look, answer.removesuffix("\n"))]
    for sent in (b"{\n", b"[" * 100_000 + b"\n", b'{"show": true}\n', b""):  # these end nothing
        with socket.socket(socket.AF_UNIX) as broken:
            broken.connect(saying.SOCKET)
            broken.sendall(sent)
    said.write_text("I do not know.")
    assert run("say", str(said)) == (0, f"{serving.OVER}\n", "")
    monkeypatch.setattr(saying, "SOCKET", str(answering.parent / "no-socket"))
    assert run("show")[0] == 1


SCORES = """
import json, sys
from importlib import import_module
from pathlib import Path
package, folder, scratch = sys.argv[1:]
serving = import_module(f"{package}.genenv_core.exchange.environments.harbor.serving")
tasks = sorted(Path(folder, "tasks").iterdir())
verifier = Path(scratch, "verifier")
for number, line in enumerate(sys.stdin):
    place, said = json.loads(line)
    turns = Path(scratch, f"{number}.jsonl")
    there = serving.ServedTask(serving.read_tasks(tasks[place] / "environment"), turns)
    for turn in said:
        assert "text" in there.asked({"say": turn})
    serving.judge(tasks[place] / "tests", turns, verifier)
    print((verifier / "reward.json").read_text())
assert "genenv_core" not in sys.modules
"""


SHARE = int(os.environ.get("GENENV_HARBOR_ATTEMPTS", 60))
"""Attempts, of 1,000, that Harbor judges; each takes .26 s of a processor, mostly for imports."""


@dataclass
class SaidAttempts:
    """Attempts at the tasks of a data set, said to their environments and judged, in one process.

    `turns` are the files that the environments wrote, and `rewards` those of the domain itself.
    """

    tasks: Path
    names: list[str]
    turns: list[Path]
    rewards: list[float]
    judged: list[float]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> SaidAttempts:
    """Say 1,000 attempts by the code that lies in the images."""
    place = tmp_path_factory.mktemp("said")
    folder, drafts = given_trails(place, "harbor")
    made = attempts(drafts)
    (place / "scratch").mkdir()
    tasks = sorted((folder / "tasks").iterdir())
    done = subprocess.run(
        [sys.executable, "-P", "-s", "-c", SCORES, PACKAGE, folder, place / "scratch"],
        input="".join(json.dumps([index, turns]) + "\n" for index, turns, _ in made),
        capture_output=True, text=True, check=False, cwd=place,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(tasks[0] / "environment" / "code.zip")},
    )  # fmt: skip
    assert not done.returncode, done.stderr
    return SaidAttempts(
        folder / "tasks",
        [tasks[index].name for index, _, _ in made],
        [place / "scratch" / f"{number}.jsonl" for number in range(len(made))],
        [reward for _, _, reward in made],
        [json.loads(line)["reward"] for line in done.stdout.splitlines()],
    )


@pytest.mark.slow
def test_attempts_earn_what_the_domain_gives(said: SaidAttempts) -> None:
    assert said.judged == said.rewards
    assert len(said.judged) == 1000 and 0.2 < said.judged.count(0) / 1000 < 0.8


@pytest.mark.timeout(3000)  # all 1,000 take 260 s of processor time
@pytest.mark.slow
def test_harbor_judges_attempts_by_their_own_scripts(said: SaidAttempts, tmp_path: Path) -> None:
    needs_rooms()
    every = list(zip(said.names, said.turns, said.rewards, strict=True))
    chosen = [every[index * len(every) // SHARE] for index in range(SHARE)]
    done = subprocess.run(
        [harbor(), Path(__file__).parent / "harbor_rooms.py", said.tasks, tmp_path],
        input=json.dumps([(name, str(turns)) for name, turns, _ in chosen]),
        capture_output=True, text=True, check=False, env=outside(TMPDIR=str(tmp_path)),
    )  # fmt: skip
    assert not done.returncode, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == [reward for _, _, reward in chosen]
    assert 0.2 < found.count(0) / len(found) < 0.8


def harbor() -> Path:
    """Return the interpreter that has harbor; skips where no Python 3.12 is."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [shutil.which("python3.12"), *sorted(versions.glob("3.12*/bin/python3"))]
    for base in filter(None, found):
        if not subprocess.run([base, "-c", "import venv"], capture_output=True).returncode:
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(sys, "executable", base)  # it makes the environment
                return installed(ENVIRONMENT, LOCK)
    pytest.skip(f"harbor asks for Python 3.12: none is in PATH or in {versions}")


def outside(**more: str) -> dict[str, str]:
    """Return the variables of a process of Harbor, which asks nobody on the network."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    quiet = {"DO_NOT_TRACK": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    return {**kept, **quiet, "PYTHONPATH": str(Path(__file__).parent), **more}


READ = """
import asyncio, json, sys
from pathlib import Path
from harbor.models.job.config import DatasetConfig
from harbor.models.task.task import Task
from harbor.models.task.verifier_mode import resolve_task_verifier_mode
folder = Path(sys.argv[1])
configs = asyncio.run(DatasetConfig(path=folder).get_task_configs(disable_verification=False))
tasks = [Task(config.path) for config in configs]
print(json.dumps([
    [task.task_dir.name, task.config.schema_version, resolve_task_verifier_mode(task.config).value,
     task.config.model_fields["schema_version"].default, task.instruction,
     task.paths.discovered_solve_path_for(task.config.environment.os) is not None]
    for task in tasks
]))
"""


@pytest.mark.slow
def test_harbor_reads_every_task(tmp_path: Path) -> None:
    folder, drafts = given_trails(tmp_path, "harbor")
    done = subprocess.run(
        [harbor(), "-c", READ, folder / "tasks"],
        capture_output=True, text=True, check=False, env=outside(), cwd=tmp_path,
    )  # fmt: skip
    assert not done.returncode, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert [name for name, *_ in found] == [line["task_id"] for line in lines(folder)]
    for draft, (_, version, mode, current, instruction, solved) in zip(drafts, found, strict=True):
        assert (version, mode, solved) == (current, "separate", True)
        assert draft.prompt in instruction


def needs_rooms() -> None:
    """Skip where this machine opens no rooms."""
    if subprocess.run(["unshare", "-rmpf", "true"], capture_output=True).returncode:
        pytest.skip("a room needs namespaces: `unshare -rmpf true` fails on this machine")


def played(folder: Path, out: Path, *options: object) -> dict[str, float]:
    """Return the rewards that `harbor run` gives tasks of an export, in rooms without Docker."""
    command = harbor().parent / "harbor"
    needs_rooms()
    done = subprocess.run(
        [
            *(command, "run", "-p", folder / "tasks", "-e", "harbor_rooms:Room", "-n", "1"),
            *("-q", "-o", out, *options),
        ],
        capture_output=True, text=True, check=False, env=outside(TMPDIR=str(out.parent)),
    )  # fmt: skip
    assert not done.returncode, done.stdout + done.stderr
    results = [json.loads(path.read_text()) for path in sorted(out.glob("*/*/result.json"))]
    assert not any(one["exception_info"] for one in results), results
    return {
        Path(one["task_id"]["path"]).name: one["verifier_result"]["rewards"]["reward"]
        for one in results
    }


@pytest.mark.slow
def test_harbor_plays_them_as_the_run_did(tmp_path: Path) -> None:
    folder, drafts = given_trails(tmp_path, "harbor")
    names = [line["task_id"] for line in lines(folder)]
    right = played(folder, tmp_path / "right", "-a", "oracle", "-l", "2")
    assert right == dict.fromkeys(names[:2], 1.0)
    nothing = played(folder, tmp_path / "nothing", "-a", "nop", "-l", "1")
    assert nothing == {names[0]: 0.0}
    # An empty text is no turn of the command.
    made = [one for one in attempts(drafts) if all(turn.strip() for turn in one[1])]
    random.Random(3).shuffle(made)
    chosen = {place: (turns, reward) for place, turns, reward in made[:5]}
    said = {f"run-a-{names[place]}": turns for place, (turns, _) in chosen.items()}
    (tmp_path / "said.json").write_text(json.dumps(said))
    only = [word for place in chosen for word in ("-i", f"*{names[place]}")]
    agent = ("-a", "harbor_rooms:SayingAgent", "--ak", f"turns={tmp_path / 'said.json'}")
    found = played(folder, tmp_path / "said", *agent, *only)
    assert found == {names[place]: reward for place, (_, reward) in chosen.items()}
    assert len({reward > 0 for reward in found.values()}) == 2
    (modes, *_) = (tmp_path / "said").glob("*/*/agent/modes.txt")
    assert dict(line.split()[::-1] for line in modes.read_text().splitlines()) == {
        "/opt/attempt/code": "drwx------",
        "/opt/attempt/code.zip": "-rw-------",
        "/opt/attempt/socket": "srw-rw-rw-",
        "/opt/attempt/task": "drwx------",
        "/opt/attempt/turns.jsonl": "-rw-------",
        "/usr/local/bin/attempt": "-rwxr-xr-x",
    }


def test_the_code_in_an_image_is_the_package(desk: tuple[Path, dict[str, int]]) -> None:
    folder, _ = desk
    with zipfile.ZipFile(next(folder.glob("tasks/*/environment/code.zip"))) as code:
        packed = {name: code.read(name) for name in code.namelist()}
    there = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in (folder / PACKAGE / "genenv_core").rglob("*")
        if path.is_file()
    }
    assert {name: packed[name] for name in there} == there
    assert packed.keys() - there.keys() == {f"{PACKAGE}/__init__.py"}
