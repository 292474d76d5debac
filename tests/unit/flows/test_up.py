"""The checks of `genenv up` before it starts anything, and how it ends its processes.

Invariants: a taken port, another `genenv up`, processes left behind by a killed one, and databases
of another version or of another tool are each refused with the cause and the remedy; an older
database is upgraded only on request, after a copy; no password is shown; a child is stopped with
all its descendants, and no other process.
"""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from flows.running.children import ChildProcess
from flows.running.previous import OneUp, known, live_api, read_note
from flows.up import databases
from flows.up.services import listener, require_free
from genenv_core.errors import ConfigError, GenenvError, StorageError
from tests.mutations import mutation
from tests.waiting import BOUND_S, until

PREFECT = ("prefect", "server/database/_migrations/versions/sqlite")


def database(path: Path, revision: str | None) -> Path:
    opened = sqlite3.connect(path)
    opened.execute("CREATE TABLE alembic_version (version_num TEXT)")
    if revision:
        opened.execute("INSERT INTO alembic_version VALUES (?)", (revision,))
    opened.execute("CREATE TABLE rows (n INTEGER)")
    opened.execute("INSERT INTO rows VALUES (7)")
    opened.commit()
    opened.close()
    return path


def last(migrations: tuple[str, str]) -> str:
    return next(name for name, more in databases._revisions(*migrations).items() if not more)


def before_last(migrations: tuple[str, str]) -> str:
    return next(name for name, more in databases._revisions(*migrations).items() if more)


@pytest.mark.parametrize("migrations", [PREFECT, databases.MLFLOW_MIGRATIONS])
def test_exactly_one_migration_is_the_last(migrations: tuple[str, str]):
    revisions = databases._revisions(*migrations)
    assert len(revisions) > 50
    assert [more for more in revisions.values()].count(0) == 1


def test_a_taken_port_is_reported_with_pid_and_command():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ConfigError) as refused:
            require_free(port, "MLflow", "--mlflow-port")
    for word in (f"port {port}", "MLflow", f"pid {os.getpid()}", "python", "--mlflow-port"):
        assert word in str(refused.value)
    require_free(port, "MLflow", "--mlflow-port")


@mutation(
    "a command is cut in the middle of a word", "flows/up/services.py",
    "shorten(command, 120, placeholder=' ...')", "command[:120]",
)  # fmt: skip
def test_a_long_command_is_cut_between_words(monkeypatch: pytest.MonkeyPatch):
    words = ["python", "-m", "x" * 80, "y" * 80]
    monkeypatch.setattr(psutil.Process, "cmdline", lambda _: words)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        assert listener(other.getsockname()[1]).endswith(f"(python -m {'x' * 80} ...)")


def test_a_new_and_a_current_database_need_no_upgrade(tmp_path: Path):
    new = databases.sqlite("Prefect", tmp_path / "none.db", PREFECT)
    (tmp_path / "empty.db").touch()
    empty = databases.sqlite("Prefect", tmp_path / "empty.db", PREFECT)
    current = databases.sqlite("Prefect", database(tmp_path / "p.db", last(PREFECT)), PREFECT)
    assert [d.state() for d in (new, empty, current)] == ["new", "new", "current"]
    assert [databases.check(d, upgrade=False) for d in (new, empty, current)] == ["", "", ""]
    assert not list(tmp_path.glob("*.bak"))


def test_an_older_database_is_upgraded_on_purpose_only_and_after_a_copy(tmp_path: Path):
    path = database(tmp_path / "p.db", before_last(PREFECT))
    older = databases.sqlite("Prefect", path, PREFECT)
    with pytest.raises(ConfigError, match=r"p\.db.*older.*genenv up --upgrade"):
        databases.check(older, upgrade=False)
    line = databases.check(older, upgrade=True)
    copy = Path(line.rpartition(" ")[2])
    assert copy.exists() and older.revision and older.revision in copy.name
    assert sqlite3.connect(copy).execute("SELECT n FROM rows").fetchall() == [(7,)]


def test_a_newer_database_is_refused_whatever_is_said(tmp_path: Path):
    path = database(tmp_path / "m.db", "ffffffffffff")
    newer = databases.sqlite("MLflow", path, databases.MLFLOW_MIGRATIONS)
    for upgrade in (False, True):
        with pytest.raises(ConfigError, match=r"m\.db.*ffffffffffff.*newer version"):
            databases.check(newer, upgrade=upgrade)


def test_a_file_that_is_no_database_or_of_another_tool_is_refused(tmp_path: Path):
    (tmp_path / "text.db").write_text("not a database, whatever its name says" * 10)
    with pytest.raises(StorageError, match=r"text\.db, cannot be read"):
        databases.sqlite("Prefect", tmp_path / "text.db", PREFECT)
    opened = sqlite3.connect(tmp_path / "mine.db")
    opened.execute("CREATE TABLE mine (n INTEGER)")
    opened.commit()
    opened.close()
    with pytest.raises(StorageError, match=r"mine\.db is no database of MLflow"):
        databases.sqlite("MLflow", tmp_path / "mine.db", databases.MLFLOW_MIGRATIONS)


