"""What orchestration costs: an epoch's wall time that is no stage's own computation.

Runs the quickstart for a few epochs in a temporary root and reads `stage_runs`. An epoch's wall
time goes from its first stage's start to the next epoch's first start; the stages' computation is
the union of their intervals, so two side by side count once.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from genenv_core.storage.records.runs import RunLog, StageAttempt, list_runs
from genenv_core.storage.store.local import LocalStore

EPOCHS = 4


def overheads(attempts: Sequence[StageAttempt]) -> list[tuple[int, float, float]]:
    """Return (epoch, wall seconds, orchestration seconds) of every epoch but the last one."""
    done = [a for a in attempts if a.state == "computed" and a.epoch >= 1]
    starts = {
        epoch: min(a.started_at for a in done if a.epoch == epoch)
        for epoch in {a.epoch for a in done}
    }
    rows: list[tuple[int, float, float]] = []
    for epoch in sorted(starts)[:-1]:
        begin, end = starts[epoch], starts[epoch + 1]
        busy, reached = timedelta(), begin
        for attempt in sorted((a for a in done if a.epoch == epoch), key=lambda a: a.started_at):
            until = attempt.started_at + timedelta(seconds=attempt.compute_seconds or 0)
            busy += max(until - max(attempt.started_at, reached), timedelta())
            reached = max(reached, until)
        wall = (end - begin).total_seconds()
        rows.append((epoch, wall, wall - busy.total_seconds()))
    return rows


def run_cli(*arguments: str) -> float:
    """Return the wall seconds of one genenv command; raises when it fails."""
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "flows.cli.app", *arguments],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return time.perf_counter() - started


def main() -> None:
    """Print orchestration per epoch, its share, and the cost of a replay."""
    with tempfile.TemporaryDirectory(prefix="genenv-bench-") as root:
        command = ("run", "quickstart", "--epochs", str(EPOCHS), "--root", root, "--json")
        computed = run_cli(*command)
        store = LocalStore(Path(root))
        rows = overheads(RunLog(store, list_runs(store)[0]).attempts())
        replayed = run_cli(*command)
    print("\norchestration (an epoch's wall time that is no stage's computation)")
    for epoch, wall, extra in rows:
        print(f"  epoch {epoch}: {extra:5.2f} s of {wall:6.2f} s ({extra / wall:.0%})")
    print(
        f"  run of {EPOCHS} epochs: {computed:.1f} s computed, {replayed:.1f} s replayed from the "
        f"cache, start-up and imports included ({replayed / computed:.2f} of it)"
    )


if __name__ == "__main__":
    main()
