"""The runs of a comparison: each one reused or played, and then the page on all of them.

A run is a co-evolution like any other. It is played in a process of its own, by the command or the
deployment that continues a run, so it has the same stages, leases and history as one that somebody
started alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed
from prefect.task_runners import ThreadPoolTaskRunner

from flows.planner import plan_run
from flows.running.children import ChildProcess
from genenv_core import __version__
from genenv_core.canonical import readable_json
from genenv_core.compare.judging import judge
from genenv_core.compare.results import Played, read_results
from genenv_core.config.comparison import Comparison, PlannedRun, comparison_name
from genenv_core.config.load import dump
from genenv_core.errors import ConfigError, GenenvError, NotFound
from genenv_core.named_files import why_not_written
from genenv_core.report.data import read_report
from genenv_core.report.page import render as render_run
from genenv_core.report.words import MEASURES
from genenv_core.storage import paths
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.sql.sources import open_tables
from genenv_core.storage.store.opening import open_once
from tasks.placement.child import state_reason
from tasks.stage.progress import check
from tasks.stage.stores import artifacts_of

if TYPE_CHECKING:
    from genenv_core.compare.page import PlayedComparison

POLL_S = 0.2
INTERRUPTED_S, STOPPED_S = 12.0, 25.0
"""How long runs at work may take to end after Ctrl-C, and after SIGTERM."""

Tell = Callable[[str], None]
"""Takes a line for people."""


class Launch(Protocol):
    """Plays a run that is recorded in its root."""

    def __call__(self, run: PlannedRun) -> None:
        """Return when every epoch is done; raises GenenvError when it ends without that."""
        ...


class ByResume:
    """Plays a run by `genenv resume` on this machine, with its log in `logs`."""

    def __init__(self, root: str, logs: Path) -> None:
        """Play in this root; nothing is started yet."""
        self._root, self._logs = root, logs
        self._children: set[ChildProcess] = set()

    def __call__(self, run: PlannedRun) -> None:
        command = [sys.executable, "-m", "flows.cli.app", "resume", run.run_id, "--json"]
        self._logs.mkdir(parents=True, exist_ok=True)
        log = self._logs / f"{run.run_id}.log"
        child = ChildProcess(run.run_id, [*command, "--root", self._root], os.environ, log)
        self._children.add(child)
        while child.status is None:
            check()  # what it raises leaves the child to `end`
            time.sleep(POLL_S)
        self._children.remove(child)
        if child.status:
            raise GenenvError(child.reason())

    def end(self, number: signal.Signals, grace_s: float) -> None:
        """End the runs at work by a signal, and kill those that are left after the grace."""
        children = list(self._children)
        for child in children:
            child.ask(number)
        for child in children:
            child.stop(grace_s, number)


def in_threads(count: int) -> Any:
    """Return the task runner that plays so many runs at once; Prefect's types refuse their own."""
    runner: Any = ThreadPoolTaskRunner
    return runner(max_workers=count)


def play_here(
    comparison: Comparison, runs: Sequence[PlannedRun], launch: Launch, *, jobs: int, tell: Tell
) -> list[str]:
    """Play the runs as a flow `compare`, `jobs` at once; returns what `play_all` does."""

    @flow(
        name="compare",
        flow_run_name=comparison_name(comparison),
        persist_result=False,
        task_runner=in_threads(jobs),
    )
    def compare(arms: list[str], seeds: list[int]) -> list[str]:
        return play_all(runs, launch, tell)

    return compare(list(comparison.arms), list(comparison.seeds))


def play_all(runs: Sequence[PlannedRun], launch: Launch, tell: Tell) -> list[str]:
    """Return why runs did not finish, in their order, '' for those that did; inside a flow."""
    counted = _Counter(len(runs), tell)
    play: Any = _play  # Prefect's `submit` is half untyped
    futures = [play.submit(run.arm, run.seed, _One(run, launch, counted)) for run in runs]
    failures: list[str] = []
    for future in futures:
        future.wait()
        state = future.state
        failures.append("" if state.is_completed() else state_reason(state))
    return failures


@task(name="run", task_run_name="{arm} · seed {seed}", cache_policy=NO_CACHE, persist_result=False)
def _play(arm: str, seed: int, play: Callable[[], State[None]]) -> State[None]:
    return play()


class _Counter:
    """Reports what became of each run, and how many are done."""

    def __init__(self, total: int, tell: Tell) -> None:
        self._total, self._tell, self._done = total, tell, 0
        self._lock = threading.Lock()

    def begun(self, run: PlannedRun) -> None:
        self._tell(f"{run.arm} · seed {run.seed}: begins")

    def ended(self, run: PlannedRun, how: str) -> None:
        with self._lock:
            self._done += 1
            self._tell(f"{run.arm} · seed {run.seed}: {how} ({self._done} of {self._total})")


