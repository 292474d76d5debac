"""How far an update is, while a training process computes it.

Invariants: nothing is reported before the training process has begun its file; then the steps done
of those planned and the loss, also those before a continuation, from which the rate counts; at its
end what it did; a run that is cancelled meanwhile leaves the update's own outcome as it is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from genenv_core.errors import Stopped
from genenv_core.training.warm_start.request import note_step
from tasks.policies import noted as reports
from tasks.policies import update as module
from tasks.policies.update import update
from tasks.stage.progress import Cancelled
from tests.mutations import mutation
from tests.waiting import BOUND_S, until

UPDATE = "tasks/policies/update.py"
NOTED = "tasks/policies/noted.py"


class Looked(type(Path())):
    """A path that counts how often somebody asks whether it exists."""

    looks = 0

    def exists(self, **how: Any) -> bool:
        Looked.looks += 1
        return super().exists(**how)


class Context:
    """A stage that notes its reports; an update waits for them with `seen`."""

    epoch = 1
    execution = SimpleNamespace(gradient_checkpointing="none", checkpoint_seconds=0.0)
    config = SimpleNamespace(compute=SimpleNamespace(threads=1))
    stage = SimpleNamespace(name="toy")

    def __init__(self, work: Path) -> None:
        self.work, self.told = work, list[tuple[int, int, str, str]]()
        self.out = SimpleNamespace(table=lambda *_: None, checkpoint=lambda *_: None)
        self.cancelled, self._news = False, threading.Condition()

    def checkpoint(self, ref: Any) -> Path:
        return self.work

    def seed_for(self, *parts: str) -> int:
        return 0

    def durable(self) -> Path:
        return self.work

    def progress(self, done: int, total: int, unit: str, *, part: str, message: str) -> None:
        with self._news:
            self.told.append((done, total, unit, message))
            self._news.notify_all()
        if self.cancelled:
            raise Cancelled

    def seen(self, done: int) -> None:
        """Wait for a report of so many steps."""
        with self._news:
            assert self._news.wait_for(lambda: any(t[0] == done for t in self.told), BOUND_S)


@pytest.fixture(name="play")
def an_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Generator[Callable[[Callable[[Context, Path], None]], Context]]:
    """Return a function that carries out an update of 6 units, which calls what it is given."""
    monkeypatch.setattr(reports, "SHOWN_S", 0.001)
    monkeypatch.setattr(Looked, "looks", 0)
    samples = pl.DataFrame({"row_id": list("abcdef")})
    rows = SimpleNamespace(samples=samples, learned=samples, training=samples)
    result = SimpleNamespace(
        checkpoint=tmp_path, resumed_at=0, action="updated", note="", steps=5, metrics={},
        micro_batch_rows=1,
    )  # fmt: skip
    context = Context(Looked(tmp_path))

    def asked(**fields: Any) -> Any:
        return SimpleNamespace(settings=SimpleNamespace(micro_batch_rows=1), **fields)

    def play(compute: Callable[[Context, Path], None]) -> Context:
        def computed(request: Any) -> Any:
            compute(context, request.noted)
            return result

        monkeypatch.setattr(module, "trainer", lambda: SimpleNamespace(update=computed))
        given: Any = (context, SimpleNamespace(name="env"), rows, asked, lambda units: 2 * units)
        update(*given, unit="rows", without_rows="")
        return context

    yield play
    assert not [thread for thread in threading.enumerate() if thread.name == reports.WATCHER]


@mutation(
    "an update that continues is first reported at 0", NOTED,
    "                if noted.exists():\n    ", "",
)  # fmt: skip
@mutation(
    "an update that ended early has steps left", UPDATE,
    "show_steps(context, asked.noted, None)", "show_steps(context, asked.noted, 12)",
)  # fmt: skip
def test_steps_and_loss_are_reported_from_where_the_update_begins(play: Any) -> None:
    def compute(context: Context, noted: Path) -> None:
        # Some looks before there is a file: a report would be of 0 steps.
        until(lambda: Looked.looks > 2 or bool(context.told))
        for _ in range(3):
            note_step(noted.with_suffix(".made"), 1.5)
        noted.with_suffix(".made").replace(noted)
        context.seen(3)
        for _ in range(2):
            note_step(noted, 4.0)

    told = play(compute).told
    assert told[0] == (3, 12, "steps", "loss 1.500") and told[-1] == (5, 5, "steps", "loss 2.500")
    assert {total for _, total, *_ in told[:-1]} == {12}


@mutation(
    "the watch of a cancelled update dies aloud", NOTED,
    "with suppress(Cancelled):", "with suppress():",
)  # fmt: skip
@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_cancelled_run_leaves_an_update_its_own_end(play: Any) -> None:
    def compute(context: Context, noted: Path) -> None:
        note_step(noted, 1.0)
        context.cancelled = True
        context.seen(1)
        raise Stopped("after step 1: the same command continues from there")

    with pytest.raises(Stopped, match="after step 1"):
        play(compute)
