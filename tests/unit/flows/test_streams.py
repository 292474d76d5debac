"""Commands whose standard streams are closed, full, or of few letters, as real processes.

Invariants: a closed pipe ends a command quietly with status 141; a full disk is one line and status
1; a stream closed from the start changes nothing; an ASCII terminal gets question marks; what a
command says about its failure and its status stay.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.builders_root import small_root

COMMANDS = {
    "help": ["--help"],
    "schema": ["sql", "--schema"],
    "status": ["status"],
    "json": ["status", "--json"],
    "rows": ["sql", "--format", "csv", "FROM epochs"],
    "table": ["sql", "FROM epochs"],
    "verify": ["verify"],
    "light": ["config", "validate", "tiny"],
}
FAILING = {"sql": ["sql", "nonsense"], "light": ["config", "validate", "nowhere"]}
"""Commands of status 2; what is light starts in a third of the time and has no child."""

CLOSED = [">&-", ">&- 2>&-", ">&- 2>&- <&-", "2>&- >/dev/null", "<&-"]
LOST = [">&-", "2>/dev/full", "2>&-", ">&- 2>&-", "| :"]


def some(every: Iterable[Any], quick: Collection[Any]) -> list[Any]:
    """Return parameters of a test, of which all but the quick ones are slow."""
    return [one if one in quick else pytest.param(one, marks=pytest.mark.slow) for one in every]


@pytest.fixture(name="root", scope="module")
def a_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a small root."""
    return small_root(tmp_path_factory.mktemp("streams") / "root").root


def genenv(command: list[str], root: Path, redirect: str = "", **env: str) -> tuple[int, str, str]:
    """Return status, output and errors of a command under a shell that redirects its streams."""
    words = [sys.executable, "-m", "flows.cli.app", *command]
    done = subprocess.run(
        ["bash", "-c", f'"$@" {redirect}; exit "${{PIPESTATUS[0]}}"', "bash", *words],
        env={**os.environ, "GENENV_ROOT": str(root), "PYTHONPATH": os.getcwd(), **env},
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.mark.parametrize("name", some(COMMANDS, ("help", "status", "rows", "light")))
def test_a_closed_pipe_ends_quietly(name: str, root: Path) -> None:
    assert genenv(COMMANDS[name], root, "| :") == (141, "", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("name", some(["help", "rows", "table"], ("help", "rows")))
def test_a_full_device_is_one_line(name: str, root: Path) -> None:
    status, _, said = genenv(COMMANDS[name], root, ">/dev/full")
    assert (status, said) == (1, "genenv: standard output: No space left on device\n")


@pytest.mark.parametrize("redirect", some(CLOSED, (">&- 2>&- <&-",)))
def test_closed_streams_change_nothing_for_a_command_with_a_child(
    redirect: str, root: Path
) -> None:
    status, _, said = genenv(COMMANDS["rows"], root, redirect)
    assert (status, said) == (0, "")


@pytest.mark.parametrize("redirect", CLOSED)
def test_closed_streams_change_nothing(redirect: str, root: Path) -> None:
    status, _, said = genenv(COMMANDS["light"], root, redirect)
    assert (status, said) == (0, "")


@pytest.mark.parametrize("redirect", some(LOST, (">&- 2>&-",)))
def test_a_failure_of_a_command_with_a_child_keeps_its_status(redirect: str, root: Path) -> None:
    assert genenv(FAILING["sql"], root, redirect)[0] == 2


@pytest.mark.parametrize("redirect", LOST)
def test_a_failure_keeps_its_status(redirect: str, root: Path) -> None:
    assert genenv(FAILING["light"], root, redirect)[0] == 2


def test_an_ascii_terminal_gets_question_marks(root: Path) -> None:
    ascii_ = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    status, out, said = genenv(["sql", "SELECT 'é\n' AS a, '€' AS b"], root, **ascii_)
    assert (status, said) == (0, "")
    assert out.split() == ["a", "b", "??", "?", "1", "row"]
    status, out, said = genenv(["sql", "FROM nöwhere"], root, **ascii_)
    assert status == 2
    assert "n\\xf6where" in said


def test_a_query_that_is_no_utf8_is_refused(root: Path, tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_bytes(b"SELECT '\xff'")
    for query in (["-"], ["--file", str(tmp_path / "q.sql")]):
        status, _, said = genenv(["sql", *query], root, f"< {tmp_path / 'q.sql'}")
        assert status == 2
        assert "is no UTF-8" in said
