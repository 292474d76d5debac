"""What `.ci/run` plays: the table of slow suites fits the tree, and a failure is played again once.

Invariants: every file with a slow test is in one suite, and every suite has one; a path of the tree
asks for what its row says and a path that nobody named for all; a change to the table or to CI asks
for all; changes are counted for each suite from the commit on which it passed, and it passes
whatever becomes of the others; only a served suite is played again, once, and says so.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.proof.changes import (
    PASSED,
    PROVEN,
    REPOSITORY,
    asking,
    changed,
    commits,
    note,
    present,
    renew,
)
from tests.proof.playing import FAILED, Played, play, play_again, play_beside, proven
from tests.proof.table import (
    ALL,
    ASKED_BY,
    BEGUN_FIRST,
    BY_HAND,
    SUITES,
    Suite,
    asked,
    in_turn,
    named,
    suite_of,
)

SIMULATIONS = "tests/unit/algorithm/test_reward.py"
SANDBOX = "tests/unit/schemas/test_views.py"
BOTH_PASS = ["simulations", "sandbox"]

CASES = {
    "genenv_core/benchmarks/bfcl/turns/play.py": {"bfcl", "domains", "measuring"},
    "genenv_core/benchmarks/alfworld/pool.py": {"alfworld"},
    "genenv_core/benchmarks/bfcl/training/rows.py": {"domains", "alfworld"},
    "genenv_core/algorithm/reward.py": {"simulations", "domains", "commands"},
    "genenv_core/storage/sql/sandbox.py": {"sandbox", "storage", "pages", "s3", "view"},
    "genenv_core/exchange/gguf.py": {"smollm2"},
    "genenv_core/exchange/examples/runs.py": {"files", "updates"},
    "genenv_core/training/processes/workers.py": {
        "updates",
        "benches",
        "crashes",
        "smollm2",
        "domains",
    },
    "genenv_core/epoch/warm_starting.py": {"domains", "commands", "updates", "smollm2"},
    "genenv_core/training/sft/trainer.py": {"updates", "benches", "crashes", "smollm2"},
    "flows/view/pages/trace.py": {"pages", "view"},
    "tests/infra/test_up.py": {"up"},
    "tests/infra/test_browser.py": {"form"},
    "tests/unit/algorithm/test_reward.py": {"simulations"},
    "docs/method.md": set[str](),
    PROVEN: set[str](),
    "tests/proof/table.py": set(ALL),
    ".ci/run": set(ALL),
    "Makefile": set(ALL),
    "nobody/knows/this.py": set(ALL),
}


@pytest.mark.parametrize(("path", "suites"), CASES.items(), ids=list(CASES))
def test_a_path_asks_for_its_suites(path: str, suites: set[str]) -> None:
    assert set(asked([path])) == suites


def test_every_path_of_the_tree_has_a_row() -> None:
    assert [path for path in present() if not named(path)] == []


def test_every_row_has_paths_and_every_suite_is_asked_for_by_the_product() -> None:
    paths = present()
    empty = [row for row, _ in ASKED_BY if not any(path.startswith(row) for path in paths)]
    assert empty == []
    product = [path for path in paths if path.startswith(("flows/", "tasks/", "genenv_core/"))]
    plain = {name for row, names in ASKED_BY if names != ALL for name in names}
    assert set(asked(product)) == plain == set(ALL)


def marks_slow(path: Path) -> bool:
    """Return whether a file says `slow`, or `some` of tests/examples.py, which does."""
    text = path.read_text(encoding="utf-8")
    if "slow" not in text and "tests.examples" not in text:
        return False
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Attribute(attr="slow"):
                return True
            case ast.ImportFrom(module="tests.examples", names=names):
                if "some" in [one.name for one in names]:
                    return True
    return False


def test_every_slow_test_is_in_one_suite_and_every_suite_has_some() -> None:
    slow = [
        path
        for path in present()
        if re.search(r"(^|/)test_\w+\.py$", path)
        and marks_slow(REPOSITORY / path)
        and not path.startswith(BY_HAND)
    ]
    homes = {path: suite_of(path) for path in slow}
    assert [path for path, name in homes.items() if name is None] == []
    assert set(homes.values()) == {suite.name for suite in SUITES}
    files = [file for suite in SUITES for file in suite.files(REPOSITORY)]
    assert len(files) == len(set(files))
    assert set(slow) <= set(files)


@pytest.fixture
def git(tmp_path: Path) -> Callable[..., str]:
    """A repository in `tmp_path`; calls git there and returns what it says."""

    def call(*arguments: str) -> str:
        name = ("-c", "user.name=a", "-c", "user.email=a@b")
        command = ["git", *name, *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    call("init", "-q")
    return call


def test_what_changed_is_counted_from_a_commit(tmp_path: Path, git: Callable[..., str]) -> None:
    for file in ("kept", "edited", "moved"):
        (tmp_path / file).write_text(file * 20)
    git("add", "-A")
    git("commit", "-qm", "proven")
    commit = git("rev-parse", "HEAD")
    git("mv", "moved", "moved-on")
    git("add", "-A")
    git("commit", "-qm", "later")
    (tmp_path / "edited").write_text("not committed")
    (tmp_path / "new").touch()
    assert changed(commit, tmp_path) == ["edited", "moved", "moved-on", "new"]
    assert changed("", tmp_path) is None
    assert changed("0" * 40, tmp_path) is None  # a commit that is not here


def test_each_suite_counts_from_the_commit_on_which_it_passed(
    tmp_path: Path, git: Callable[..., str]
) -> None:
    """One that failed keeps its commit, and what touched it since asks for it again."""

    def commit(file: str) -> str:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("x")
        git("add", "-A")
        git("commit", "-qm", file)
        return git("rev-parse", "HEAD")

    (tmp_path / ".gitignore").write_text(".ci/out/\n")
    first = commit("docs/a.md")
    assert asking(tmp_path) == {name: ("", [PROVEN]) for name in ALL}
    note(tmp_path / PROVEN, dict.fromkeys(ALL, first))
    page = "flows/view/pages/run.py"
    second = commit(page)
    assert {name for name, (_, who) in asking(tmp_path).items() if who} == {"pages", "view"}
    passed = {"pages": second, "form": "0" * 40, "view": "", "gone": second}
    note(tmp_path / PASSED, passed)
    assert commits(tmp_path / PASSED) == {"pages": second, "form": "0" * 40}
    assert renew(tmp_path) == {"pages": second}
    assert asking(tmp_path)["pages"] == (second, [])
    assert asking(tmp_path)["view"] == (first, [page])
    assert asking(tmp_path)["form"] == (first, [])


def test_a_line_that_is_no_suite_and_its_commit_is_refused(tmp_path: Path) -> None:
    (tmp_path / "PROVEN").write_text("pages 1a2b\n3c4d\n")
    with pytest.raises(ValueError, match=r"PROVEN, line 2: not a suite and its commit: '3c4d'"):
        commits(tmp_path / "PROVEN")


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({}, BOTH_PASS),
        ({"status": FAILED, "failed": (f"{SANDBOX}::a",)}, ["simulations"]),
        ({"status": FAILED, "failed": (f"{SANDBOX}::a",), "flaky": (f"{SANDBOX}::a",)}, BOTH_PASS),
        ({"status": FAILED}, []),
        ({"status": 2}, []),
        ({"skipped": frozenset({f"{SANDBOX}::a", f"{SANDBOX}::b"})}, ["simulations"]),
    ],
    ids=["all", "one failed", "flaky", "failed without a test", "not played", "skipped"],
)
def test_a_suite_passes_whatever_becomes_of_the_others(
    change: dict[str, Any], names: list[str]
) -> None:
    times = Counter({f"{SIMULATIONS}::a": 1.0, f"{SANDBOX}::a": 1.0, f"{SANDBOX}::b": 1.0})
    played = replace(Played(0, 1.0, by_test=times), **change)
    suites = [suite for suite in SUITES if suite.name in ("simulations", "sandbox", "pages")]
    assert proven(suites, played) == names


FIRST_TIME = """
import pathlib, pytest as p
seen = pathlib.Path(__file__).with_suffix(".seen")
@p.mark.slow
def test_fails_the_first_time():
    first = not seen.exists()
    seen.touch()
    assert not first
