"""Stages on a work pool with a real Prefect server and a real process worker.

Invariants: a run with stages on a work pool gives the keys, tables and weights of an inline one,
and computes nothing twice; a child that crashed, was cancelled, is lost or late fails its stage
with the reason, and the same command continues with the next attempt; the next flow takes over the
child of a flow that died; a stopped flow cancels its child.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prefect.client.orchestration import get_client
from prefect.deployments import run_deployment
from prefect.states import Cancelling

from flows.coevolution import coevolution
from genenv_core.config.load import dump
from genenv_core.config.sections.limits import LimitsConfig
from genenv_core.config.stages import EPOCH_STAGES, STAGES
from genenv_core.errors import ConfigError, StageError
from genenv_core.storage.records.runs import RunLog, StageAttempt
from genenv_core.storage.store.opening import open_store
from tests.hold.forks import Forks
from tests.holds import Holds
from tests.pipeline.builders import computed, manifests, run, sql, states, tiny
from tests.pipeline.workers import REPOSITORY, child_states, children, environment, worker
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

WORK_POOL = "machine"
PLACED = ("rollout", "grpo_update", "rwr_update")
STEPS = ("grpo.passes=4", "grpo.groups_per_step=1", "execution.checkpoint_seconds=0")
"""An update with several checkpoints, the second of which a test holds."""

SECOND = ("/progress/grpo_update/*/seal.json", 2)

WAIT_S = 500
"""Longest wait for a process, on a busy machine."""


@pytest.fixture(scope="module")
def holds(tmp_path_factory: pytest.TempPathFactory) -> Holds:
    """Return where the processes of the workers are held."""
    return Holds(tmp_path_factory.mktemp("held") / "holds")


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """Yield what forks the processes of a test that is about none's start."""
    with Forks(tmp_path_factory.mktemp("forks")) as made:
        yield made


