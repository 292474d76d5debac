"""Kills runs until the asked number of kills is reached, and compares what they end with."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from math import ceil
from pathlib import Path

from genenv_core.storage.records.runs import RunLog, StageAttempt
from genenv_core.storage.store.local import LocalStore
from genenv_core.storage.store.process import identity
from tests.storm import points
from tests.storm.compare import differences
from tests.storm.points import Plan, Whom

RUN = "storm"
COMMAND = ("run", "tiny", "--run-id", RUN, "--set", "execution.checkpoint_seconds=0")
KILLS_A_ROOT = 12
"""So many kills at most until a run may end, so that late stages and many runs are reached."""

SHARE_BY_TIME = 0.3
REPOSITORY = Path(__file__).parents[2]


@dataclass
class Tally:
    """Counts the kills and differences so far; all driving threads share it."""

    wanted: int
    kinds: Counter[str] = field(default_factory=Counter)
    stages: Counter[str] = field(default_factory=Counter)
    whom: Counter[str] = field(default_factory=Counter)
    kills: int = 0
    roots: int = 0
    compared: int = 0
    found: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def killed(self, plan: Plan, stage: str) -> None:
        """Count one kill."""
        with self.lock:
            self.kills += 1
            self.kinds[plan.kind] += 1
            self.stages[stage] += 1
            self.whom[plan.whom] += 1

    def print(self) -> None:
        """Print the counts and every difference."""
        for title, counts in (("stage", self.stages), ("kind", self.kinds), ("whom", self.whom)):
            print(f"kills by {title}:")
            for name, count in counts.most_common():
                print(f"  {count:4d}  {name}")
        for line in self.found:
            print(f"difference: {line}")
        print(
            f"{self.kills} kills of {self.roots} runs; {self.compared} ended and were compared: "
            f"{len(self.found)} differences"
        )


class Zygote:
    """Forks victims one after another; see `tests.storm.zygote`."""

    def __init__(self, environment: dict[str, str], log: Path) -> None:
        """Start the process; its imports take a while."""
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.storm.zygote"],
                cwd=REPOSITORY,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )

    def run(
        self, root: Path | str, plan: Plan, output: Path, delay: float = 0.0, *options: str
    ) -> Ended:
        """Run the command in a victim; a delay kills after that time, not at an operation."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin and stdout
        request = {
            "arguments": [*COMMAND, "--root", str(root), *options],
            "plan": plan.model_dump(),
            "output": str(output),
        }
        if not self.ready:
            raise RuntimeError("the zygote did not start")
        started = time.monotonic()
        print(json.dumps(request), file=stdin, flush=True)
        pid = int(stdout.readline())
        process = identity(pid)
        timer = threading.Timer(delay, kill, (pid, plan.whom))
        if delay:
            timer.start()
        status = os.waitstatus_to_exitcode(int(stdout.readline()))
        timer.cancel()
        return Ended(status, pid, process, time.monotonic() - started)

    @property
    def ready(self) -> bool:
        """Return whether the process serves; the first call waits for it."""
        if not hasattr(self, "_ready"):
            assert self._process.stdout
            self._ready = self._process.stdout.readline() == "ready\n"
        return self._ready

    def close(self) -> None:
        """End the process and its fork server."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(60)


@dataclass(frozen=True)
class Ended:
    """The end of a victim."""

    status: int
    pid: int
    process: str
    seconds: float


def kill(leader: int, whom: Whom) -> None:
    """Kill a victim's group, its leader, or one of its training workers (else the leader)."""
    workers = members(leader)
    try:
        if whom == "tree":
            os.killpg(leader, signal.SIGKILL)
        else:
            os.kill(workers[0] if whom == "worker" and workers else leader, signal.SIGKILL)
    except ProcessLookupError:  # it has just ended by itself
        pass


def members(leader: int) -> list[int]:
    """Return the other processes of a group."""
    found: list[int] = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != leader:
            try:
                state, _, group = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
            except OSError:
                continue
            if int(group) == leader and state != "Z":
                found.append(int(folder.name))
    return found


def stage_of(root: Path, ended: Ended) -> str:
    """Return the stages that a victim was computing when it was killed."""
    attempts = RunLog(LocalStore(root), RUN).attempts()
    mine = [a for a in attempts if a.process == ended.process and _is_open(a)]
    return " + ".join(sorted({a.stage for a in mine})) or "between stages"


def _is_open(attempt: StageAttempt) -> bool:
    return attempt.state in ("running", "interrupted", "failed")


def census(folder: Path) -> dict[str, int]:
    """Return the number of operations of each kind."""
    return {path.name: path.stat().st_size for path in folder.iterdir()}


def by_operation(rng: random.Random, kind: str, count: float) -> tuple[Plan, float]:
    """Return a kill at one of a kind's first `count` operations; early ones are likelier."""
    whom = rng.choice(("worker", "tree", "parent") if kind in points.WORKER else ("tree", "parent"))
    number = max(1, ceil(count * rng.random() ** 2))
    return Plan(kind=kind, number=number, after=rng.random() < 0.5, whom=whom), 0.0


def by_time(rng: random.Random, seconds: float) -> tuple[Plan, float]:
    """Return a kill at a random time within `seconds`, and its delay."""
    whom = rng.choice(("tree", "parent", "worker"))
    return Plan(kind=points.TIME, whom=whom), rng.uniform(0.05, seconds)