@p.mark.slow
def test_passes():
    pass
"""
ALWAYS = "import pytest as p\n@p.mark.slow\ndef test_fails():\n    assert False\n"


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pytest load no plugins of others, which take it two seconds."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def written(tmp_path: Path, text: str) -> str:
    (tmp_path / "test_written.py").write_text(text)
    return "test_written.py"


def test_files_whose_tests_take_long_are_begun_first(tmp_path: Path) -> None:
    assert all((REPOSITORY / path).exists() for path in BEGUN_FIRST)
    given = ["tests/unit/a.py", "tests/pipeline/b.py", "tests/unit/c.py", BEGUN_FIRST[0]]
    assert in_turn(given) == [BEGUN_FIRST[0], "tests/pipeline/b.py", given[0], given[2]]

    passes = "import pytest as p\n@p.mark.slow\n@p.mark.parametrize('i', range({}))\n"
    for name, tests in (("test_one.py", 1), ("test_many.py", 3)):
        (tmp_path / name).write_text(passes.format(tests) + "def test_passes(i):\n    pass\n")
    played = play(["test_one.py", "test_many.py"], workers=1, root=tmp_path)
    assert played.passed and list(played.tests.items()) == [("test_one.py", 1), ("test_many.py", 3)]


@pytest.mark.usefixtures("bare")
def test_a_served_test_that_passes_the_second_time_is_flaky(tmp_path: Path) -> None:
    (tmp_path / "setup.py").touch()  # pytest takes the folder of one for its root
    (tmp_path / "below").mkdir()
    played = play([written(tmp_path / "below", FIRST_TIME)], root=tmp_path / "below")
    assert not played.passed
    play_again(played, root=tmp_path / "below")
    assert played.passed
    assert played.flaky == ("test_written.py::test_fails_the_first_time",)
    assert sum(played.tests.values()) == len(played.by_test) == 2 and played.busy > 0


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("text", [ALWAYS, "import nothing_of_this_name\n", ""])
def test_what_fails_twice_or_cannot_be_played_has_failed(text: str, tmp_path: Path) -> None:
    played = play([written(tmp_path, text)], root=tmp_path)
    play_again(played, root=tmp_path)
    assert (played.passed, played.flaky) == (False, ())


@pytest.mark.usefixtures("bare")
def test_served_suites_play_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Two suites, each of which waits for the other."""
    for own, other in (("one", "two"), ("two", "one")):
        (tmp_path / "tests" / own).mkdir(parents=True)
        (tmp_path / "tests" / own / f"test_{own}.py").write_text(BESIDE.format(own, other))
    monkeypatch.setattr("tests.proof.table.SUITES", BOTH)
    played = dict(play_beside(BOTH, 2, root=tmp_path))
    assert [one.passed for one in played.values()] == [True, True]
    said = capfd.readouterr().out
    assert said.count("1 passed") == 2 and "== one\n" in said and "== two\n" in said


BESIDE = """
import pathlib, pytest as p
from tests.waiting import until
here = pathlib.Path(__file__).parents[1]
@p.mark.slow
def test_waits():
    (here / "{}.seen").touch()
    until((here / "{}.seen").exists)
"""
BOTH = (Suite("one", ("one",)), Suite("two", ("two",)))
