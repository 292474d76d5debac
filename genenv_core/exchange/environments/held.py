"""Task sets in folders as domains of a configuration, so that a model can attempt their tasks.

A stage makes its domain several times. So this process starts a folder's own process once, at the
first question, and ends it at its own end.
"""

from __future__ import annotations

import atexit
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

from genenv_core.bundle.statement import STATEMENT
from genenv_core.canonical import file_sha256
from genenv_core.errors import ConfigError
from genenv_core.exchange.environments.reading import read_folder
from genenv_core.play.checking.elsewhere.folder import FolderDomain, begun, folder_process
from genenv_core.play.checking.elsewhere.process import AskedProcess
from genenv_core.play.checking.elsewhere.taskset import TasksetDomain, taskset_domain
from genenv_core.play.checking.sets import SetTask

_running = ExitStack()
atexit.register(_running.close)


class HeldFolder(FolderDomain):
    """The domain of an exported folder, with the folder's tasks.

    `domain.options` names the folder. Raises DataError and IntegrityError as `read_folder` does.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Read the folder, and start its process unless it runs."""
        self._folder = _folder(options)
        statement = self._folder / STATEMENT
        self.files: Sequence[Path] = (statement,)
        self._given = read_folder(self._folder)
        begun(_playing(self._folder, self._given.package, file_sha256(statement)), self._take)

    def _take(self, ask: AskedProcess) -> None:
        super().__init__(ask)

    def held_tasks(self) -> Sequence[SetTask]:
        """Return the folder's tasks."""
        return self._given.tasks


class HeldTaskset(TasksetDomain):
    """The domain of a taskset of verifiers, with its tasks.

    `domain.options` names the folder and the module. Raises as `taskset_domain` does.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Start the taskset's process unless it runs."""
        folder, module = _folder(options), str(options.get("module"))
        self.files: Sequence[Path] = tuple(sorted(folder.rglob("*.py")))
        own = _taskset(folder, module, tuple(map(file_sha256, self.files)))
        super().__init__(own.ask, own.name, own.size, own.version)

    def held_tasks(self) -> Sequence[SetTask]:
        """Return the taskset's tasks."""
        return self.tasks()


def _folder(options: Mapping[str, Any]) -> Path:
    given = options.get("folder")
    if not isinstance(given, str) or not Path(given).is_dir():
        raise ConfigError(f"domain.options.folder is {given!r}: name the folder of a task set")
    return Path(given)


@cache
def _playing(folder: Path, package: str, sha256: str) -> AskedProcess:
    return _running.enter_context(folder_process(folder, package))


@cache
def _taskset(folder: Path, module: str, sha256: tuple[str, ...]) -> TasksetDomain:
    return _running.enter_context(taskset_domain(folder, module))