def plans(
    rng: random.Random, first: str, counts: dict[str, int], seconds: float, tally: Tally
) -> Iterator[tuple[Plan, float]]:
    """Yield the kills of one root; the first is of a kind that a new run always reaches.

    A continued run has less work left than a new one, so it is killed earlier. The last plan kills
    nothing.
    """
    yield by_operation(rng, first, counts[first])
    for _ in range(KILLS_A_ROOT - 1):
        if tally.kills >= tally.wanted:
            break
        if rng.random() < SHARE_BY_TIME:
            yield by_time(rng, seconds * 0.4)
        else:
            kind = rng.choice(points.OPERATIONS)
            yield by_operation(rng, kind, counts[kind] * 0.1)
    yield Plan(), 0.0


def survive(
    zygote: Zygote, name: str, folder: Path, kills: Iterator[tuple[Plan, float]], tally: Tally
) -> None:
    """Start one run in a new root again after each kill until it ends, then compare it."""
    root, output = folder / name, folder / f"{name}.log"
    for plan, delay in kills:
        ended = zygote.run(root, plan, output, delay)
        if ended.status == 0:
            break
        if ended.status not in (-signal.SIGKILL, 1):
            tally.found.append(f"{name}: exit status {ended.status} of {plan}, see {output}")
            return
        if ended.status == 1 and plan.whom != "worker":
            tally.found.append(f"{name}: {last_line(output)} in {plan}")
            return
        tally.killed(plan, stage_of(root, ended))
    found = differences(folder / "reference", root, RUN)
    with tally.lock:
        tally.found += [f"{name}: {line}" for line in found]
        tally.compared += 1
    if not found:
        shutil.rmtree(root)
        output.unlink()


def last_line(output: Path) -> str:
    """Return the last line of a victim's output."""
    return (output.read_text(encoding="utf-8").strip().splitlines() or [""])[-1]


@contextmanager
def prefect_api(home: Path) -> Iterator[dict[str, str]]:
    """Start one Prefect API for all victims; yields an environment with its address."""
    from flows.running.environment import prepare

    prepare()
    os.environ["PREFECT_HOME"] = str(home)
    from flows.running.local_server import LocalServer

    server = LocalServer(home)
    try:
        server.wait()
        kept = {k: v for k, v in os.environ.items() if not k.startswith("GENENV")}
        yield {**kept, "PYTHONPATH": str(REPOSITORY), "PREFECT_API_URL": server.url}
    finally:
        server.stop()


def storm(folder: Path, kills: int, seed: int, jobs: int) -> Tally:
    """Kill runs `kills` times; returns the tally. `folder` keeps the roots that differ."""
    tally = Tally(kills)
    with prefect_api(folder / "prefect") as environment:
        zygotes = [Zygote(environment, folder / "zygotes.log") for _ in range(jobs)]
        try:
            _reference(folder, environment)
            counts, seconds = _census(zygotes[0], folder, tally)
            kinds = random.Random(seed).sample(points.OPERATIONS, len(points.OPERATIONS))
            rest = (cycle(kinds), counts, seconds, folder, seed, tally)
            threads = [threading.Thread(target=_drive, args=(z, *rest)) for z in zygotes]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            for zygote in zygotes:
                zygote.close()
    return tally


def _reference(folder: Path, environment: dict[str, str]) -> None:
    """Run the command in a normal process, without a kill."""
    command = [sys.executable, "-m", "flows.cli.app", *COMMAND]
    subprocess.run(
        [*command, "--root", str(folder / "reference")],
        cwd=REPOSITORY,
        env=environment,
        stdout=subprocess.DEVNULL,
        check=True,
    )


def _census(zygote: Zygote, folder: Path, tally: Tally) -> tuple[dict[str, int], float]:
    """Return the number of operations of each kind in a run, and the run's seconds."""
    counted = folder / "census"
    counted.mkdir()
    ended = zygote.run(folder / "counted", Plan(census=str(counted)), folder / "counted.log")
    if ended.status:
        raise RuntimeError(f"a run without a kill failed: {last_line(folder / 'counted.log')}")
    tally.found += differences(folder / "reference", folder / "counted", RUN)
    counts = census(counted)
    missing = set(points.OPERATIONS) - counts.keys()
    if missing:
        raise RuntimeError(f"these operations never happen: {', '.join(sorted(missing))}")
    return counts, ended.seconds


def _drive(
    zygote: Zygote,
    firsts: Iterator[str],
    counts: dict[str, int],
    seconds: float,
    folder: Path,
    seed: int,
    tally: Tally,
) -> None:
    while tally.kills < tally.wanted:
        with tally.lock:
            number, first = tally.roots, next(firsts)
            tally.roots += 1
        rng = random.Random(f"{seed} {number}")
        try:
            kills = plans(rng, first, counts, seconds, tally)
            survive(zygote, str(number), folder, kills, tally)
        except Exception as error:
            tally.found.append(f"{number}: {type(error).__name__}: {error}")
        print(
            f"{tally.kills} kills, {tally.compared} runs compared, {len(tally.found)} differences",
            flush=True,
        )
