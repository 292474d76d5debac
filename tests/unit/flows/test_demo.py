"""The demo of `genenv view`: where it lies, when it is built, and what its building may touch.

Invariants: the folder is one of the user's caches, and another version of genenv, another setting
or another version of a table has another one; a finished demo is opened without a write; an
unfinished one is continued, by one process at a time, and the next one finds it finished; its run
gets no variable that names a server or a root; a failure says how to begin anew, and signals reach
the run; `--root` beside `--demo` is refused. The slow test builds it: the page says that the agent
gained.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flows.cli.app import app
from flows.cli.machines import demo
from flows.running.signals import Terminated
from genenv_core.config.load import resolve
from genenv_core.config.stages import LAST
from genenv_core.errors import ConfigError, GenenvError
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.sql.catalog import query
from genenv_core.storage.sql.sources import open_tables
from genenv_core.storage.store.local import LocalStore
from schemas.registry import TABLES
from tests.mutations import mutation
from tests.pipeline.commands import environment
from tests.unit.builders_root import small_root
from tests.waiting import until

DEMO = "flows/cli/machines/demo.py"
VIEW = "flows/cli/machines/view.py"


@pytest.fixture(name="cache")
def a_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return the folder of caches, which is empty."""
    place = tmp_path / "cache"
    monkeypatch.setenv("GENENV_CACHE_DIR", str(place))
    return place


def finish(root: Path) -> None:
    """Make a root that holds the demo's run as a finished one."""
    store = small_root(root, demo.RUN, demo.EPOCHS)
    RunLog(store, demo.RUN).note_key(demo.EPOCHS, LAST, "0" * 64)


class Build:
    """A process that builds: it ends with this status, and finishes the root if that is 0."""

    def __init__(self, status: int = 0) -> None:
        self.status = status
        self.calls: list[tuple[list[str], dict[str, Any]]] = []

    def __call__(self, arguments: list[str], **how: Any) -> Build:
        self.calls.append((arguments, how))
        return self

    def wait(self, timeout: float) -> int:
        if self.status == 0:
            finish(demo.demo_folder())
        return self.status


@pytest.fixture(name="build")
def what_builds(monkeypatch: pytest.MonkeyPatch) -> Build:
    found = Build()
    monkeypatch.setattr(subprocess, "Popen", found)
    return found


