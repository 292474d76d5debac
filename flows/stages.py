"""The stage tasks by name."""

from __future__ import annotations

from importlib import import_module
from typing import Any, TypeGuard

from genenv_core.config.stages import STAGES
from tasks.placement.task import StageTask


def _task(name: str) -> StageTask[Any]:
    """Return the stage task of the module `tasks.NAME`."""
    module: dict[str, Any] = vars(import_module(f"tasks.{name}"))
    return next(value for value in module.values() if _is_task(value))


def _is_task(value: object) -> TypeGuard[StageTask[Any]]:
    return isinstance(value, StageTask)


TASKS = {name: _task(name) for name in STAGES}
