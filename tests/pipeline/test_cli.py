"""The command line as a person uses it, in processes of their own.

Invariants: every kind of bad input gives one line on standard error that names place, value and
remedy, and the right exit status; a run that was interrupted or killed, in whatever stage, is
continued by the same command and ends with the same outputs as one that never was; a full disk is
said and nothing is lost.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from genenv_core.storage.local import LocalStore
from genenv_core.storage.runs import RunLog
from tests.pipeline.builders import manifests, tiny

REPOSITORY = Path(__file__).parents[2]


def environment(**changes: str) -> dict[str, str]:
    """Return this process's environment without what the session's API set in it."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT", "GENENV"))}
    return {**kept, "PYTHONPATH": str(REPOSITORY), **changes}


def genenv(*arguments: str, cwd: Path, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """Return the finished command."""
    return subprocess.run(
        [sys.executable, "-m", "flows.cli.app", *arguments],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def refused(done: subprocess.CompletedProcess[str], status: int, *words: str) -> None:
    """Assert one line of error with these words, and the status."""
    assert done.returncode == status, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("genenv: ")
    for word in words:
        assert word in lines[0], lines[0]
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "quikstart"], ["'quikstart'", "did you mean 'quickstart'"]),
        (["run", "tiny", "--set", "rwr.stepz=3"], ["rwr.stepz", "did you mean 'steps'"]),
        (["run", "tiny", "--set", "curriculum.alpha=2"], ["curriculum.alpha", "got 2"]),
        (["run", "tiny", "--set", "data.base_file=nope.jsonl"], ["nope.jsonl", "No such file"]),
        (["run", "tiny", "--set", "models.agent=./nope"], ["models.agent", "no such directory"]),
        (["run", "tiny", "--set", "models.agent=gpt2"], ["hub id", "models.agent_revision"]),
        (["run", "tiny", "--set", "domain.name=chess"], ["domain.name", "chess", "desk"]),
        (["run", "tiny", "--root", "s3x://bucket"], ["s3x://bucket", "directory"]),
        (["status", "--root", "nowhere"], ["nowhere", "genenv run"]),
        (["sql", "SELECT 1", "--root", "nowhere"], ["nowhere"]),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(tmp_path: Path, arguments, words):
    refused(genenv(*arguments, cwd=tmp_path), 2, *words)
    assert not (tmp_path / "nowhere").exists()  # looking creates nothing


def test_schema_lists_macros_with_their_parameters(tmp_path: Path):
    lines = genenv("sql", "--schema", cwd=tmp_path).stdout.splitlines()
    start = next(i for i, x in enumerate(lines) if x.startswith("what_if(alpha, beta, k_min,"))
    assert "(macro)" in lines[start]
    assert lines[start + 1].split()[:3] == ["alpha", ":=", "DOUBLE"]


def test_a_file_that_is_no_yaml(tmp_path: Path):
    (tmp_path / "bad.yaml").write_text("epochs: [1\nseed: 2\n")
    refused(genenv("run", "bad.yaml", cwd=tmp_path), 2, "bad.yaml", "no YAML", "line")


def test_a_broken_row_of_base_data_names_file_line_field_and_value(tmp_path: Path):
    (tmp_path / "base.jsonl").write_text('{"program": "+ 1 bolts 2"}\n{"program": 7}\n')
    done = genenv("run", "tiny", "--set", "data.base_file=base.jsonl", cwd=tmp_path)
    refused(done, 2, "base.jsonl:2", '"program"', "7")


