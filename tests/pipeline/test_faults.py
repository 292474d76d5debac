"""Faults around a run: the disk, the clock, permissions, a missing part, an early end.

Lack of memory in a training step is in tests/unit/training/test_training_resume.py.

Invariants: each gives one line that names the place and the remedy; nothing finished is lost; once
the fault is gone, the same run continues to its end.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.store.local import LocalStore
from tasks.stage.progress import Event, listening
from tests.pipeline.builders import manifests, run, sql, states, tiny
from tests.pipeline.commands import environment
from tests.waiting import BOUND_S, until

pytestmark = pytest.mark.slow


@contextmanager
def on(kind: str, stage: str, act: Callable[[], None]) -> Iterator[None]:
    """Call `act` at the first event of this kind of a stage of epoch 1."""
    done = False

    def listener(event: Event) -> None:
        nonlocal done
        if not done and (event.kind, event.stage, event.epoch) == (kind, stage, 1):
            done = True
            act()

    with listening(listener):
        yield
    assert done


def fails(config, *words: str) -> None:
    """Assert that the run fails and that its first failed stage reports these words."""
    messages: list[str] = []

    def listener(event: Event) -> None:
        if event.kind == "failed":
            messages.append(event.message)

    with listening(listener), pytest.raises(Exception):  # noqa: B017
        run(config)
    for word in words:
        assert word in messages[0]


def finishes(config) -> None:
    """Continue the run and assert that it completes."""
    run(config)
    assert states(config)[-1][1:] == ("publish", "computed")


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of a few megabytes."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(tmp_path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small tmpfs needs root")
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=False)


def remount(folder: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(folder)], check=True)


def test_a_full_disk_is_said_and_the_next_run_continues(begun, mounted: Path):
    begun(mounted / "root")
    config = tiny(mounted / "root", epochs=1, run_id="full")
    filler = mounted / "filler"
    filler.write_bytes(b"\0" * (shutil.disk_usage(mounted).free - 2**17))
    fails(config, "the disk is full: free some space and run the same command again")
    filler.unlink()
    finishes(config)


def test_a_file_system_that_becomes_read_only(begun, mounted: Path):
    begun(mounted / "root")
    config = tiny(mounted / "root", epochs=1, run_id="readonly")
    with on("started", "score", lambda: remount(mounted, "ro")):
        fails(config, "the file system is read-only: choose another --root")
    remount(mounted, "rw")
    finishes(config)


def test_a_clock_that_jumps_backwards_changes_no_output(
    begun, tiny_root: Path, tmp_path: Path, monkeypatch
):
    straight = tiny(tiny_root, epochs=1, run_id="clock-straight")
    run(straight)
    jumps = 0

    class Backwards(datetime):
        @classmethod
        def now(cls, tz=None):
            nonlocal jumps
            jumps += 1
            return datetime.now(tz) - timedelta(hours=jumps)

    real = time.time
    monkeypatch.setattr("tasks.stage.execution.datetime", Backwards)
    begun(tmp_path / "root")
    config = tiny(tmp_path / "root", epochs=1, run_id="clock")
    with on("finished", "rollout", lambda: monkeypatch.setattr(time, "time", lambda: real() - 1e6)):
        run(config)
    assert jumps == 12
    assert {k: m.digest for k, m in manifests(config).items()} == {
        k: m.digest for k, m in manifests(straight).items()
    }
    assert sql(config, "SELECT min(seconds) AS s FROM stage_runs")["s"][0] >= 0
    assert sql(config, "SELECT min(seconds) AS s FROM epochs")["s"][0] >= 0
    started = sql(config, "SELECT max(started_at) AS t FROM stage_runs")["t"][0]
    assert started.replace(tzinfo=UTC) < datetime.now(UTC)


def test_a_part_that_goes_away_between_two_stages_is_made_again(api, tiny_root: Path):
    config = tiny(tiny_root, "curriculum.alpha=0.55", epochs=1, run_id="gone")

    def delete() -> None:
        part = manifests(config)[(1, "score")].of_table("task_scores")[0]
        (tiny_root / part.path).unlink()

    # `pool` starts when `filter` has ended, so nobody is reading scores in that moment.
    with on("finished", "filter", delete):
        fails(config, "stage score key", "is missing or altered; run the same command again")
    finishes(config)
    assert [s for e, n, s in states(config) if (e, n) == (1, "score")] == ["computed", "computed"]


def test_a_part_that_goes_away_while_it_is_read(api, tiny_root: Path, monkeypatch):
    from genenv_core.storage.records import artifacts

    config = tiny(tiny_root, "curriculum.alpha=0.65", epochs=1, run_id="vanishing")
    original = artifacts.read_parquet

    def read(table: str, path: Path):
        if table == "task_scores":
            path.unlink()
        return original(table, path)

    with monkeypatch.context() as patch:
        patch.setattr(artifacts, "read_parquet", read)
        fails(config, "table task_scores: there is no file")
    finishes(config)


def test_permission_that_is_lost_while_a_run_works(begun: Callable[[Path], None], tmp_path: Path):
    """The command runs as root without the capability to override permissions."""
    root = tmp_path / "root"
    begun(root)
    arguments = ("run", "tiny", "--root", str(root), "--run-id", "x", "--epochs", "1")
    arguments += ("--set", "tracking.enabled=false")
    plain = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
    if os.getuid() or subprocess.run([*plain, "true"], capture_output=True, check=False).returncode:
        pytest.skip("setpriv needs root")
    process = subprocess.Popen(
        [*plain, sys.executable, "-m", "flows.cli.app", *arguments],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: (root / "stages" / "generate_tasks").is_dir())
    (root / "tmp").chmod(0o555)
    _, error = process.communicate(timeout=BOUND_S)
    (root / "tmp").chmod(0o755)
    assert process.returncode == 1
    (line,) = error.strip().splitlines()
    assert "permission denied: choose another --root or change its permissions" in line
    finishes(tiny(root, epochs=1, run_id="x"))


ENDLESS_SHARD = """
import time
from flows.running import signals
from flows.cli import app

