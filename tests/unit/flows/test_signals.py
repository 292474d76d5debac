"""Signals that end a run where it can be continued.

Invariants: SIGTERM and SIGHUP raise once, each under its own name and exit status; `nohup` keeps
its meaning; a terminal that is closed breaks nothing that is written on the way to the end; a
signal whose exception Python drops ends the work all the same.
"""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flows.cli import app as cli
from flows.running import signals
from flows.running.signals import Terminated, heed_ends, supervise
from tests.mutations import mutation
from tests.waiting import BOUND_S

SIGNALS = "flows/running/signals.py"
ENDS = [signal.SIGTERM, signal.SIGHUP]


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in ENDS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    signals._came = None  # pyright: ignore[reportPrivateUsage]


@mutation("a closed terminal kills a run", SIGNALS,
    "        signal.signal(signal.SIGHUP, _on_end)\n", "        pass\n",
          by="[SIGHUP]")  # fmt: skip
@mutation("each signal is called SIGTERM", SIGNALS,
          "self.number = signal.Signals(number)", "self.number = signal.SIGTERM",
          by="[SIGHUP]")  # fmt: skip
@pytest.mark.parametrize("number", ENDS, ids=lambda number: number.name)
def test_a_signal_ends_a_command_once_with_its_own_status(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    signal.signal(signal.SIGHUP, lambda *_: None)  # so that a missing handler kills no test
    said: list[int] = []

    def command(**_: object) -> None:
        heed_ends()
        try:
            os.kill(os.getpid(), number)
        finally:
            for later in ENDS:  # while the work runs to where it can be continued
                os.kill(os.getpid(), later)

    monkeypatch.setattr(cli, "app", command)
    monkeypatch.setattr(os, "_exit", said.append)
    with pytest.raises(SystemExit):
        cli.main()
    assert said == [128 + number]
    assert f"stopped by {number.name}: the same command continues" in capsys.readouterr().err


@mutation("nohup keeps no run", SIGNALS,
          "if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:", "if True:")  # fmt: skip
def test_nohup_keeps_a_run() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    heed_ends()
    os.kill(os.getpid(), signal.SIGHUP)
    with pytest.raises(Terminated):
        os.kill(os.getpid(), signal.SIGTERM)


class Finalized:
    """Its finalizer is what runs when the signal comes."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


@mutation("a signal that comes in a finalizer is lost", SIGNALS,
          "            if _came is not None:\n", "            if False:\n")  # fmt: skip
@mutation("work goes on after a signal of another name than its caller's", SIGNALS,
          "    except (soft, Terminated):\n", "    except soft:\n",
          by="[TimeoutError]")  # fmt: skip
@pytest.mark.parametrize("soft", [Terminated, TimeoutError], ids=lambda soft: soft.__name__)
def test_a_signal_that_comes_in_a_finalizer_ends_the_work(
    soft: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python runs finalizers anywhere, and drops what is raised in one."""
    heed_ends()
    dropped: list[object] = []
    over, wait = threading.Event(), signals.wait

    def interrupted(*given: Any, **named: Any) -> Any:
        monkeypatch.setattr(signals, "wait", wait)
        Finalized()
        return wait(*given, **named)

    monkeypatch.setattr(sys, "unraisablehook", lambda one: dropped.append(one.exc_type))
    monkeypatch.setattr(signals, "wait", interrupted)
    monkeypatch.setattr(signals, "_end", lambda *_, **__: over.set())
    with pytest.raises(Terminated):
        supervise(lambda: over.wait(5), soft)
    assert dropped == [Terminated] and over.is_set()


CLOSED = """
import signal, sys, time
from pathlib import Path
from flows.running.signals import Terminated, heed_ends
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
try:
    heed_ends()
    print("ready", file=sys.stderr, flush=True)
    time.sleep(600)
except Terminated as end:
    print("a shard is finished", flush=True)
    Path(sys.argv[1]).write_text(end.number.name)
"""


@mutation("a run writes to a terminal that is closed", SIGNALS,
          "                discard(one)\n", "                pass\n")  # fmt: skip
def test_the_terminal_that_is_closed_breaks_no_end(tmp_path: Path) -> None:
    above, below = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", CLOSED, str(tmp_path / "end")],
        stdin=below,
        stdout=below,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    os.close(below)
    assert child.stderr is not None and child.stderr.readline() == b"ready\n"
    os.close(above)
    child.send_signal(signal.SIGHUP)
    _, error = child.communicate(timeout=BOUND_S)
    assert (tmp_path / "end").read_text(encoding="utf-8") == "SIGHUP", error
