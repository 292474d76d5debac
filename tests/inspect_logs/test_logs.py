"""Exported logs, read by Inspect itself (the suite `files`).

Invariants: Inspect lists and reads every log, finds each sample by name and by id, and computes the
metrics that stand in the log; the summaries are those that it would have written; its models have
the fields that `tests/unit/exchange/inspect_schema.py` names, and require no others; its viewer
serves the logs.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.unit.exchange.inspect_schema import KNOWN, REQUIRED
from tests.unit.exchange.test_inspect_logs import read, written
from tests.waiting import BOUND_S, until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def python() -> str:
    if not (found := os.environ.get("GENENV_INSPECT_PYTHON")):
        pytest.skip("no Inspect here: `make test-suites NAMES=files` installs it")
    return found


@pytest.fixture(scope="module")
def folder(python: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("logs"))[0]


@pytest.fixture(scope="module")
def found(python: str, folder: Path) -> dict[str, Any]:
    script = Path(__file__).with_name("reading.py")
    done = subprocess.run(
        [python, str(script), str(folder), *KNOWN],
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=True,
    )
    return json.loads(done.stdout)


def test_inspect_reads_every_log_and_computes_its_metrics(
    folder: Path, found: dict[str, Any]
) -> None:
    ours = read(folder)
    assert found["logs"].keys() == ours.keys()
    for task, log in found["logs"].items():
        assert log["id"] and log["status"] == "success" and log["found"]
        assert log["samples"] == len(ours[task]["samples"])
        assert log["summaries"], task
        assert log["told"] and log["told"] == pytest.approx(log["computed"])
    calls = found["logs"]["desk-epoch-1-generated"]["first"]["messages"][1]["tool_calls"]
    assert calls[0]["arguments"]["item"]


@pytest.mark.parametrize("model", sorted(KNOWN))
def test_the_schema_that_is_written_down_is_that_of_inspect(
    found: dict[str, Any], model: str
) -> None:
    theirs = found["models"][model]
    assert set(theirs["required"]) == REQUIRED[model]
    assert KNOWN[model] <= set(theirs["all"])


def test_the_viewer_serves_the_logs(python: str, folder: Path, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [python, "-m", "inspect_ai._cli.main", "view", "start", "--log-dir", str(folder)]
    with (tmp_path / "view.log").open("wb") as out:
        server = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port)],
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        asked = f"http://127.0.0.1:{port}/api/logs"
        listed = until(lambda: _json(asked))
        names = {Path(one["name"]).name for one in listed["files"]}
        assert names == {path.name for path in folder.glob("*.eval")}
    finally:
        server.terminate()
        server.wait(BOUND_S)


def _json(url: str) -> Any:
    try:
        with urllib.request.urlopen(url, timeout=BOUND_S) as answer:
            return json.load(answer)
    except OSError:
        return None