def test_urls_of_databases():
    assert databases.connection_url(None) is None
    url = databases.connection_url("postgresql://me:secret@db:5432/prefect")
    assert url == "postgresql+asyncpg://me:secret@db:5432/prefect"
    assert databases.without_password(url) == "postgresql+asyncpg://me:***@db:5432/prefect"
    for wrong in ("mysql://me:secret@db/x", "db.sqlite", "postgresql://"):
        with pytest.raises(ConfigError) as refused:
            databases.connection_url(wrong)
        assert "secret" not in str(refused.value)
        assert "postgresql://user" in str(refused.value)


def test_a_postgresql_that_does_not_answer_is_one_line_without_the_password():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        with pytest.raises(StorageError) as refused:
            databases.postgresql(f"postgresql+asyncpg://me:secret@127.0.0.1:{port}/prefect")
    assert "me:***@127.0.0.1" in str(refused.value)
    assert "secret" not in str(refused.value)


def test_one_up_a_root(tmp_path: Path):
    first = OneUp(tmp_path)
    with pytest.raises(GenenvError, match="is starting on"):
        OneUp(tmp_path)
    first.note("http://127.0.0.1:9", "http://127.0.0.1:8", [])
    with pytest.raises(GenenvError, match=rf"already, pid {os.getpid()}, at http://127.0.0.1:9"):
        OneUp(tmp_path)
    assert live_api(tmp_path) is None  # noted, but nothing answers there
    first.release()
    assert read_note(tmp_path) is None
    OneUp(tmp_path).release()


def test_what_a_killed_up_left_behind_is_named_with_how_to_stop_it(tmp_path: Path):
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    one = OneUp(tmp_path)
    gone = known("worker", os.getpid()).model_copy(update={"pid": 1, "identity": "somebody else"})
    one.note("http://127.0.0.1:9", "http://127.0.0.1:8", [known("MLflow", left.pid), gone])
    one._lock.close()  # as the kernel does for a process that is killed
    try:
        with pytest.raises(GenenvError) as refused:
            OneUp(tmp_path)
        assert f"MLflow pid {left.pid}" in str(refused.value)
        assert f"kill {left.pid}`" in str(refused.value)
    finally:
        left.kill()
        left.wait()
    OneUp(tmp_path).release()


FAMILY = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {grandchild!r}], start_new_session=True)
print(child.pid, flush=True)
time.sleep(3600)
"""
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "print('ready', flush=True); time.sleep(3600)"
)


def grandchild(log: Path) -> psutil.Process:
    """Wait for the grandchild's signal handler; returns its process."""
    until(lambda: len(log.read_text().split()) == 2)
    return psutil.Process(next(int(word) for word in log.read_text().split() if word != "ready"))


@pytest.mark.slow
def test_a_stopped_child_takes_its_whole_family_along(tmp_path: Path):
    log = tmp_path / "log"
    code = FAMILY.format(grandchild=STUBBORN)
    child = ChildProcess("worker", [sys.executable, "-c", code], os.environ, log)
    below = grandchild(log)
    child.stop(grace_s=BOUND_S)
    assert child.status == -signal.SIGTERM
    below.wait(BOUND_S)
    assert not psutil.pid_exists(below.pid) or below.status() == psutil.STATUS_ZOMBIE


def test_runs_of_a_worker_are_asked_to_end_before_it(tmp_path: Path):
    log = tmp_path / "log"
    mark = tmp_path / "mark"
    polite = (
        "import pathlib, signal, sys, time\n"
        f"end = lambda *_: (pathlib.Path({str(mark)!r}).write_text('asked'), sys.exit(0))\n"
        "signal.signal(signal.SIGTERM, end)\nprint('ready', flush=True)\ntime.sleep(3600)"
    )
    code = FAMILY.format(grandchild=polite).replace("time.sleep(3600)\n", "child.wait()\n", 1)
    child = ChildProcess("worker", [sys.executable, "-c", code], os.environ, log)
    grandchild(log)
    child.end_children(grace_s=BOUND_S)
    child.stop(grace_s=BOUND_S)
    assert mark.read_text() == "asked"


def test_why_a_child_ended_is_the_line_that_says_most(tmp_path: Path):
    log = tmp_path / "log"
    log.write_text("OldError: of the time before\n")
    code = "import sys; print('fine'); sys.exit('ValueError: the reason') "
    child = ChildProcess("MLflow", [sys.executable, "-c", code], os.environ, log)
    child._process.wait(BOUND_S)
    assert child.reason() == f"ValueError: the reason (all of it: {log})"
