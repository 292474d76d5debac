"""Makes a process kill itself, or its group, at the n-th operation of a kind."""

from __future__ import annotations

import functools
import multiprocessing
import multiprocessing.forkserver
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.storm import points
from tests.storm.points import Plan

MLFLOW_CALLS = (
    "create_experiment",
    "create_run",
    "update_run",
    "log_param",
    "log_batch",
    "create_registered_model",
    "create_model_version",
    "set_registered_model_alias",
    "set_terminated",
)
CHANGES = ("CREATE", "ALTER", "DROP", "INSERT", "UPDATE", "DELETE")


class Bomb:
    """Counts the operations of one process, and kills at the planned one."""

    def __init__(self, plan: Plan, leader: int) -> None:
        """Follow a plan in the process `leader` or in one of its workers."""
        self._plan, self._leader = plan, leader
        self._count = 0
        self._lock = threading.Lock()

    def before(self, kind: str) -> bool:
        """Count an operation and kill if it is due; returns whether it is the planned one."""
        if self._plan.census:
            handle = os.open(Path(self._plan.census) / kind, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.write(handle, b".")
            os.close(handle)
        if kind != self._plan.kind:
            return False
        with self._lock:
            self._count += 1
            if self._count != self._plan.number:
                return False
        if not self._plan.after:
            self.kill()
        return True

    def kill(self) -> None:
        """Send the planned signal to its target; a worker is this process itself."""
        if self._plan.whom == "tree":
            os.killpg(self._leader, self._plan.signal)
        else:
            whom = self._leader if self._plan.whom == "parent" else os.getpid()
            os.kill(whom, self._plan.signal)
        if self._plan.signal == signal.SIGKILL:
            threading.Event().wait()  # it takes a moment to arrive

    def wrap(self, owner: Any, name: str, kind_of: Callable[..., str | None]) -> None:
        """Count each call of a function as an operation, whose kind follows from its arguments."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            kind = kind_of(*args, **kwargs)
            due = kind is not None and self.before(kind)
            result = original(*args, **kwargs)
            if due:
                self.kill()
            return result

        setattr(owner, name, wrapped)


def prepare(plan: Plan) -> None:
    """Arm this process, and the training workers that it starts from the fork server."""
    from genenv_core.training.processes import workers

    os.setpgid(0, 0)
    leader = os.getpid()
    server = multiprocessing.forkserver._forkserver
    server.ensure_running = lambda: None  # it is the parent's, which this process cannot wait for
    workers.get_context = lambda _: multiprocessing.get_context("forkserver")
    workers._start = functools.partial(start_worker, plan, leader)
    _arm(Bomb(plan, leader))


def start_worker(plan: Plan, leader: int, *arguments: Any) -> None:
    """Put a training worker into its parent's process group, arm it and start it."""
    from transformers import Trainer

    from genenv_core.storage import files
    from genenv_core.training.loop import checkpoints
    from genenv_core.training.processes import workers

    os.setpgid(0, leader)
    bomb = Bomb(plan, leader)
    bomb.wrap(Trainer, "training_step", lambda *_: points.STEP)
    keeper = checkpoints.CheckpointKeeper
    bomb.wrap(keeper, "on_step_end", lambda *_, **__: points.STEP_END)
    sealing = ((keeper, "on_save"), (keeper, "_delete_all_but"))
    for owner, name in (*sealing, (checkpoints, "sync"), (files, "sync")):
        bomb.wrap(owner, name, lambda *_, **__: points.SEAL)
    workers._start(*arguments)


def _arm(bomb: Bomb) -> None:
    """Count the operations of the command's own process."""
    from mlflow import MlflowClient
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    from genenv_core.storage.records.artifacts import Artifacts, ArtifactWriter
    from genenv_core.storage.store.local import LocalStore

    stores: list[Any] = [LocalStore]
    if "AWS_ENDPOINT_URL" in os.environ:  # a run on a bucket, then
        from genenv_core.storage.store.s3.store import S3Store

        stores.append(S3Store)
    methods = {method for method, _ in points.STORE.values()}
    for method in sorted(methods):
        path_at = 1 if method == "adopt" else 0

        def kind_of(_: Any, *args: Any, method: str = method, path_at: int = path_at) -> str | None:
            kinds = (
                kind
                for kind, (name, start) in points.STORE.items()
                if name == method and args[path_at].startswith(start)
            )
            return next(kinds, None)

        for store in stores:
            bomb.wrap(store, method, kind_of)
    bomb.wrap(LocalStore, "_link", lambda *_: points.LINK)
    bomb.wrap(Artifacts, "checkpoint", lambda *_: points.LAYOUT)
    bomb.wrap(
        ArtifactWriter,
        "table",
        lambda _, table, rows: points.APPEND if table in ("d_train", "d_env") else None,
    )
    for name in MLFLOW_CALLS:
        bomb.wrap(MlflowClient, name, lambda *_, **__: points.MLFLOW)

    def statement(*args: Any) -> None:
        if args[2].lstrip().upper().startswith(CHANGES) and bomb.before(points.MLFLOW_SQL):
            bomb.kill()

    event.listen(Engine, "before_cursor_execute", statement)
