"""Configurations from before fields moved.

Invariants: a record of an older genenv is read as the configuration that it was, compares equal
with a record of today, and names the same run; what a person writes under an old name is refused in
one line with the new name and the value.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from genenv_core.bundle.statement import facts_of, make_statement
from genenv_core.config.branching import BranchPoint, branch_name
from genenv_core.config.comparison import Comparison, planned_runs
from genenv_core.config.load import as_recorded, dump, overridden, resolve, run_name
from genenv_core.config.moved import ONE_CLASS, as_now
from genenv_core.errors import ConfigError
from tests.mutations import mutation
from tests.unit.bundle.builders import small_contents

MOVED = "genenv_core/config/moved.py"
NEW = "data.offline_file is now teacher.file: write teacher.file=x in place of it"
POINT = BranchPoint(run_id="r", epoch=1)

FILE = {"file": "x"}
ENDPOINT = {"url": "http://host:8000/v1", "model_name": "big"}
MODEL = {"model": "./big"}


def recorded(teacher: dict[str, str]) -> dict[str, Any]:
    """Return what genenv recorded of a run while one class had the fields of all teachers."""
    values = dump(
        resolve("tiny", fields={"arm": "offline" if teacher else "genenv"} | taught(teacher))
    )
    named = {name: value for name, value in teacher.items() if name != "file"}
    data = {**values["data"], "offline_file": teacher.get("file")}
    return {**values, "data": data, "teacher": {**ONE_CLASS, **named}}


def taught(teacher: dict[str, str]) -> dict[str, Any]:
    return {"teacher": teacher} if teacher else {}


@mutation(
    "a recorded file of tasks is forgotten", MOVED,
    "found[section] = {**own, name: value}", "found[section] = own",
)  # fmt: skip
@pytest.mark.parametrize(
    ("teacher", "run", "branch"),
    [
        ({}, "tiny-genenv-s0-33ac56", "r-at1-cfce4e"),
        (FILE, "tiny-offline-s0-eb1453", "r-at1-a52c58"),
        (ENDPOINT, "tiny-offline-s0-c42b1c", "r-at1-57f684"),
        (MODEL, "tiny-offline-s0-1086b2", "r-at1-c3fb55"),
    ],
)
def test_an_older_record_is_the_run_that_it_was(
    teacher: dict[str, str], run: str, branch: str
) -> None:
    old = recorded(teacher)
    config = as_recorded(old, "r")
    now = dump(config)
    assert {name: one for name, one in now["teacher"].items() if one} == teacher
    assert as_now(old) == as_now(now) == now != old
    # As genenv 0.2.0 named them.
    assert (run_name(config, "tiny"), branch_name(config, POINT)) == (run, branch)


@mutation(
    "a change on top of an older record is lost", MOVED,
    "if own.get(name) is None:", "if True:",
)  # fmt: skip
def test_a_change_on_top_of_an_older_record_says_the_new_name() -> None:
    config = overridden(recorded(FILE), "bundle", overrides=["teacher.file=here"])
    assert dump(config)["teacher"] == {"file": "here"}


@mutation(
    "an old name is taken in silence", MOVED,
    'raise ConfigError(f"{old} is now', 'print(f"{old} is now',
)  # fmt: skip
def test_an_old_name_is_refused_with_the_new_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        resolve("tiny", overrides=["arm=offline", "data.offline_file=x"])
    assert str(refused.value) == f"--set 'data.offline_file=x': {NEW}"
    for text in ("data: {offline_file: x}", "preset: tiny\ndata.offline_file: x"):
        path = tmp_path / "own.yaml"
        path.write_text(text)
        with pytest.raises(ConfigError) as refused:
            resolve(str(path))
        assert str(refused.value) == f"{path}: {NEW}"
    arms = {"genenv": None, "file": {"arm": "offline", "data": {"offline_file": "x"}}}
    comparison = Comparison.model_validate({"base": "tiny", "arms": arms, "seeds": [0]})
    with pytest.raises(ConfigError) as refused:
        planned_runs(comparison)
    assert str(refused.value) == f"arm file, seed 0: {NEW}"


def test_a_file_that_an_older_genenv_wrote_without_a_teacher_is_read(tmp_path: Path) -> None:
    # `genenv config show tiny > own.yaml` wrote every field, and null for those without a value.
    path = tmp_path / "own.yaml"
    path.write_text("preset: tiny\ndata: {offline_file: null}\nteacher: {model: null, request: {}}")
    assert resolve(str(path)) == resolve("tiny")


@mutation(
    "a bundle of before names its file of tasks by a field that is gone",
    "genenv_core/bundle/statement.py",
    'MOVED.get(str(one["name"]), str(one["name"]))', 'str(one["name"])',
)  # fmt: skip
def test_a_bundle_of_before_names_its_file_of_tasks_as_now(tmp_path: Path) -> None:
    held = small_contents(tmp_path)
    held.facts.given["data.offline_file"] = "a" * 64
    statement = make_statement(held.facts, held.config, held.stages, held.files)
    assert facts_of(statement).given == {"teacher.file": "a" * 64}
