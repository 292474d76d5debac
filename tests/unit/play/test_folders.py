"""Certificates of the tasks in an exported folder.

Invariants: a folder gives the rows that its domain gives here; a file or a task that changed since
the export is named, and nothing of the folder runs then; its code runs in another process, without
genenv's, and can do no more than answer; what it does wrong is an error in words.
"""

from __future__ import annotations

import json
import py_compile
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner, Result

from flows.cli.app import app
from genenv_core.canonical import digest, file_sha256
from genenv_core.domains.desk import DeskDomain
from genenv_core.errors import ConfigError, DataError, DomainError, GenenvError, IntegrityError
from genenv_core.exchange.environments.playing import DRAFT
from genenv_core.exchange.environments.reading import read_folder
from genenv_core.play.checking.elsewhere.process import (
    ProcessEnded,
    ProcessTooLong,
    asked_process,
)
from genenv_core.play.checking.sets import certified, compared, rows_of
from tests.mutations import mutation
from tests.unit.exchange.test_environments import PACKAGE, given_away, with_config

FOLDER = "genenv_core/exchange/environments/reading.py"
ELSEWHERE = "genenv_core/play/checking/elsewhere/process.py"
CHILD = "genenv_core/play/checking/elsewhere/folder_child.py"
SERVING = "genenv_core/play/checking/elsewhere/serving.py"
TASKS = f"{PACKAGE}/tasks.jsonl"
JUDGE = f"{PACKAGE}/genenv_core/domains/desk/desk_domain.py"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = with_config({"name": "desk"})
    return given_away(tmp_path_factory.mktemp("exported"), "verifiers", run)[0]


@pytest.fixture
def given(exported: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(exported, tmp_path / "given"))


def command(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["certify", *map(str, words)])


def replaced(folder: Path, name: str, old: str, new: str) -> None:
    """Change a text in a file of the folder, once."""
    text = (folder / name).read_text(encoding="utf-8")
    assert old in text
    (folder / name).write_text(text.replace(old, new, 1), encoding="utf-8")


def restated(folder: Path) -> None:
    """Let the statement, and each passport, be of what the folder now holds."""
    texts = (folder / TASKS).read_text(encoding="utf-8").splitlines()
    lines = [json.loads(text) for text in texts]
    for line in lines:
        line["passport"]["digest"] = digest({name: line[name] for name in DRAFT})
    (folder / TASKS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    statement = json.loads((folder / "statement.json").read_text())
    for one in statement["subject"]:
        one["digest"]["sha256"] = file_sha256(folder / one["name"])
    (folder / "statement.json").write_text(json.dumps(statement))


def judging(folder: Path, line: str) -> None:
    """Let the folder's judge begin with this line."""
    replaced(
        folder,
        JUDGE,
        "        try:\n            expected = [",
        f"        {line}\n        try:\n            expected = [",
    )
    restated(folder)


@mutation("the tasks of a folder lose their tools", CHILD, '"tools": list(domain.tools)',
          '"tools": []')  # fmt: skip
def test_a_folder_gives_the_rows_that_its_domain_gives_here(given: Path, tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    done = command(given, "-o", file)
    assert done.exit_code == 0, done.output
    tasks = read_folder(given).tasks
    found = list(certified(DeskDomain(), tasks))
    whole = dict(compared(DeskDomain(), found))
    assert pl.read_parquet(file).to_dicts() == rows_of([whole[place] for place in range(6)])
    assert "certifies 6 tasks of domain desk, version 1, that pi_env wrote in run-a" in done.output
    assert "in another process, with your rights" in done.output
    assert "no flaw in 6 tasks" in done.output and "not checked" not in done.output
    assert not [name for name in sys.modules if name.startswith(PACKAGE)]


def changed(folder: Path) -> None:
    replaced(folder, TASKS, "6 tiles in stock", "7 tiles in stock")


def missing(folder: Path) -> None:
    (folder / "LICENSE").unlink()


def added(folder: Path) -> None:
    (folder / PACKAGE / "more.py").write_text("x = 1\n")


def linked(folder: Path) -> None:
    (folder / PACKAGE / "linked").symlink_to(folder.parent, target_is_directory=True)


def other_task(folder: Path) -> None:
    before = json.loads((folder / TASKS).read_text().splitlines()[0])["passport"]["digest"]
    changed(folder)
    restated(folder)
    after = json.loads((folder / TASKS).read_text().splitlines()[0])["passport"]["digest"]
    replaced(folder, TASKS, after, before)
    statement = json.loads((folder / "statement.json").read_text())
    for one in statement["subject"]:
        one["digest"]["sha256"] = file_sha256(folder / one["name"])
    (folder / "statement.json").write_text(json.dumps(statement))


@mutation("a changed file is taken for the one of the export", FOLDER,
          "elif file_sha256(path) != sha256:", "elif not sha256:")  # fmt: skip
@mutation("a folder may hold code that its statement does not name", FOLDER,
          "sorted(there - named.keys())]", "[]]")  # fmt: skip
@mutation("a link may hide code", FOLDER, "path.is_symlink() or not path.is_dir()",
          "not path.is_dir()")  # fmt: skip
@mutation("a task may be another one than its passport says", FOLDER,
          "if said != digest(task):", "if not said:")  # fmt: skip
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (changed, f"given is not what its statement.json says: {TASKS} was changed"),
        (missing, "LICENSE is missing"),
        (added, f"{PACKAGE}/more.py was added: get the folder anew"),
        (linked, f"{PACKAGE}/linked was added"),
        (other_task, f"{TASKS}, line 1: task e0001-t000000 is not the one that its passport is of"),
    ],
)
def test_what_changed_since_the_export_is_named_and_nothing_runs(
    given: Path, change: Callable[[Path], None], words: str
) -> None:
    change(given)
    done = command(given)
    assert isinstance(done.exception, IntegrityError) and done.exception.exit_status == 1
    assert words in str(done.exception) and not done.output


