"""The root that `genenv view --demo` opens: a small finished run, which this machine builds once.

It lies among the user's caches, in a folder named by what makes it, so that another version of
genenv builds its own. The run counts as finished by its own records. One that was interrupted is
continued there, as every run is, by one process at a time.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import IO

from flows.running.signals import POLL_S, Terminated, heed_ends
from genenv_core import __version__
from genenv_core.canonical import digest
from genenv_core.config.stages import LAST
from genenv_core.errors import ConfigError, GenenvError
from genenv_core.storage.records.manifest import FORMAT
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.store.local import LocalStore
from genenv_core.storage.store.places import CACHE, cache_folder

RUN, SOURCE, SEED, EPOCHS = "demo", "tiny", 20, 5
SETTINGS = (
    # Enough attempts an epoch that the agent gains from them, and enough test tasks to see that.
    "data.test_tasks=120",
    "bootstrap.agent_steps=500",
    "generation.tasks=48",
    "generation.max_generations=160",
    "rollout.n=8",
    "rollout.shard_groups=16",
    "grpo.max_groups=96",
    "grpo.groups_per_step=8",
    "grpo.passes=3",
    "grpo.learning_rate=0.0003",
    "rwr.steps=10",
    # What it can do without.
    "rwr.kl_rows=32",
    "rwr.probe_generations=32",
    "tracking.enabled=false",
)
"""On seeds 20 to 22 the gain in P(answer) was .060, .039 and .031, each time with an interval above
0; with the settings of `tiny` itself, over four epochs, it was -.001."""

TAKES = "one to two minutes on two cores"

KEPT = (CACHE, "GENENV_DEBUG")
"""Variables of genenv that the run gets; what else is set for other roots does not reach it."""

_OTHERS = ("GENENV_", "PREFECT_", "MLFLOW_", "OTEL_")
"""How variables begin that name servers: nothing about the demo goes to them."""


def command(root: Path) -> list[str]:
    """Return the arguments of genenv that build the demo in a root."""
    chosen = [word for setting in SETTINGS for word in ("--set", setting)]
    names = ("--run-id", RUN, "--seed", str(SEED), "--epochs", str(EPOCHS))
    return ["run", SOURCE, "--root", str(root), *names, *chosen]


def demo_folder() -> Path:
    """Return where this version of genenv keeps its demo, whether it is there or not."""
    from schemas.registry import TABLES

    versions = {name: table.version for name, table in TABLES.items()}
    made_of = {"command": command(Path()), "format": FORMAT, "tables": versions}
    return cache_folder() / "demo" / f"{__version__}-{digest(made_of)[:8]}"


def is_finished(root: Path) -> bool:
    """Return whether a root has the demo's run with its last epoch; writes nothing."""
    log = RunLog(LocalStore(root, writable=False), RUN)
    return root.is_dir() and LAST in log.keys(EPOCHS)


def demo_root(say: Callable[[str], object]) -> Path:
    """Return the root with the demo, and build it where it is missing or unfinished.

    Raises ConfigError where the folder cannot be written, and SystemExit with the status of the
    run, which has said why, when it did not finish.
    """
    root = demo_folder()
    if not is_finished(root):
        with _alone(root, say) as lock:
            if not is_finished(root):  # another process may have built it meanwhile
                say(f"building the demo in {root}, once: {EPOCHS} epochs, {TAKES}")
                _build(root, lock)
    return root


@contextlib.contextmanager
def _alone(root: Path, say: Callable[[str], object]) -> Generator[IO[bytes]]:
    """Wait until no other process builds this demo; the kernel frees the lock of a killed one."""
    place = root.parent / f"{root.name}.lock"
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        lock = place.open("ab")
    except OSError as error:
        raise ConfigError(
            f"--demo: {place.parent}: {error.strerror}: set {CACHE} to a folder that can be written"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another genenv builds the demo in {root}: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock


def _build(root: Path, lock: IO[bytes]) -> None:
    """Play the run in a child process, so that the process of the page loads no library of it.

    That process is in a group of its own: it gets each signal once, from here. It holds the lock
    too, for as long as it outlives this one.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    heed_ends()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "flows.cli.app", *command(root)],
            env=_surroundings(),
            pass_fds=(lock.fileno(),),
            process_group=0,
        )
        status = _ended(process)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if status < 0:
        raise GenenvError(
            f"the demo's run was killed by {signal.Signals(-status).name}: the same command "
            "continues it"
        )
    if status in (1, 2):
        raise GenenvError(
            f"the demo is not built: the same command tries again, after `rm -r "
            f"{shlex.quote(str(root))}` from the start; {CACHE} names another place for it"
        )
    if status:
        raise SystemExit(status)


def _ended(process: subprocess.Popen[bytes]) -> int:
    """Return the exit status of the run; hands it the signals that come here until then."""
    while True:
        try:
            return process.wait(POLL_S)  # without an end it would not see a Ctrl-C: see POLL_S
        except subprocess.TimeoutExpired:
            continue
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
        except Terminated as error:
            process.send_signal(error.number)


def _surroundings() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name in KEPT or not name.startswith(_OTHERS)
    }