@pytest.fixture(scope="module")
def work_pool(
    forks: Forks, api: None, holds: Holds, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Run a work pool with all deployments and a worker, all forked; yields its name."""
    from flows.deploy.stage_on_pool import make_work_pool

    make_work_pool(WORK_POOL, kind="process", stages=STAGES)
    variables, log = environment() | holds.environment, tmp_path_factory.mktemp("worker") / "log"
    with worker(WORK_POOL, log, variables=variables, python=forks.python):
        yield WORK_POOL


class Command:
    """Runs `genenv run` with grpo_update on a work pool, one process after the other.

    Each run has its own GRPO settings and shares all earlier stages with the others. `holds` are
    those of the pool's worker. Without `forks` it starts as a person's does.
    """

    def __init__(
        self,
        root: Path | str,
        run_id: str,
        *overrides: str,
        holds: Holds,
        forks: Forks | None,
        at: str = WORK_POOL,
    ) -> None:
        self.root, self.run_id, self._holds = root, run_id, holds
        self._python = forks.python if forks else sys.executable
        distinct = f"grpo.max_grad_norm=1.{sum(map(ord, run_id))}"
        places = (f"placement.grpo_update={at}", "placement.poll_seconds=0.3")
        self.settings = ("tracking.enabled=false", *places, *STEPS, distinct, *overrides)
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> subprocess.Popen[str]:
        words = (word for text in self.settings for word in ("--set", text))
        self.process = subprocess.Popen(
            [
                *(self._python, "-m", "flows.cli.app", "run", "tiny", "--root", str(self.root)),
                *("--run-id", self.run_id, "--epochs", "1", *words),
            ],
            cwd=REPOSITORY,
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        return self.process

    def at_work(self) -> subprocess.Popen[str]:
        """Start the command; returns once its child is held in the update, after a checkpoint."""
        self.held = self._holds.at(*SECOND)
        process = self.start()
        until(lambda: process.poll() is not None or self.held.exists(), WAIT_S)
        until(lambda: process.poll() is not None or self.pid(), WAIT_S)
        assert process.poll() is None, process.communicate()
        return process

    def pid(self) -> int:
        """Return the id of the process that computes the update, 0 if there is none."""
        tried = [a for a in self.attempts() if a.state == "running"]
        runs = children(self.run_id)
        return tried[-1].pid if tried and runs and runs[-1].state.is_running() else 0

    def attempts(self) -> list[StageAttempt]:
        log = RunLog(open_store(str(self.root), writable=False), self.run_id)
        mine = [a for a in log.attempts() if a.stage == "grpo_update"]
        return sorted(mine, key=lambda attempt: attempt.attempt)

    def log(self) -> str:
        """Return the log of the run in a directory."""
        return (Path(self.root) / "runs" / self.run_id / "run.log").read_text(encoding="utf-8")

    def end(self) -> tuple[int, str]:
        """Return the process's exit status and error output."""
        assert self.process
        _, error = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, error


@pytest.fixture
def command(tiny_root: Path, holds: Holds, forks: Forks) -> Iterator[Callable[..., Command]]:
    made: list[Command] = []

    def make(run_id: str, *overrides: str, at: str = WORK_POOL) -> Command:
        started = forks if at == WORK_POOL else None
        made.append(Command(tiny_root, run_id, *overrides, holds=holds, forks=started, at=at))
        return made[-1]

    yield make
    holds.clear()
    for one in made:
        if one.process:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(one.process.pid, signal.SIGKILL)
            one.process.wait()


def is_as_inline(place: str, root: Path | str, tiny_root: Path) -> None:
    """Assert that a run with stages on a work pool has the outputs of an inline run."""
    inline = tiny(tiny_root, epochs=1, run_id="here")
    places = [f"placement.{stage}={place}" for stage in PLACED]
    away = tiny(root, *places, "placement.poll_seconds=0.3", epochs=1, run_id=f"on-{place}")
    run(inline)
    limited = away.model_copy(update={"limits": LimitsConfig(tokens=1500)})
    assert coevolution(limited) is None  # it stops by what the child of rollout has recorded
    assert (1, "rollout") in manifests(away) and (1, "score") not in manifests(away)
    run(away)
    ours, theirs = manifests(inline), manifests(away)
    assert {k: m.key for k, m in ours.items()} == {k: m.key for k, m in theirs.items()}
    assert {k: m.digest for k, m in ours.items()} == {k: m.digest for k, m in theirs.items()}
    assert sorted(child_states(f"on-{place}")) == sorted((stage, "Completed") for stage in PLACED)
    tried = states(away)
    assert len(tried) == len(computed(tried)) == len(ours)
    pids = dict(sql(away, "SELECT stage, pid FROM stage_runs WHERE epoch = 1").iter_rows())
    assert {stage for stage, pid in pids.items() if pid != os.getpid()} == set(PLACED)
    counted = "SELECT count(tokens), count(peak_memory) FROM stage_runs WHERE epoch = 1"
    assert sql(away, counted).row(0) == (5, len(EPOCH_STAGES))

    run(away)  # all of it is reused, and no child is made
    assert len(children(f"on-{place}")) == len(PLACED)
    assert states(away) == tried


SAYING = """\
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
print(os.getpid(), __name__, os.getcwd(), os.environ["SAID"], *sys.argv[1:], flush=True)
if sys.argv[1:] == ["wait"]:
    time.sleep(500)
sys.exit(7)
"""


def test_a_stand_in_is_as_the_process_would_be(forks: Forks, tmp_path: Path):
    """Its environment, folder, words, output, signals and status are those of the forked one."""
    script = tmp_path / "saying.py"
    script.write_text(SAYING)

    def start(*words: str) -> tuple[subprocess.Popen[str], int]:
        process = subprocess.Popen(
            [forks.python, str(script), *words], cwd=tmp_path, env={"SAID": "yes"},
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout
        pid, *rest = process.stdout.readline().split()
        assert rest == ["__main__", str(tmp_path), "yes", *words] and int(pid) != process.pid
        return process, int(pid)

    assert start("go")[0].wait(WAIT_S) == 7
    process, _ = start("wait")
    process.terminate()
    assert process.wait(WAIT_S) == 9
    process, pid = start("wait")
    os.kill(pid, signal.SIGKILL)
    assert process.wait(WAIT_S) == -signal.SIGKILL
    process, pid = start("wait")
    process.kill()
    until(lambda: not Path(f"/proc/{pid}").exists())  # it dies with its stand-in
    process.wait()


def test_a_placed_run_gives_what_an_inline_gives(api: None, tiny_root: Path, tmp_path: Path):
    from flows.deploy.stage_on_pool import make_work_pool

    make_work_pool("plain", kind="process", stages=PLACED)
    with worker("plain", tmp_path / "log"):
        is_as_inline("plain", tmp_path / "root", tiny_root)


def test_a_killed_child_fails_its_stage_with_the_reason_and_is_continued(
    work_pool: str, command: Callable[..., Command]
):
    one = command("killed")
    one.at_work()
    os.kill(one.pid(), signal.SIGKILL)
    status, error = one.end()
    assert status == 1
    assert (
        "stage grpo_update of epoch 1 on work pool machine crashed: " in error and "-9" in error
    ), error
    assert child_states("killed") == [("grpo_update", "Crashed")]

    one.start()
    assert one.end()[0] == 0
    assert child_states("killed") == [("grpo_update", "Crashed"), ("grpo_update", "Completed")]
    assert [a.state for a in one.attempts()] == ["interrupted", "failed", "computed"]


def test_a_flow_that_died_leaves_a_child_that_the_next_one_takes_over(
    work_pool: str, command: Callable[..., Command]
):
    one = command("died")
    os.killpg(one.at_work().pid, signal.SIGKILL)
    one.end()
    one.start()
    until(lambda: "is at work already" in one.log())
    one.held.unlink()  # the child goes on
    status, error = one.end()
    assert status == 0, error
    assert child_states("died") == [("grpo_update", "Completed")]
    assert [a.state for a in one.attempts()] == ["computed"]


def test_a_stopped_run_takes_its_child_with_it(work_pool: str, command: Callable[..., Command]):
    one = command("stopped")
    one.at_work().send_signal(signal.SIGTERM)
    status, error = one.end()
    assert status == 143, error
    until(lambda: child_states("stopped") == [("grpo_update", "Cancelled")])


def test_a_child_cancelled_by_hand_ends_its_stage(work_pool: str, command: Callable[..., Command]):
    one = command("cancelled")
    one.at_work()
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(children("cancelled")[0].id, Cancelling())
    status, error = one.end()
    assert status == 1
    assert "stage grpo_update of epoch 1 on work pool machine was cancelled" in error


def test_a_flow_cancelled_from_outside_takes_its_child_with_it(
    work_pool: str, tiny_root: Path, holds: Holds
):
    """Cancel the flow as the UI does: it runs under a worker, which kills its process."""
    distinct = ("grpo.max_grad_norm=1.5", "tracking.enabled=false")
    places = (f"placement.grpo_update={work_pool}", "placement.poll_seconds=0.3")
    config = tiny(tiny_root, *STEPS, *distinct, *places, epochs=1, run_id="outside")
    with get_client(sync_client=True) as client:
        client.create_deployment(
            flow_id=client.create_flow(coevolution),
            name="outside",
            entrypoint="flows.coevolution.coevolution",
            work_pool_name=work_pool,
            enforce_parameter_schema=False,
        )
        parameters = {"config": dump(config)}
        held = holds.at(*SECOND)
        flow = run_deployment("coevolution/outside", parameters=parameters, timeout=0)
        until(held.exists, WAIT_S)
        until(lambda: [r for r in children("outside") if r.state.is_running()], WAIT_S)
        client.set_flow_run_state(flow.id, Cancelling())
        until(lambda: child_states("outside") == [("grpo_update", "Cancelled")], WAIT_S)
        until(lambda: client.read_flow_run(flow.id).state.is_cancelled(), WAIT_S)


def test_without_a_worker_a_stage_says_so_and_fails_in_time(api: None, tiny_root: Path):
    from flows.deploy.stage_on_pool import make_work_pool

    make_work_pool("nobody", kind="process", stages=["rollout"])
    settings = ("placement.rollout=nobody", "placement.start_seconds=3", "rollout.shard_groups=3")
    config = tiny(tiny_root, *settings, "rollout.max_turns=9", epochs=1, run_id="nobody")
    with pytest.raises(StageError, match="no worker is alive: prefect worker start --pool nobody"):
        run(config)
    until(lambda: child_states("nobody") == [("rollout", "Cancelled")])


def test_a_child_that_shows_no_life_is_lost(
    api: None, command: Callable[..., Command], holds: Holds, tmp_path: Path
):
    from flows.deploy.stage_on_pool import make_work_pool

    make_work_pool("weak", kind="process", stages=["grpo_update"])
    with worker("weak", tmp_path / "log", variables=environment() | holds.environment) as process:
        one = command("lost", "placement.lost_seconds=20", at="weak")
        one.at_work()
        process.kill()  # nobody is left to report the child's end
        os.kill(one.pid(), signal.SIGKILL)
        status, error = one.end()
    assert status == 1
    assert "is lost: no sign of life for 20 s" in error
    assert child_states("lost") == [("grpo_update", "Crashed")]


def test_a_work_pool_without_deployments_is_refused_before_any_work(api: None, tmp_path: Path):
    config = tiny(tmp_path, "placement.rollout=nowhere", epochs=1, run_id="x")
    with pytest.raises(ConfigError, match=r"placement.rollout 'nowhere'.*genenv work-pool nowhere"):
        run(config)
    assert not (tmp_path / "runs").exists()
