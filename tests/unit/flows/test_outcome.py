"""Why a command ended where Prefect raised, and a server that dies under a run.

Invariants: an error of a stage wins over that of its report; a full disk below the server's
database, a server that has ended and one that does not answer are one line with what to do; errors
that are not Prefect's pass; a server that dies is started again on its port, and given up, with its
signal, when it keeps dying; one that dies while it starts says how.
"""

from __future__ import annotations

import shutil
from collections import namedtuple
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from prefect.client.base import PrefectHttpxSyncClient
from prefect.exceptions import PrefectHTTPStatusError

from flows.running import local_server
from flows.running.local_server import RESTARTS, LocalServer
from flows.running.outcome import ending, explained
from genenv_core.errors import GenenvError, MachineError, StageError
from genenv_core.machine.shortage import DISK
from schemas.enums import StageState
from tasks.stage.progress import Event, emit, listening
from tests.mutations import mutation

OUTCOME = "flows/running/outcome.py"
SERVER = "flows/running/local_server.py"
URL = "http://127.0.0.1:9/api"


@dataclass
class Running:
    home: Path
    url: str = URL
    death: str = ""


def refused() -> Exception:
    """Return the error of a request that the server's database could not write, as recorded."""
    answer = httpx.Response(500, request=httpx.Request("POST", f"{URL}/flows/"))
    said = (
        f"Server error '500 Internal Server Error' for url '{URL}/flows/'\n"
        "Response: {'exception_message': 'Internal Server Error'}\n"
        "For more information check: https://developer.mozilla.org/en-US/docs/Web/HTTP/Status/500"
    )
    return PrefectHTTPStatusError(said, request=answer.request, response=answer)


def disk(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9 - free, free))


def said(server: Running | None, error: Exception, *before: Event) -> Exception:
    """Return what a block raises in which these events come, and then the error."""
    with pytest.raises(Exception) as raised, explained(server):
        for event in before:
            emit(event)
        raise error
    return raised.value


FAILED = Event("failed", "rollout", 3, StageState.FAILED, message="no such tool")


@mutation("the error of a report wins over that of a stage", OUTCOME,
          "    for event in failed:\n", "    for event in []:\n")  # fmt: skip
def test_the_error_of_a_stage_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk(monkeypatch, 0)
    told = said(Running(tmp_path), refused(), FAILED)
    assert isinstance(told, StageError) and str(told) == "stage rollout of epoch 3: no such tool"
    again = Event("finished", "rollout", 3, StageState.COMPUTED)  # at a second attempt
    assert isinstance(said(Running(tmp_path), refused(), FAILED, again), MachineError)


def test_the_error_that_a_report_came_from_wins(tmp_path: Path) -> None:
    report = refused()
    report.__context__ = StageError("stage score of epoch 1: torn")
    assert str(said(Running(tmp_path), report)) == "stage score of epoch 1: torn"


@mutation("a full disk below a server is not looked for", OUTCOME,
          "what := full(server.home)", 'what := ""')  # fmt: skip
@mutation("the line of a full disk ends in Prefect's words", OUTCOME,
          'failed: {what}"', 'failed: {what} ({text})"')  # fmt: skip
def test_a_full_disk_below_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk(monkeypatch, 600_000)
    told = said(Running(tmp_path), refused())
    where = f"(0.6 MB are free in {tmp_path})"
    assert str(told) == f"the Prefect server of this run failed: {DISK} {where}"
    disk(monkeypatch, 10**9)
    error = refused()
    assert said(Running(tmp_path), error) is error  # nothing is known of its cause


def test_errors_that_are_not_prefects_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk(monkeypatch, 0)
    for error in (ValueError("x"), GenenvError("y")):
        assert said(Running(tmp_path, death="it has ended"), error, FAILED) is error


def test_a_server_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk(monkeypatch, 10**9)
    away = httpx.ConnectError("[Errno 111] Connection refused")
    told = str(said(Running(tmp_path, death="the server ended: killed"), away))
    assert told == "the server ended: killed: the same command continues the run"
    monkeypatch.setenv("PREFECT_API_URL", "http://prefect.corp/api")
    assert "the Prefect API at http://prefect.corp/api does not answer" in str(said(None, away))


def test_how_a_process_ended() -> None:
    assert ending(3) == "it ended with exit status 3"
    assert "signal 9 (SIGKILL; the kernel does so when memory runs out)" in ending(-9)
    assert ending(-15) == "it was killed by signal 15 (SIGTERM)"


class Process:
    """A server that ends at once with this status."""

    made: list[list[str]]
    status = -9
    stdin = None

    def __init__(self, command: list[str], **_: Any) -> None:
        Process.made.append(command)

    def wait(self, timeout: float | None = None) -> int:
        return self.status

    poll = wait


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalServer:
    disk(monkeypatch, 10**9)
    Process.made = []
    monkeypatch.setattr(local_server.subprocess, "Popen", Process)
    return LocalServer(tmp_path)


@mutation("a server that dies is not started again", SERVER,
          "if deaths <= RESTARTS:", "if False:")  # fmt: skip
def test_a_server_that_dies_is_started_again_on_its_port(server: LocalServer) -> None:
    events: list[Event] = []
    with listening(events.append):
        server._watch()
    assert len(Process.made) == 1 + RESTARTS
    assert len({tuple(command) for command in Process.made}) == 1
    lines = [event.message for event in events if event.kind == "server"]
    assert lines[:-1] == [f"the Prefect server has ended ({ending(-9)}) and is started again"] * 3
    assert lines[-1] == server.death == f"the Prefect server of this run has ended: {ending(-9)}"


@mutation("a server that was stopped is started again", SERVER,
          "                if self._stopping:\n                    return\n", "")  # fmt: skip
def test_a_server_that_is_stopped_stays_so(server: LocalServer) -> None:
    server.stop()
    server._watch()
    assert len(Process.made) == 1 and server.death == ""


@mutation("a server that dies while it starts says nothing of its end", SERVER,
          "{full(self.home) or ending(status)}; ", "")  # fmt: skip
def test_a_server_that_dies_while_it_starts(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(GenenvError, match=r"did not start: it was killed by signal 9 \(SIGKILL"):
        server.wait()
    disk(monkeypatch, 600_000)
    with pytest.raises(GenenvError, match=rf"did not start: {DISK} \(0.6 MB are free"):
        server.wait()


@mutation("a new client does not wait for a server", SERVER,
          "        kind._has_connected = always\n", "        pass\n")  # fmt: skip
def test_each_client_waits_for_a_server_that_is_started_again() -> None:
    def waits() -> bool:
        client: Any = PrefectHttpxSyncClient()
        return client._has_connected

    before = waits()  # as after another test's server, which may still be there
    with local_server._patient():
        with local_server._patient():
            assert waits()
        assert waits()  # a block inside of another one takes nothing from it
    assert waits() is before