def test_a_model_directory_without_a_tokenizer(tmp_path: Path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    done = genenv("run", "tiny", "--set", "models.agent=./model", cwd=tmp_path)
    refused(done, 2, "models.agent model", "no tokenizer", "save_pretrained")


def test_a_root_that_cannot_be_written(tmp_path: Path):
    (tmp_path / "file").write_text("")
    refused(genenv("run", "tiny", "--root", "file/root", cwd=tmp_path), 1, "file/root", "--root")


def test_help_and_unknown_commands(tmp_path: Path):
    assert genenv("--help", cwd=tmp_path).returncode == 0
    assert genenv("frobnicate", cwd=tmp_path).returncode == 2


@pytest.fixture(scope="module")
def mounted(tmp_path_factory: pytest.TempPathFactory):
    """A file system of a few megabytes."""
    folder = tmp_path_factory.mktemp("small")
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    if mount.returncode:
        pytest.skip("mounting a small tmpfs needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=False)


def test_a_full_disk_is_said_and_the_next_run_continues(api, mounted: Path, tiny_root: Path):
    from genenv_core.errors import StorageError
    from tests.pipeline.builders import run, states

    config = tiny(mounted / "root", run_id="full")
    filler = mounted / "filler"
    filler.write_bytes(b"\0" * (5 * 2**20))
    with pytest.raises(StorageError, match="the disk is full"):
        run(config)
    filler.unlink()
    run(config)
    assert states(config)[-1] == (2, "publish", "computed")


def wait_for(root: Path, run_id: str, stage: str, process: subprocess.Popen[bytes]) -> None:
    """Return once a stage of epoch 1 (or bootstrap) of a run has started."""
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        assert process.poll() is None, "the run ended before it could be interrupted"
        folder = root / "runs" / run_id / "attempts"
        if folder.is_dir() and any(stage in p.name for p in folder.glob("*-start.json")):
            return
        time.sleep(0.02)
    raise AssertionError(f"{stage} did not start")


@pytest.mark.parametrize(
    ("stage", "number", "status"),
    [
        pytest.param("bootstrap", signal.SIGINT, 130, marks=pytest.mark.slow),
        pytest.param("rollout", signal.SIGINT, 130, marks=pytest.mark.slow),
        ("grpo_update", signal.SIGINT, 130),
        ("grpo_update", signal.SIGKILL, -9),
    ],
)
def test_an_interrupted_run_is_continued_by_the_same_command(tmp_path: Path, stage, number, status):
    arguments = ("run", "tiny", "--root", str(tmp_path / "r"), "--run-id", "x")
    arguments += ("--epochs", "1", "--set", "tracking.enabled=false")
    process = subprocess.Popen(
        [sys.executable, "-m", "flows.cli.app", *arguments],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    wait_for(tmp_path / "r", "x", stage, process)
    os.kill(process.pid, number)
    _, error = process.communicate(timeout=60)
    assert process.returncode == status, error.decode()
    if status == 130:
        assert error.decode().strip().startswith("genenv: interrupted: the same command")
        assert "Traceback" not in error.decode()
    done = genenv(*arguments, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [row["epoch"] for row in json.loads(done.stdout)["epochs"]] == [0, 1]
    attempts = RunLog(LocalStore(tmp_path / "r"), "x").attempts()
    left = [a.state for a in attempts if a.stage == stage and a.epoch == (stage != "bootstrap")]
    # A stage may still finish while the run is ending: then it is kept, and not computed twice.
    assert left[-1] == "computed"
    assert left.count("computed") == 1


def test_the_interrupted_run_has_the_outputs_of_one_that_never_was(api, tmp_path: Path, tiny_root):
    from tests.pipeline.builders import run

    config = tiny(tmp_path / "r", epochs=1, run_id="x")
    arguments = ("run", "tiny", "--root", config.root, "--run-id", "x", "--epochs", "1")
    process = subprocess.Popen(
        [sys.executable, "-m", "flows.cli.app", *arguments, "--set", "tracking.enabled=false"],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_for(tmp_path / "r", "x", "evaluate", process)
    process.kill()
    process.wait()
    run(config)
    straight = tiny(tiny_root, epochs=1, run_id="straight")
    run(straight)
    assert {k: m.digest for k, m in manifests(config).items()} == {
        k: m.digest for k, m in manifests(straight).items()
    }