@pytest.mark.slow
def test_flaws_of_a_folder_end_the_command_with_status_1(given: Path, tmp_path: Path) -> None:
    month = time.time() + 30 * 86_400
    judging(given, f"import time; late = time.time() > {month} and draft.family == 'k2'")
    replaced(given, JUDGE, "        return judge(", "        return judge('' if late else ")
    restated(given)
    file = tmp_path / "rows.csv"
    done = command(given, "-o", file)
    assert isinstance(done.exception, GenenvError) and done.exception.exit_status == 1
    assert str(done.exception) == f"{given}: 2 of 6 tasks have a flaw, counted above"
    flawed = pl.read_csv(file).filter(~pl.col("passed"))
    assert flawed["flaw"].to_list() == ["depends_on_time"] * 2
    assert flawed["set"].unique().to_list() == ["generated"]


@mutation("what a folder prints is an answer", SERVING, "os.dup2(2, 1)", "os.dup2(1, 1)")
@pytest.mark.slow
def test_what_a_folder_prints_disturbs_nothing(given: Path) -> None:
    judging(given, "print('{}', flush=True)")
    assert command(given).exit_code == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "error", "words"),
    [
        ("import os; os._exit(3)", DomainError, "the folder's code ended its process: it said not"),
        ("raise SystemExit", GenenvError, "tasks have a flaw"),
    ],
)
def test_a_judge_that_ends_is_an_error_in_words(
    given: Path, line: str, error: type[GenenvError], words: str
) -> None:
    judging(given, line)
    done = command(given)
    assert isinstance(done.exception, error) and words in str(done.exception)


@mutation(
    "a folder may use genenv's own code", CHILD, "if foreign := sorted(", "if foreign := set("
)
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("import genenv_core.types", "the folder's code imports genenv_core of genenv itself"),
        ("import no_such_library", "No module named 'no_such_library': install what its pyproj"),
    ],
)
def test_code_that_does_not_run_by_itself_is_refused(given: Path, line: str, words: str) -> None:
    replaced(
        given,
        JUDGE,
        "from __future__ import annotations\n",
        f"from __future__ import annotations\n{line}\n",
    )
    restated(given)
    done = command(given)
    assert isinstance(done.exception, DataError) and words in str(done.exception)


@mutation("a compiled file of the folder is run", ELSEWHERE, '"PYTHONPYCACHEPREFIX": empty', "")
@pytest.mark.slow
def test_compiled_files_of_a_folder_are_not_run(given: Path) -> None:
    source = given / JUDGE
    true = source.read_text(encoding="utf-8")
    judging(given, "raise ValueError")
    py_compile.compile(str(source), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    source.write_text(true, encoding="utf-8")
    restated(given)
    assert list(source.parent.glob(f"__pycache__/{source.stem}.*.pyc"))
    assert command(given).exit_code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["no/such"], "there is no folder no/such"),
        (["."], "there is no statement.json in it: name a folder that genenv export wrote"),
        (["GIVEN", "--tasks", "3"], "--tasks does nothing with the folder"),
        (["GIVEN", "--set", "epochs=1"], "--set does nothing with the folder"),
        (["GIVEN", "--epochs", "3"], "--epochs 3 works with --run alone"),
        (["GIVEN", "--run", "x"], "name a domain or a folder for its own tasks, or a run"),
    ],
)
def test_words_that_do_nothing_are_refused(exported: Path, words: list[str], said: str) -> None:
    done = command(*(str(exported) if word == "GIVEN" else word for word in words))
    assert isinstance(done.exception, ConfigError) and said in str(done.exception)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("statement.json", "[]", "is no JSON object"),
        ("statement.json", "{}", "no statement of `genenv export`"),
        ("statement.json", '{"subject": [], "predicate": {"run": "x"}}', "names no PACKAGE/tasks"),
    ],
)
def test_a_folder_of_another_layout_is_refused(
    given: Path, name: str, text: str, said: str
) -> None:
    (given / name).write_text(text)
    with pytest.raises(DataError, match=said):
        read_folder(given)


def test_a_line_that_is_no_task_is_named(given: Path) -> None:
    replaced(given, TASKS, '"difficulty": 2.0', '"difficulty": "hard"')
    restated(given)
    with pytest.raises(DataError, match=r"line 1: a task's difficulty is 'hard': make it a finite"):
        read_folder(given)


@mutation("nobody ends a process whose time is over", ELSEWHERE, "            timer.start()",
          "            pass")  # fmt: skip
def test_a_process_has_a_limit_and_its_last_words() -> None:
    waits = [sys.executable, "-c", "import sys, threading; threading.Event().wait(60)"]
    with asked_process(waits, "it", limit_s=0.1) as ask, pytest.raises(ProcessTooLong):
        ask("about")
    ends = [sys.executable, "-c", "import sys; sys.exit('first\\nlast')"]
    with asked_process(ends, "it") as ask, pytest.raises(ProcessEnded) as ended:
        ask("about")
    assert str(ended.value) == "it ended its process: last"
    assert not isinstance(ended.value, ProcessTooLong)
