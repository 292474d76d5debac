"""Reads an exported folder, and says whether it is what its statement says.

The statement is not signed. It shows what changed since the export; who made the folder it does
not show.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genenv_core.bundle.statement import STATEMENT
from genenv_core.canonical import digest, file_sha256
from genenv_core.errors import ConfigError, DataError, IntegrityError
from genenv_core.exchange.environments.playing import ABOUT, DRAFT, TASKS
from genenv_core.machine.json_files import json_object
from genenv_core.play.checking.elsewhere.taskset import taskset_module
from genenv_core.play.checking.sets import SetTask
from genenv_core.play.checking.shapes import StopChecking, check_fields
from genenv_core.types import JsonObject, TaskDraft

GENERATED = "generated"
"""The set of all tasks of a folder: pi_env wrote them."""

COMPILED = "__pycache__"
"""Folders that the statement need not name: genenv runs nothing in them."""

NAMED = 3
"""Files that an error names."""


@dataclass(frozen=True, slots=True)
class GivenFolder:
    """An exported folder whose files are those that its statement names."""

    place: Path
    package: str
    run: str
    files: int
    tasks: tuple[SetTask, ...]


def taskset_of(folder: Path) -> str | None:
    """Return the module of a folder with a taskset of verifiers, None for an exported folder.

    Raises ConfigError for a folder that is neither, DataError where several modules have a taskset.
    """
    if (folder / STATEMENT).is_file():
        return None
    if module := taskset_module(folder):
        return module
    raise ConfigError(
        f"{folder} holds neither an exported task set nor a taskset of verifiers: there is no "
        f"{STATEMENT} in it: name a folder that genenv export wrote for others' programs, one with "
        "a taskset of verifiers, or a domain by its name or as my_domain.py:Units"
    )


def read_folder(folder: Path) -> GivenFolder:
    """Return a folder with its tasks, without running any of its code.

    Raises IntegrityError where a file is not what the statement says, and where a task is not what
    its passport says. Raises DataError for a folder of another layout, and for a line that is no
    task.
    """
    statement = _json(folder / STATEMENT)
    try:
        named = {one["name"]: one["digest"]["sha256"] for one in statement["subject"]}
        run = str(statement["predicate"]["run"])
    except (KeyError, TypeError) as error:
        raise DataError(
            f"{folder / STATEMENT}: no statement of `genenv export`: {error!r} is missing"
        ) from error
    package = _package(folder, named)
    _check_files(folder, package, named)
    return GivenFolder(folder, package, run, len(named), tuple(_tasks(folder / package / TASKS)))


def _json(path: Path) -> JsonObject:
    try:
        return json_object(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise DataError(f"{path} {error}: get the folder anew from who made it") from error


def _package(folder: Path, named: dict[str, str]) -> str:
    """Return the package of a folder: the one that holds the tasks and says how they are played."""
    for name in sorted(named):
        package, _, file = name.partition("/")
        if file == TASKS and package.isidentifier() and f"{package}/{ABOUT}" in named:
            return package
    raise DataError(
        f"{folder}: its statement names no PACKAGE/{TASKS} beside a PACKAGE/{ABOUT}: certify takes "
        "a folder that `genenv export` wrote for others' programs"
    )


def _check_files(folder: Path, package: str, named: dict[str, str]) -> None:
    """Raise IntegrityError for a file that changed, is missing, or lies in the package unnamed."""
    wrong: list[str] = []
    for name, sha256 in named.items():
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()) or not path.is_file():
            wrong.append(f"{name} is missing")
        elif file_sha256(path) != sha256:
            wrong.append(f"{name} was changed")
    there = {
        path.relative_to(folder).as_posix()
        for path in (folder / package).rglob("*")
        # A link to a folder would hide what lies in it.
        if path.is_symlink() or not path.is_dir()
    }
    there = {name for name in there if COMPILED not in name.split("/")}
    wrong += [f"{name} was added" for name in sorted(there - named.keys())]
    if wrong:
        more = f" and {len(wrong) - NAMED} more" if len(wrong) > NAMED else ""
        raise IntegrityError(
            f"{folder} is not what its {STATEMENT} says: {', '.join(wrong[:NAMED])}{more}: get the "
            "folder anew from who made it; nothing in it was run"
        )


def _tasks(path: Path) -> Iterator[SetTask]:
    try:
        lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is no UTF-8: {error}") from error
    for number, line in enumerate(lines, start=1):
        where = f"{path}, line {number}"
        try:
            one: Any = json.loads(line)
            task = {name: one[name] for name in DRAFT}
            said, task_id = one["passport"]["digest"], one["task_id"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError(f"{where}: no task with a passport: {error!r}") from error
        draft = TaskDraft(**task)
        try:
            check_fields("task", draft)
        except StopChecking as stop:
            raise DataError(f"{where}: {stop.fault.found}: {stop.fault.remedy}") from stop
        if said != digest(task):
            raise IntegrityError(
                f"{where}: task {task_id} is not the one that its passport is of: its digest is "
                f"{digest(task)}, in the passport {said}"
            )
        yield SetTask(GENERATED, draft)
