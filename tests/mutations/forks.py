"""Runs of pytest in forks of this process, which has imported the heavy libraries for all of them.

Imports would take most of the time of a mutation. A fork imports genenv and its tests anew, from
the copy of the tree in which it runs; only what others have written is there before.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import NoReturn

import pytest

from tests.proof.changes import REPOSITORY

OURS = {"flows", "genenv_core", "schemas", "tasks", "tests"}

PRELOADED = [
    "polars", "pandera.polars", "pyarrow.parquet", "duckdb", "scipy.optimize", "scipy.stats",
    "numpy", "pydantic", "torch", "torch.utils.data", "torch.distributed.tensor",
    "torch.distributed.fsdp", "transformers.trainer", "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto", "transformers.models.llama.modeling_llama",
    "transformers.models.qwen2.modeling_qwen2", "peft", "accelerate", "datasets",
    "sklearn.linear_model", "sklearn.feature_extraction.text", "prefect",
    "prefect.client.orchestration", "prefect.server.api.server", "prefect.automations",
    "prefect.workers.process", "sqlalchemy", "alembic", "flask", "starlette.testclient",
    "fastapi", "uvicorn", "aiohttp", "s3fs", "opentelemetry.sdk.trace", "jsonschema",
    "matplotlib.figure", "typer.testing", "rich.live", "prompt_toolkit", "psutil", "yaml",
]  # fmt: skip
"""Neither mlflow nor trainers of trl, which import it: it loads the entry points of genenv."""


@dataclass
class Outcome:
    """How a run of pytest ended.

    `status` is pytest's, None for one that took too long or died; `passed` and `failed` are node
    ids, and `printed` is the end of what it printed.
    """

    status: int | None = None
    late: bool = False
    passed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    printed: str = ""


@dataclass
class Fork:
    """A run of pytest under way in a fork, which leads a session of its own."""

    pid: int
    place: Path
    ends: float

    def outcome(self) -> Outcome | None:
        """Return how it ended, None while it goes on; what it started and left is killed."""
        late = time.monotonic() > self.ends
        if not late and not os.waitpid(self.pid, os.WNOHANG)[0]:
            return None
        self.kill()
        outcome = Outcome(late=late)
        with contextlib.suppress(FileNotFoundError):
            outcome = Outcome(**json.loads((self.place / "outcome").read_text("utf-8")))
        with contextlib.suppress(FileNotFoundError):
            outcome.printed = (self.place / "printed").read_text("utf-8", "replace")[-3000:]
        shutil.rmtree(self.place, ignore_errors=True)
        return outcome

    def kill(self) -> None:
        """End it and all that it started in its session."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):  # it has ended by itself
            os.waitpid(self.pid, 0)


def preload() -> None:
    """Import the heavy libraries, of which none may start a thread of Python's or import genenv."""
    os.environ["PREFECT_SERVER_ALLOW_EPHEMERAL_MODE"] = "false"  # as tests/conftest.py has it
    before = {name for name in sys.modules if name.partition(".")[0] in OURS}
    for plugin in entry_points(group="pytest11"):
        with contextlib.suppress(ImportError):
            plugin.load()
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    ours = {name for name in sys.modules if name.partition(".")[0] in OURS} - before
    if ours or threading.active_count() > 1:
        raise RuntimeError(
            f"a library imports {sorted(ours)[:3]} or starts a thread: see PRELOADED"
        )
    gc.collect()
    gc.freeze()


def fork(copy: Path, tests: list[str], timeout_s: float) -> Fork:
    """Start pytest on tests of a copy of the tree; a new folder beside the copy is its own."""
    place = Path(tempfile.mkdtemp(prefix="t", dir=copy.parent))
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        try:
            _become_pytest(copy, place, tests)
        finally:
            os._exit(70)
    return Fork(pid, place, time.monotonic() + timeout_s)


class _Recorder:
    """A plugin of pytest that notes what passed and what failed."""

    def __init__(self) -> None:
        self.passed: list[str] = []
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)
        elif report.when == "call" and report.passed:
            self.passed.append(report.nodeid)


def _become_pytest(copy: Path, place: Path, tests: list[str]) -> NoReturn:
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(place / "printed", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 1)
    os.dup2(1, 2)
    os.chdir(copy)
    usual = set(os.environ.get("PYTHONPATH", "").split(os.pathsep))
    here = {"", str(REPOSITORY), *(str(Path(path).absolute()) for path in usual)}
    sys.path[:] = [str(copy), *(path for path in sys.path if path not in here | usual)]
    os.environ["PYTHONPATH"] = str(copy)
    os.environ.setdefault("GENENV_SHARED", str(REPOSITORY.parent / "shared"))  # as in the tree
    for name in [name for name in sys.modules if name.partition(".")[0] in OURS]:
        del sys.modules[name]
    importlib.invalidate_caches()
    random.seed()

    from hypothesis.configuration import set_hypothesis_home_dir

    set_hypothesis_home_dir(place / "hypothesis")  # no example of another mutation is tried first
    sys.argv = ["pytest"]
    recorder = _Recorder()
    options = ["-m", "", "-p", "no:cacheprovider", f"--basetemp={place / 'tmp'}"]  # also slow ones
    if len(tests) == 1:
        options.append("-x")  # one failing case is enough
    status = int(pytest.main([*options, *tests], plugins=[recorder]))
    outcome = {"status": status, "passed": recorder.passed, "failed": recorder.failed}
    (place / "outcome.part").write_text(json.dumps(outcome), encoding="utf-8")
    (place / "outcome.part").rename(place / "outcome")
    sys.stdout.flush()
    atexit._run_exitfuncs()  # what tests have started may be ended there
    os._exit(0)
