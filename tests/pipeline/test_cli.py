"""The command line as a person uses it, in processes of their own where the process matters.

Invariants: every kind of bad input gives one line on standard error that names place, value and
remedy, and the right exit status; the same command continues a run that was interrupted or killed,
again and again, and no flow run of it stays Running.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from flows.running import signals
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.store.local import LocalStore
from tests.pipeline.commands import environment, genenv, refused, said
from tests.waiting import BOUND_S, until


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "quikstart"], ["'quikstart'", "did you mean 'quickstart'"]),
        (["run", "tiny", "--set", "rwr.stepz=3"], ["rwr.stepz", "did you mean 'rwr.steps'"]),
        (["run", "tiny", "--set", "curriculum.alpha=2"], ["curriculum.alpha", "got 2"]),
        (["run", "tiny", "--set", "data.base_file=nope.jsonl"], ["nope.jsonl", "No such file"]),
        (["run", "tiny", "--set", "models.agent=./nope"], ["models.agent", "no such directory"]),
        (
            ["run", "tiny", "--set", "models.agent=gpt2"],
            ["hub repository", "models.agent_revision"],
        ),
        (["run", "tiny", "--set", "domain.name=chess"], ["domain.name", "chess", "desk"]),
        (["run", "tiny", "--root", "s3x://bucket"], ["s3x://bucket", "directory"]),
        (["status", "--root", "nowhere"], ["nowhere", "genenv run"]),
        (["sql", "SELECT 1", "--root", "nowhere"], ["nowhere"]),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(tmp_path: Path, arguments, words):
    refused(said(*arguments, cwd=tmp_path), 2, *words)
    assert not (tmp_path / "nowhere").exists()  # looking creates nothing


def test_schema_lists_macros_with_their_parameters(tmp_path: Path):
    lines = said("sql", "--schema", cwd=tmp_path).stdout.splitlines()
    start = next(i for i, x in enumerate(lines) if x.startswith("what_if(alpha, beta, k_min,"))
    assert "(macro)" in lines[start]
    assert lines[start + 1].split()[:3] == ["alpha", ":=", "DOUBLE"]


def test_a_file_that_is_no_yaml(tmp_path: Path):
    (tmp_path / "bad.yaml").write_text("epochs: [1\nseed: 2\n")
    refused(genenv("run", "bad.yaml", cwd=tmp_path), 2, "bad.yaml", "no YAML", "line")


def test_a_broken_row_of_base_data_names_file_line_field_and_value(tmp_path: Path):
    (tmp_path / "base.jsonl").write_text('{"program": "+ 1 bolts 2"}\n{"program": 7}\n')
    done = said("run", "tiny", "--set", "data.base_file=base.jsonl", cwd=tmp_path)
    refused(done, 2, "base.jsonl:2", '"program"', "7")


def test_a_model_directory_without_a_tokenizer(tmp_path: Path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    done = said("run", "tiny", "--set", "models.agent=./model", cwd=tmp_path)
    refused(done, 2, "models.agent model", "no tokenizer", "save_pretrained")


@pytest.mark.slow
def test_a_root_that_cannot_be_written(tmp_path: Path):
    (tmp_path / "file").write_text("")
    refused(genenv("run", "tiny", "--root", "file/root", cwd=tmp_path), 1, "file/root", "--root")


@pytest.mark.slow
def test_help_and_unknown_commands(tmp_path: Path):
    assert genenv("--help", cwd=tmp_path).returncode == 0
    assert genenv("frobnicate", cwd=tmp_path).returncode == 2


def begun_attempts(root: Path, stage: str) -> int:
    """Return how often a stage of epoch 1, or bootstrap, was begun."""
    return sum(stage in path.name for path in root.glob("runs/x/attempts/*-start.json"))


SAYS_WHEN_IT_ENDS = """
from flows.cli import app
from flows.running import signals

end = signals._end
signals._end = lambda *given, **named: (print("ending", flush=True), end(*given, **named))
app.main()
"""


COMMAND = ("run", "tiny", "--root", "r", "--run-id", "x", "--epochs", "1",
           "--set", "tracking.enabled=false", "--set", "grpo.passes=8")  # fmt: skip

INTERRUPTIONS = [
    ("bootstrap", signal.SIGTERM, 143, "SIGTERM"),
    ("rollout", signal.SIGKILL, -signal.SIGKILL, ""),
    ("grpo_update", signal.SIGINT, 130, "interrupted"),
]
"""In the order of a run: stage, signal, exit status, and words of the line that says so."""


def interrupted(folder: Path, stage: str, number: int, status: int, words: str) -> None:
    """Interrupt the run in the folder's root `r` once it has begun a stage."""
    root = folder / "r"
    before = begun_attempts(root, stage)
    process = subprocess.Popen(
        [sys.executable, "-c", SAYS_WHEN_IT_ENDS, *COMMAND],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )

    def at_work() -> bool:
        assert process.poll() is None, "the run ended before it could be interrupted"
        return begun_attempts(root, stage) > before

    until(at_work)
    # As a terminal does, and as a container's init may: everybody gets it, the workers too.
    os.killpg(process.pid, number)
    if number == signal.SIGTERM:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, b"")
        assert b"ending\n" in lines, process.communicate(timeout=BOUND_S)
        os.killpg(process.pid, number)
    _, error = process.communicate(timeout=BOUND_S)
    assert process.returncode == status, error.decode()
    assert signals.SOFT_S + signals.HARD_S < 30  # what Kubernetes gives
    if status > 0:
        (line,) = error.decode().strip().splitlines()
        assert line.startswith("genenv: ") and words in line and "the same command" in line
        assert "RUNNING" not in flow_run_states(root)


@pytest.mark.slow
def test_an_interrupted_run_is_continued_by_the_same_command(tmp_path: Path):
    for stage, number, status, words in INTERRUPTIONS:
        interrupted(tmp_path, stage, number, status, words)
    done = genenv(*COMMAND, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [row["epoch"] for row in json.loads(done.stdout)["epochs"]] == [0, 1]
    attempts = RunLog(LocalStore(tmp_path / "r"), "x").attempts()
    for stage, *_ in INTERRUPTIONS:
        left = [a.state for a in attempts if a.stage == stage and a.epoch == (stage != "bootstrap")]
        # A stage may still finish while the run is ending: then it is kept, and not computed twice.
        assert left.count("computed") == 1, (stage, left)
        assert set(left[left.index("computed") + 1 :]) <= {"cached"}
    # A killed process cannot report its end: the next run does.
    states = flow_run_states(tmp_path / "r")
    assert states.count("COMPLETED") == 2 and "RUNNING" not in states


def flow_run_states(root: Path) -> list[str]:
    """Return the states of all flow runs in the database of a root's own Prefect API."""
    with sqlite3.connect(root / "prefect" / "prefect.db") as database:
        return [state for (state,) in database.execute("SELECT state_type FROM flow_run")]
