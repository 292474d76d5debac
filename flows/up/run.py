"""Starts everything in order, watches it, and stops everything in order."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Generator
from types import FrameType

from flows.deploy.deployments import ensure_automation, ensure_work_pool, register
from flows.running.blank import NAME, lay
from flows.running.children import ChildProcess
from flows.running.previous import OneUp, known
from flows.up import databases
from flows.up.mlflow_server import UPGRADE_VARIABLE
from flows.up.services import (
    Settings,
    environment,
    healthy,
    job_variables,
    mlflow_command,
    mlflow_environment,
    require_free,
    server_command,
    server_environment,
    view_command,
    worker_answers,
    worker_command,
    worker_environment,
)
from genenv_core.errors import GenenvError

START_S = 300.0
"""How long a process may take to answer; on an idle machine each takes 5 to 20 s."""

RUNS_GRACE_S = 40.0
"""How long the worker's runs may take to reach a point where they can continue."""

GRACE_S = 10.0
WORKER = "worker"
WATCH_S = 0.5

Say = Callable[[str], None]


class StopSignal(BaseException):
    """Ctrl-C, SIGTERM or SIGHUP has come."""


def up(settings: Settings, *, upgrade: bool, say: Say) -> None:
    """Run until Ctrl-C or SIGTERM; raises GenenvError when a process cannot start or ends."""
    settings.logs.mkdir(parents=True, exist_ok=True)
    one = OneUp(settings.root)
    try:
        require_free(settings.port, "the Prefect server", "--port")
        require_free(settings.mlflow_port, "MLflow", "--mlflow-port")
        require_free(settings.view_port, "the view", "--view-port")
        old_mlflow = _check_databases(settings, upgrade=upgrade, say=say)
        _run(settings, one, old_mlflow=old_mlflow, say=say)
    finally:
        one.release()


def _run(settings: Settings, one: OneUp, *, old_mlflow: bool, say: Say) -> None:
    children: list[ChildProcess] = []
    with _stoppable():
        try:
            _start(settings, one, children, old_mlflow=old_mlflow, say=say)
            _announce(settings, say)
            _watch(children)
        except StopSignal:
            say("stopping: active runs end where Retry can continue them, in up to 40 s")
            say("a second Ctrl-C ends them at once")
        finally:
            _stop(children)
    say("stopped")


def _start(
    settings: Settings, one: OneUp, children: list[ChildProcess], *, old_mlflow: bool, say: Say
) -> None:
    def start(name: str, command: list[str], environment: dict[str, str]) -> ChildProcess:
        log = settings.logs / f"{name.lower().replace(' ', '-')}.log"
        children.append(ChildProcess(name, command, environment, log))
        notes = [known(child.name, child.pid) for child in children]
        one.note(settings.url, settings.mlflow_url, notes, view_url=settings.view_url)
        return children[-1]

    from prefect.settings import PREFECT_API_URL, temporary_settings

    upgrading = {UPGRADE_VARIABLE: "1"} if old_mlflow else {}
    if not settings.database_url:
        lay(settings.prefect_home)
    server = start("Prefect server", server_command(settings), server_environment(settings))
    mlflow = start("MLflow", mlflow_command(settings), mlflow_environment(settings) | upgrading)
    view = start("view", view_command(settings), environment(settings))
    say("starting: Prefect server, MLflow, view")
    _wait(server, children, lambda: healthy(f"{settings.url}/api"))
    with temporary_settings({PREFECT_API_URL: f"{settings.url}/api"}):
        ensure_work_pool(settings.work_pool, limit=settings.limit)
        names = register(settings.work_pool, variables=job_variables())
        ensure_automation()
    say(f"deployments: {', '.join(name.split('/')[1] for name in names)}")
    worker = start(WORKER, worker_command(settings), worker_environment(settings))
    _wait(worker, children, lambda: worker_answers(settings))
    _wait(mlflow, children, lambda: healthy(settings.mlflow_url))
    _wait(view, children, lambda: healthy(settings.view_url))


def _wait(child: ChildProcess, children: list[ChildProcess], answers: Callable[[], bool]) -> None:
    """Return once a child answers; raises GenenvError when it, or another, does not."""
    deadline = time.monotonic() + START_S
    while not answers():
        _require_alive(children)
        if time.monotonic() > deadline:
            raise GenenvError(
                f"{child.name} (pid {child.pid}) did not answer in {START_S:.0f} s: "
                f"{child.reason()}"
            )
        time.sleep(WATCH_S)


def _watch(children: list[ChildProcess]) -> None:
    while True:
        _require_alive(children)
        time.sleep(WATCH_S)


def _require_alive(children: list[ChildProcess]) -> None:
    for child in children:
        if child.status is not None:
            raise GenenvError(
                f"{child.name} has ended with status {child.status}: {child.reason()}; the others "
                "are stopped, the same command starts them again"
            )


def _stop(children: list[ChildProcess]) -> None:
    """Stop the worker's runs, which report to the server; then the rest, the server last."""
    try:
        for child in reversed(children):
            if child.name == WORKER:
                child.end_children(RUNS_GRACE_S)
            child.stop(GRACE_S)
    except StopSignal:  # a second Ctrl-C
        for child in reversed(children):
            child.kill()


def _announce(settings: Settings, say: Say) -> None:
    lines = (
        f"Prefect    {settings.url}   deployments: {settings.url}/deployments",
        f"MLflow     {settings.mlflow_url}",
        f"view       {settings.view_url}   runs, tasks, traces and what they made",
        f"root       {settings.root}",
        f"logs       {settings.logs}",
        f"API        export PREFECT_API_URL={settings.url}/api   (`genenv run` finds it by itself)",
        f"stop       Ctrl-C, or kill {os.getpid()}",
    )
    say("\n".join(("ready", *lines)))


def _check_databases(settings: Settings, *, upgrade: bool, say: Say) -> bool:
    """Refuse databases that do not fit; return whether MLflow's needs the upgrade."""
    if settings.database_url:
        prefect = databases.postgresql(settings.database_url)
    else:
        tool, folder = databases.PREFECT_MIGRATIONS
        path = settings.prefect_home / NAME
        prefect = databases.sqlite("Prefect", path, (tool, f"{folder}/sqlite"))
    mlflow = databases.sqlite("MLflow", settings.mlflow_database, databases.MLFLOW_MIGRATIONS)
    for database in (prefect, mlflow):
        if line := databases.check(database, upgrade=upgrade):
            say(line)
    return mlflow.state() == "older"


@contextlib.contextmanager
def _stoppable() -> Generator[None]:
    """Raise StopSignal in this thread on Ctrl-C, on SIGTERM, and when the terminal closes."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        raise StopSignal

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
