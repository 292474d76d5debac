"""A run with code of one's own in a relative file, continued from another folder.

Invariants: its record has the folder it was started in, and its configuration the text as it was
given; it goes on there where the file is not here; a file that is here is taken from here; a file
that is in neither place is named with both.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from genenv_core.config.load import resolve
from genenv_core.errors import ConfigError
from genenv_core.storage.records.runs import RunInfo, RunLog
from genenv_core.storage.store.local import LocalStore
from tasks.upkeep.opening import open_run
from tasks.upkeep.started_in import go_where_started, relative_files
from tests.mutations import mutation

STARTED = "tasks/upkeep/started_in.py"
EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "sums.py"


@pytest.fixture(name="info")
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunInfo:
    """Return the record of a run that was started in `there`; the current folder is `here`."""
    for name in ("there", "here"):
        (tmp_path / name).mkdir()
    shutil.copy(EXAMPLE, tmp_path / "there" / _file(tmp_path))
    monkeypatch.chdir(tmp_path / "there")
    overrides = [f"domain.name=./{_file(tmp_path)}:Sums"]
    open_run(resolve("tiny", overrides=overrides, fields={"root": "../root", "run_id": "mine"}), {})
    monkeypatch.chdir(tmp_path / "here")
    return RunLog(LocalStore(tmp_path / "root"), "mine").info()


def _file(folder: Path) -> str:
    """Return the name of the file with the domain: Python keeps a module of each name."""
    return f"own_{folder.name}.py"


@mutation(
    "the folder of a run is not noted", "tasks/upkeep/opening.py",
    "os.getcwd() if relative_files(values) else \"\"", "\"\"",
)  # fmt: skip
@mutation("a run does not go where it was started", STARTED, "    os.chdir(there)\n", "    pass\n")
def test_it_goes_on_where_it_was_started(info: RunInfo, tmp_path: Path) -> None:
    assert info.config["domain"]["name"] == f"./{_file(tmp_path)}:Sums"
    go_where_started(info)
    assert Path.cwd() == tmp_path / "there"


@mutation("a file that is here is left aside", STARTED, "if not os.path.isfile(file)]", "]")
def test_a_file_that_is_here_is_taken_from_here(info: RunInfo, tmp_path: Path) -> None:
    Path(_file(tmp_path)).write_text("", encoding="utf-8")
    go_where_started(info)
    assert Path.cwd() == tmp_path / "here"


def test_a_file_that_is_nowhere_is_named_with_both_places(info: RunInfo, tmp_path: Path) -> None:
    (tmp_path / "there" / _file(tmp_path)).unlink()
    with pytest.raises(ConfigError) as refused:
        go_where_started(info)
    for place in ("here", "there"):
        assert str(tmp_path / place / _file(tmp_path)) in str(refused.value)
    assert f"run mine needs ./{_file(tmp_path)}" in str(refused.value)
    assert Path.cwd() == tmp_path / "here"


def test_an_older_record_has_no_folder(info: RunInfo, tmp_path: Path) -> None:
    go_where_started(info.model_copy(update={"folder": ""}))
    assert Path.cwd() == tmp_path / "here"


@mutation("domains of a list are not looked at", STARTED, "for part in listed)", "for part in [])")
def test_files_of_domains_and_of_the_algorithm_are_found() -> None:
    parts = [{"name": "a.py:A"}, {"name": "desk"}, {"name": "/b.py:B"}, {"name": "package.c:C"}]
    config = {
        "domain": {"name": "several", "options": {"parts": parts}},
        "agent_update": {"algorithm": "sub/d.py:D"},
    }
    assert relative_files(config) == ["a.py", "sub/d.py"]
    assert relative_files({"domain": {"name": "desk"}}) == []


def test_a_run_without_code_of_its_own_notes_no_folder(tmp_path: Path) -> None:
    open_run(resolve("tiny", fields={"root": str(tmp_path), "run_id": "plain"}), {})
    assert RunLog(LocalStore(tmp_path), "plain").info().folder == ""
