"""A stage that loses its lease while its process is stopped, and then continues.

Trainer checkpoints are in tests/unit/training/test_training_two.py.

Invariants: two processes that sample the same shards at the same moment, or one after the other's
commit, end on one output, bit for bit that of an undisturbed stage, in the same run; `genenv
verify` finds no damage in the files of the late one.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from flows.planner import planned_stage
from flows.preparing import prepare
from genenv_core.storage import paths
from genenv_core.storage.records.manifest import ArtifactRef
from genenv_core.storage.store.leases import Leases
from genenv_core.storage.store.local import LocalStore
from genenv_core.storage.upkeep.copying import copy_run
from genenv_core.storage.upkeep.verify import verify
from tasks import rollout
from tasks.stage import execution
from tasks.stage.progress import listening
from tasks.stage.shards import Shards
from tests.pipeline.builders import manifests, run, tiny
from tests.waiting import BOUND_S

pytestmark = pytest.mark.slow


class Stopped:
    """A rollout stage whose holder sends no heartbeat, and a second process that takes over."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Complete a run, then delete the output of its rollout."""
        self.config = tiny(root, epochs=1, run_id="lost")
        run(self.config)
        self.store = LocalStore(root)
        self.undisturbed = manifests(self.config)[(1, "rollout")]
        self.store.delete(paths.manifest("rollout", self.undisturbed.key))
        self.store.delete_folder("shards")
        for part in self.undisturbed.parts:
            self.store.delete(part.path)
        self.planned = planned_stage(prepare(self.config), "rollout", 1)
        assert self.planned.status == "miss"
        # No lease beats within a test; a waiter takes over after a moment.
        self.leases = {True: Leases(self.store, ttl_s=1e6), False: Leases(self.store, ttl_s=0.5)}
        self.thread = threading.local()
        self.begun = threading.Event()
        monkeypatch.setattr(execution, "leases_of", lambda _: self.leases[self.is_first])

    @property
    def is_first(self) -> bool:
        return self.thread.first

    def compute(self, first: bool) -> tuple[ArtifactRef, bool]:
        """Return the stage's output; the second process starts after the first has begun."""
        self.thread.first = first
        assert first or self.begun.wait(BOUND_S)
        given = self.config, 1, self.planned.inputs
        return execution.run_stage(rollout.STAGE, rollout.compute, *given)

    def both(self) -> None:
        """Let both processes compute the stage, and assert that they end on one output."""
        with listening(lambda event: None), ThreadPoolExecutor(2) as threads:
            ends = [threads.submit(self.compute, first) for first in (True, False)]
            assert [end.result(timeout=BOUND_S)[1] for end in ends] == [False, False]
            digests = {end.result()[0].digest for end in ends}
        assert digests == {self.undisturbed.digest}
        assert manifests(self.config)[(1, "rollout")] == self.undisturbed
        assert verify(self.store).damaged == []
        assert self.store.list("leases") == []


@pytest.fixture
def stopped(api: None, tiny_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stopped:
    run(tiny(tiny_root, epochs=1, run_id="lost"))
    root = tmp_path / "root"
    copy_run(LocalStore(tiny_root), LocalStore(root), "lost")  # and nothing of other tests
    return Stopped(root, monkeypatch)


def test_two_processes_sample_the_same_shards(stopped: Stopped, monkeypatch: pytest.MonkeyPatch):
    original, together = rollout.attempt, threading.Barrier(2, timeout=BOUND_S)
    attempted: list[tuple[bool, int]] = []

    def attempt(
        sampling: Any, tasks: Any, shards: dict[int, range], *rest: Any, **more: Any
    ) -> Any:
        stopped.begun.set()
        together.wait()
        attempted.extend((stopped.is_first, number) for number in shards)
        made = list(original(sampling, tasks, shards, *rest, **more))
        together.wait()  # both have their rows, and neither a record
        return made

    monkeypatch.setattr(rollout, "attempt", attempt)
    stopped.both()
    shards = {number for _, number in attempted}
    assert len(shards) > 1
    assert sorted(attempted) == sorted((who, n) for who in (True, False) for n in shards)


def test_one_process_continues_after_the_other_has_committed(
    stopped: Stopped, monkeypatch: pytest.MonkeyPatch
):
    original, committed = Shards.finish, threading.Event()
    written: list[tuple[bool, int]] = []

    def finish(shards: Shards, number: int, tables: Any) -> None:
        if stopped.is_first and number == 1:  # stopped between its rows and their record
            stopped.begun.set()
            assert committed.wait(BOUND_S)
        written.append((stopped.is_first, number))
        original(shards, number, tables)

    def compute(context: Any) -> Any:
        facts = whole(context)
        if not stopped.is_first:
            context.out.commit(facts)
            committed.set()
        return facts

    whole = rollout.compute
    monkeypatch.setattr(Shards, "finish", finish)
    monkeypatch.setattr(rollout, "compute", compute)
    stopped.both()
    taken = {number for first, number in written if first}
    assert 0 in taken and (False, 0) not in written  # what was finished is not sampled again
    assert {number for _, number in written} - {0} <= {n for first, n in written if not first}