@dataclass(frozen=True)
class _One:
    """One run: reused if all its stages are there, else recorded and launched."""

    run: PlannedRun
    launch: Launch
    counted: _Counter

    def __call__(self) -> State[None]:
        check()
        if is_played(self.run):
            self.counted.ended(self.run, "reused")
            return Completed(name="Cached", message=f"reused {self.run.run_id}")
        started = time.monotonic()
        record(self.run)
        self.counted.begun(self.run)
        try:
            self.launch(self.run)
        except GenenvError as error:
            self.counted.ended(self.run, f"failed: {error}")
            return Failed(message=str(error))
        self.counted.ended(self.run, f"done in {time.monotonic() - started:.0f} s")
        return Completed(message=f"played {self.run.run_id}")


def is_played(run: PlannedRun) -> bool:
    """Return whether every stage is there, under the keys of today's code, and noted in the run.

    Stages that a run of another name has computed are not enough: the tables are read by run.
    """
    noted = _log_of(run)
    return all(
        entry.status == "hit" and noted.keys(entry.epoch).get(entry.stage) == entry.key
        for entry in plan_run(run.config)
    )


def record(run: PlannedRun) -> None:
    """Record a run's configuration in its root; one that was played further stays as it is."""
    log = _log_of(run)
    with contextlib.suppress(NotFound):
        if log.info().config["epochs"] > run.config.epochs:
            return
    log.open(dump(run.config), datetime.now(UTC))


def _log_of(run: PlannedRun) -> RunLog:
    return RunLog(artifacts_of(run.config.root).store, run.run_id)


def conclude(
    comparison: Comparison, runs: Sequence[PlannedRun], failures: Sequence[str]
) -> PlayedComparison:
    """Return what the runs of a comparison came to, kept in their root as pages and as JSON.

    `failures` are those of `play_all` on the same runs.
    """
    from genenv_core.compare.claim import CLAIM, FIGURE, claim, figure  # loads matplotlib
    from genenv_core.compare.page import PAGE, PlayedComparison, as_values, render, run_page

    root = runs[0].config.root
    store = open_once(root)
    name, now = comparison_name(comparison), datetime.now(UTC)
    results: list[Played] = []
    for run, failure in zip(runs, failures, strict=True):
        if failure:
            continue
        # One by one: a view over thirty runs takes more memory than a query may.
        with open_tables(store, [run.run_id]) as connection:
            results += read_results(connection, [run])
            report = read_report(connection, [run.run_id])
        page = render_run(report, root=root, now=now, version=__version__)
        store.replace(paths.comparison(name, run_page(run.run_id)), page.encode())
    made = PlayedComparison(
        comparison,
        list(runs),
        results,
        judge(comparison, results),
        [(r.arm, r.seed, why) for r, why in zip(runs, failures, strict=True) if why],
        root,
    )
    page = render(made, now=now, version=__version__)
    store.replace(paths.comparison(name, PAGE), page.encode())
    store.replace(paths.comparison(name, CLAIM), claim(made, version=__version__).encode())
    store.replace(paths.comparison(name, FIGURE), figure(made).encode())
    store.replace(paths.comparison(name, "result.json"), readable_json(as_values(made)))
    return made


def copy_pages(made: PlayedComparison, folder: Path) -> None:
    """Copy the pages of a comparison and its JSON to a folder; raises ConfigError."""
    from genenv_core.compare.claim import CLAIM, FIGURE
    from genenv_core.compare.page import PAGE, run_page

    store = open_once(made.root)
    files = [PAGE, CLAIM, FIGURE, "result.json", *(run_page(run.run_id) for run in made.results)]
    try:
        for file in files:
            target = folder / file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(store.read(paths.comparison(made.name, file)))
    except OSError as error:
        raise ConfigError(f"--output {folder}: {why_not_written(folder, error)}") from error


def raise_failures(made: PlayedComparison) -> None:
    """Raise GenenvError when a run did not finish."""
    if made.failures:
        arm, seed, reason = made.failures[0]
        raise GenenvError(
            f"{len(made.failures)} of {len(made.runs)} runs did not finish, first {arm} on seed "
            f"{seed}: {reason}; the same command continues"
        )


def verdicts(made: PlayedComparison) -> str:
    """Return what a comparison decides as markdown."""
    from genenv_core.compare.page import PAGE

    parts = [f"# {', '.join(made.comparison.arms)}: {len(made.judged.seeds)} seeds"]
    for measure in made.judged.measures:
        found = (*made.judged.of(measure), *made.judged.of_domains(measure))
        lines = "\n".join(f"- {verdict.words}" for verdict in found)
        parts.append(f"Gain in {MEASURES[measure]} on the test tasks, points of 100:\n\n{lines}")
    if made.failures:
        lines = "\n".join(f"- {arm}, seed {seed}: {why}" for arm, seed, why in made.failures)
        parts.append(f"**Not finished:**\n\n{lines}\n\n**Retry** continues them.")
    parts.append(f"The page: `{made.root}/{paths.comparison(made.name, PAGE)}`")
    return "\n\n".join(parts)