def test_the_folder_is_one_of_the_users_caches(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("GENENV_CACHE_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    if sys.platform.startswith("linux"):
        assert demo.demo_folder().parent == tmp_path / "xdg" / "genenv" / "demo"
    assert demo.demo_folder().is_relative_to(tmp_path)
    assert not demo.demo_folder().is_relative_to(Path.cwd())
    monkeypatch.setenv("GENENV_CACHE_DIR", str(tmp_path / "mine"))
    assert demo.demo_folder().parent == tmp_path / "mine" / "demo"


@mutation(
    "another version of genenv opens the old demo", DEMO, 'f"{__version__}-{', 'f"demo-{'
)  # fmt: skip
def test_another_version_has_another_folder(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = demo.demo_folder()
    assert demo.demo_folder() == before
    monkeypatch.setattr(demo, "__version__", "99.0")
    assert demo.demo_folder().name.startswith("99.0-") and demo.demo_folder() != before


@mutation(
    "a demo made of other tables is opened", DEMO,
    'made_of = {"command": command(Path()), "format": FORMAT, "tables": versions}',
    'made_of = {"command": SEED, "format": FORMAT, "tables": sorted(versions)}',
)  # fmt: skip
@pytest.mark.parametrize("name", ["SETTINGS", "EPOCHS", "table"])
def test_what_makes_it_is_in_the_name_of_the_folder(
    name: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = demo.demo_folder()
    if name == "table":
        monkeypatch.setattr(type(TABLES["tasks"]), "version", property(lambda _: 99))
    else:
        monkeypatch.setattr(demo, name, {"SETTINGS": ("rwr.steps=1",), "EPOCHS": 1}[name])
    assert demo.demo_folder() != before


def test_its_settings_are_those_of_a_run(tmp_path: Path) -> None:
    config = resolve(demo.SOURCE, overrides=demo.SETTINGS, fields={"epochs": demo.EPOCHS})
    assert not config.tracking.enabled  # nothing about it goes to MLflow
    assert config.models.agent == config.models.env == "bootstrap"  # and nothing is downloaded


@mutation(
    "an unfinished demo is opened", DEMO, "log.keys(EPOCHS)", "log.keys(EPOCHS - 1)"
)  # fmt: skip
def test_only_the_last_epoch_makes_it_finished(tmp_path: Path) -> None:
    root = tmp_path / "root"
    assert not demo.is_finished(root)
    assert not root.exists()
    store = small_root(root, demo.RUN, demo.EPOCHS)
    log = RunLog(store, demo.RUN)
    log.note_key(demo.EPOCHS - 1, LAST, "0" * 64)
    assert not demo.is_finished(root)
    log.note_key(demo.EPOCHS, LAST, "0" * 64)
    assert demo.is_finished(root)


@mutation(
    "a finished demo is locked, so that it has to be writable", DEMO,
    "    if not is_finished(root):\n        with _alone", "    if True:\n        with _alone",
)  # fmt: skip
def test_a_finished_demo_is_opened_without_a_write(cache: Path, build: Build) -> None:
    finish(demo.demo_folder())
    before = sorted(cache.rglob("*"))
    lines: list[str] = []
    assert demo.demo_root(lines.append) == demo.demo_folder()
    assert not build.calls and not lines
    assert sorted(cache.rglob("*")) == before


def test_one_that_is_missing_is_built_once_and_says_how_long_that_takes(
    cache: Path, build: Build
) -> None:
    lines: list[str] = []
    assert demo.demo_root(lines.append) == demo.demo_root(lines.append)
    assert len(lines) == 1
    for words in (str(demo.demo_folder()), "minute", f"{demo.EPOCHS} epochs"):
        assert words in lines[0]
    ((arguments, _),) = build.calls
    assert arguments[arguments.index("run") :][:2] == ["run", "tiny"]
    assert arguments[arguments.index("--root") + 1] == str(demo.demo_folder())


def test_one_that_was_interrupted_is_continued(cache: Path, build: Build) -> None:
    store = small_root(demo.demo_folder(), demo.RUN, 1)
    kept = store.names("runs")
    demo.demo_root(lambda _: None)
    assert len(build.calls) == 1
    assert store.names("runs") == kept  # nothing was removed for it


@mutation(
    "who waited for a demo builds it again", DEMO,
    "            if not is_finished(root):  # another", "            if True:  # another",
)  # fmt: skip
def test_two_at_once_build_it_once(cache: Path, build: Build) -> None:
    root = demo.demo_folder()
    root.parent.mkdir(parents=True)
    lines: list[str] = []
    other = (root.parent / f"{root.name}.lock").open("ab")
    fcntl.flock(other, fcntl.LOCK_EX)

    def end_the_other() -> None:
        with other:
            until(lambda: lines)
            finish(root)

    first = threading.Thread(target=end_the_other)
    first.start()
    assert demo.demo_root(lines.append) == root
    first.join()
    (line,) = lines
    assert "waiting" in line and not build.calls


@mutation(
    "the demo's run goes to the user's own Prefect", DEMO,
    "if name in KEPT or not name.startswith(_OTHERS)", "if name in KEPT or name != 'GENENV_ROOT'",
)  # fmt: skip
def test_the_run_gets_no_variable_of_servers_and_roots(
    cache: Path, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PREFECT_API_URL", "GENENV_ROOT", "GENENV_VIEW_URL", "OTEL_EXPORTER_X", "MINE"):
        monkeypatch.setenv(name, "http://elsewhere")
    demo.demo_root(lambda _: None)
    passed = build.calls[0][1]["env"]
    assert [name for name, value in passed.items() if value == "http://elsewhere"] == ["MINE"]
    assert passed["GENENV_CACHE_DIR"] == str(cache) and passed["PATH"] == os.environ["PATH"]


@pytest.mark.parametrize(
    ("status", "error", "words"),
    [
        (1, GenenvError, r"rm -r .*demo.*GENENV_CACHE_DIR"),
        (-signal.SIGKILL, GenenvError, "killed by SIGKILL: the same command continues"),
        (130, SystemExit, "130"),
        (143, SystemExit, "143"),
    ],
)
def test_a_failure_says_how_to_go_on(
    status: int, error: type[BaseException], words: str, cache: Path, build: Build
) -> None:
    handler = signal.getsignal(signal.SIGTERM)
    build.status = status
    with pytest.raises(error, match=words):
        demo.demo_root(lambda _: None)
    assert signal.getsignal(signal.SIGTERM) == handler
    assert not demo.is_finished(demo.demo_folder())


@mutation(
    "Ctrl-C waits until the demo is built", DEMO, "process.wait(POLL_S)", "process.wait()"
)  # fmt: skip
def test_signals_reach_the_run_and_its_end_is_waited_for() -> None:
    class Process:
        def __init__(self, *ends: Callable[[], int]) -> None:
            self.ends, self.sent = iter(ends), list[int]()

        def wait(self, timeout: float | None = None) -> int:
            assert timeout, "polars restarts a wait without an end after a Ctrl-C"
            return next(self.ends)()

        def send_signal(self, number: int) -> None:
            self.sent.append(number)

    def ended_by(error: BaseException) -> Callable[[], int]:
        def wait() -> int:
            raise error

        return wait

    process: Any = Process(
        ended_by(subprocess.TimeoutExpired("run", 1)),
        ended_by(KeyboardInterrupt()),
        ended_by(Terminated(number=signal.SIGHUP)),
        lambda: 130,
    )
    assert demo._ended(process) == 130  # pyright: ignore[reportPrivateUsage]
    assert process.sent == [signal.SIGINT, signal.SIGHUP]


def test_a_cache_that_cannot_be_written_names_the_variable(cache: Path, build: Build) -> None:
    cache.write_text("a file")
    with pytest.raises(ConfigError, match="set GENENV_CACHE_DIR"):
        demo.demo_root(lambda _: None)
    assert not build.calls


def shown(*arguments: str) -> str:
    """Return what `genenv view` prints; raises what it raises."""
    done = CliRunner().invoke(app, ["view", *arguments])
    if done.exception:
        raise done.exception
    return done.output


@mutation(
    "--root beside --demo is dropped", VIEW,
    'source.name == "COMMANDLINE"', 'source.name == "COMMAND"',
)  # fmt: skip
def test_a_root_beside_it_is_refused_and_the_variable_is_not(
    cache: Path, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("uvicorn.Server.run", lambda *_, sockets: [one.close() for one in sockets])
    with pytest.raises(ConfigError, match="leave out --root, or --demo"):
        shown("--demo", "--root", "mine", "--port", "0")
    assert not build.calls
    monkeypatch.setenv("GENENV_ROOT", "mine")
    out = shown("--demo", "--port", "0")
    root = demo.demo_folder()
    assert f"read-only over {root};" in out
    assert f"genenv sql --root {root}\n" in out and f"genenv report demo --root {root}\n" in out


def touched(folder: Path) -> dict[Path, int]:
    """Return when each file and folder was last changed, by name."""
    return {one: one.stat().st_mtime_ns for one in (folder, *folder.rglob("*"))}


@mutation(
    "the page of the demo needs a folder that can be written", VIEW,
    "LocalStore(demo_root(typer.echo), writable=False)", "existing(str(demo_root(typer.echo)))",
)  # fmt: skip
def test_the_command_opens_a_finished_demo_without_a_write(
    cache: Path, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("uvicorn.Server.run", lambda *_, sockets: [one.close() for one in sockets])
    finish(demo.demo_folder())
    before = touched(cache)
    assert "building" not in shown("--demo", "--port", "0")
    assert touched(cache) == before and not build.calls


@mutation(
    "a taken port is refused after a minute", VIEW,
    "        listen(host, port).close()  # refuses before it builds\n", "",
)  # fmt: skip
def test_a_taken_port_is_refused_before_it_builds(cache: Path, build: Build) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(ConfigError, match="choose another --port"):
            shown("--demo", "--port", str(other.getsockname()[1]))
    assert not build.calls


@contextlib.contextmanager
def opened(folder: Path, cache: Path) -> Iterator[tuple[str, str]]:
    """Yield the address and the words of a `genenv view --demo` in this folder."""
    log = cache.parent / "view.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "flows.cli.app", "view", "--demo", "--port", "0"],
            cwd=folder, env=environment(GENENV_CACHE_DIR=str(cache)),
            stdout=out, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        until(lambda: "Ctrl-C ends it" in log.read_text() or process.poll() is not None, 600)
        text = log.read_text()
        yield re.findall(r"http://\S+/", text)[-1], text
    finally:
        process.terminate()
        process.wait(60)
    assert "Traceback" not in log.read_text()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_demo_is_built_opened_and_says_a_gain(tmp_path: Path) -> None:
    folder, cache = tmp_path / "work", tmp_path / "cache"
    folder.mkdir()
    with opened(folder, cache) as (address, text):
        assert "building the demo" in text and f"epoch {demo.EPOCHS}" in text
        page = urllib.request.urlopen(f"{address}runs/{demo.RUN}", timeout=60).read().decode()
    (root,) = (one for one in (cache / "demo").iterdir() if one.is_dir())
    assert f"read-only over {root}" in text
    with open_tables(LocalStore(root, writable=False), [demo.RUN]) as connection:
        (row,) = query(connection, "SELECT gain, gain_low FROM outcomes").to_dicts()
    assert row["gain_low"] > 0
    assert f"+{row['gain']:.3f}" in page
    with opened(folder, cache) as (_, text):
        assert "building" not in text and "epoch" not in text
    assert not list(folder.iterdir())  # least of all ./genenv-data