signals.SOFT_S = signals.HARD_S = 0.5
supervise = signals.supervise

def with_an_endless_shard(work, soft):
    from tasks import rollout  # as late as the command itself: Prefect's settings are made first

    attempt = rollout.attempt

    def endless(*given, **settings):
        for number, tables in attempt(*given, **settings):
            if number:
                print("sampling", flush=True)
                time.sleep(3600)
            yield number, tables

    rollout.attempt = endless
    return supervise(work, soft)

signals.supervise = with_an_endless_shard
app.main()
"""


@pytest.mark.parametrize(
    ("number", "status", "words"),
    [
        (signal.SIGTERM, 143, "stopped by SIGTERM: the same command continues from rollout of"),
        (signal.SIGINT, 130, "interrupted: the same command continues from the last finished"),
    ],
)
def test_a_signal_in_a_shard_that_takes_longer_than_the_grace(
    begun: Callable[[Path], None], tmp_path: Path, number: int, status: int, words: str
):
    root = tmp_path / "root"
    begun(root)
    arguments = ("run", "tiny", "--root", str(root), "--run-id", "x", "--epochs", "1")
    arguments += ("--set", "tracking.enabled=false")
    process = subprocess.Popen(
        [sys.executable, "-c", ENDLESS_SHARD, *arguments],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert "sampling\n" in iter(process.stdout.readline, "")
    process.send_signal(number)
    _, error = process.communicate(timeout=BOUND_S)
    assert process.returncode == status
    (line,) = error.strip().splitlines()
    assert words in line, error
    store = LocalStore(root)
    (kept,) = store.list("shards")  # the one that was finished
    mark = store.mark(kept)
    assert RunLog(store, "x").attempts()[-1].state == "interrupted"
    run(tiny(root, epochs=1, run_id="x"))
    assert store.mark(kept) == mark and len(store.list("shards")) > 1
    tried = [(a.stage, a.state) for a in RunLog(store, "x").attempts() if a.epoch]
    assert [state for stage, state in tried if stage == "rollout"] == ["interrupted", "computed"]
    assert {state for stage, state in tried if stage != "rollout"} == {"computed"}
    assert store.list("leases") == []


def test_logprobs_of_another_model_close_the_gate_and_leave_no_shard(
    api: None, tiny_root: Path
) -> None:
    def shards() -> set[Path]:
        return set((tiny_root / "shards" / "rollout").rglob("*.json"))

    before = shards()  # of runs that other tests have left unfinished
    off = tiny(tiny_root, "rollout.max_logprob_gap=1e-12", epochs=1, run_id="off")
    fails(off, "stage rollout of epoch 1", "nats a token", "rollout.max_logprob_gap is 1e-12")
    assert shards() == before
    config = tiny(tiny_root, epochs=1, run_id="off")
    run(config)
    facts = manifests(config)[(1, "rollout")].facts["metrics"]
    assert 0 < facts["logprob_gap"] <= facts["logprob_gap_max"] < 1e-4
    [row] = sql(
        config,
        "SELECT metrics->>'logprob_gap' AS gap FROM checkpoints "
        "WHERE policy = 'agent' AND epoch = 1",
    ).to_dicts()
    assert float(row["gap"]) == facts["logprob_gap"]
    [kept] = sql(
        config,
        "SELECT avg(abs(l - t)) AS gap FROM (SELECT unnest(k.logprobs) AS l, "
        "unnest(x.logprobs) AS t, unnest(k.loss_mask) AS m FROM trainer_logprobs AS x "
        "JOIN trace_tokens AS k ON k.run_id = x.run_id AND k.trace_id = x.trace_id) WHERE m = 1",
    ).to_dicts()
    assert kept["gap"] == pytest.approx(facts["logprob_gap"], rel=1e-3)
