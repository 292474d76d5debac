"""Answers many queries over the same runs by one confined process.

A process of its own for each query (`sandbox.ask`) takes most of a second to start. A page that
asks several things at once needs the same confinement without that. The tables are those of the
moment when the session began; whoever wants newer ones begins another.
"""

# pyarrow has no stubs.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import pyarrow as pa

from genenv_core.errors import QueryError
from genenv_core.storage.sql.catalog import RunSource, frame_of
from genenv_core.storage.sql.frames import SESSION, read_frame, write_frame
from genenv_core.storage.sql.sandbox import (
    COMMAND,
    KILLED,
    Answer,
    Limits,
    environment,
    opening_of,
    too_long,
    why_not,
)

USUAL = Limits()

OPENING_S = 120.0
"""Most seconds that the process may take to start and open the tables."""

_ENDING_S = 5.0


def _attended() -> subprocess.Popen[bytes]:
    """Return a new process, started by a thread that lives as long as it does.

    The kernel ends the process when the thread that started it ends. A server's threads come and
    go, so any of them could take the process with it.
    """
    begun: Future[subprocess.Popen[bytes]] = Future()

    def attend() -> None:
        try:
            begun.set_result(_begun())
        except BaseException as error:
            begun.set_exception(error)
        else:
            begun.result().wait()

    threading.Thread(target=attend, name="sql-session", daemon=True).start()
    return begun.result()


def _begun() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*COMMAND, SESSION],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=environment(),
        start_new_session=True,
    )


class SqlSession:
    """One confined process with the tables of some runs; safe for threads, one query at a time."""

    def __init__(self, sources: Sequence[RunSource], limits: Limits = USUAL) -> None:
        """Start the process and open the tables; raises QueryError."""
        self._limits = limits
        self._lock = threading.Lock()
        opening = {**opening_of(sources, limits.memory), "timeout_s": None}
        self._process = _attended()
        try:
            said = self._exchange(json.dumps(opening).encode(), frames=1, seconds=OPENING_S)[0]
            self._raise_for(said, "")
        except BaseException:
            self.close()
            raise

    def ask(self, sql: str) -> Answer:
        """Return the answer to one SELECT-like statement; raises QueryError.

        A query that takes too long ends the process, as nothing else stops DuckDB for sure.
        """
        question = json.dumps({"sql": sql, "rows": self._limits.rows}).encode()
        with self._lock:
            said, rows = self._exchange(question, frames=2, seconds=self._limits.seconds)
        header = self._raise_for(said, sql)
        with pa.ipc.open_stream(rows) as reader:
            return Answer(frame_of(reader.read_all()), bool(header["truncated"]))

    @property
    def alive(self) -> bool:
        """Whether the process can answer."""
        return self._process.poll() is None

    def retire(self) -> None:
        """End the process after its last question; returns at once."""

        def end() -> None:
            with self._lock:
                self.close()

        threading.Thread(target=end, name="retired-session", daemon=True).start()

    def close(self) -> None:
        """End the process, whatever it does."""
        process = self._process
        for pipe in (process.stdin, process.stdout):
            if pipe:
                with contextlib.suppress(OSError):
                    pipe.close()
        process.kill()
        process.wait(_ENDING_S)

    def _exchange(self, question: bytes, frames: int, seconds: float | None) -> list[bytes]:
        """Send a question and return so many frames; raises QueryError."""
        questions, answers = self._process.stdin, self._process.stdout
        assert questions and answers
        late = threading.Event()

        def end() -> None:
            late.set()
            self._process.kill()

        timer = threading.Timer(seconds or threading.TIMEOUT_MAX, end)
        timer.daemon = True
        timer.start()
        try:
            write_frame(questions, question)
            found = [read_frame(answers) for _ in range(frames)]
        except (OSError, ValueError):
            found = [None]
        finally:
            timer.cancel()
        if late.is_set():
            self._process.wait(_ENDING_S)
            raise too_long(self._limits)
        whole = [frame for frame in found if frame is not None]
        if len(whole) < frames:
            raise self._ended()
        return whole

    def _ended(self) -> QueryError:
        """Wait until the process has ended, so that `alive` is right, and return why it has."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_ENDING_S)
        status = self._process.returncode
        if status in KILLED:
            return why_not({"memory": True}, "", self._limits)
        return QueryError(f"the process that answers ended with status {status}: ask again")

    def _raise_for(self, said: bytes, sql: str) -> dict[str, Any]:
        header: dict[str, Any] = json.loads(said)
        if "truncated" not in header:
            raise why_not(header, sql, self._limits)
        return header
