"""A real `genenv up`: server, MLflow, worker, deployments, and runs that a worker carries out.

Invariants: the API refuses what the form's model does not allow, with its path; a run whose process
is killed does not stay Running, whoever is left to notice, and Retry continues it with what was
finished Cached; a cancelled run is Cancelled; two flow runs of one run work one after the other, of
two runs side by side; a comparison plays each run once; state survives a restart; a second `genenv
up`, a taken port and a dead child give one line each, and nothing is left running.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from mlflow import MlflowClient

from flows.deploy.requests import configuration
from flows.up.services import Settings, worker_environment
from genenv_core.config.request import RunRequest
from genenv_core.domains.registry import get_domain
from genenv_core.exchange.external import given_to
from genenv_core.storage.records.keys import stage_key
from tasks.bootstrap import STAGE as BOOTSTRAP
from tasks.stage.key import parts_of
from tasks.stage.stores import leases_of
from tests.hold.forks import Forks
from tests.infra.servers import RUN_S, Up, free_port
from tests.pipeline.commands import REPOSITORY, environment, genenv
from tests.waiting import BOUND_S, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

TINY: dict[str, Any] = {"preset": "tiny", "tracking": {"enabled": False}}
UPDATE = "stage=grpo_update epoch=1"
"""What a `long` run logs when it is at its longest stage."""
SIGKILL_ADVICE = "Check whether the flow run exceeded its memory allocation"
"""What Prefect's worker logs after each of its two reports of a killed process."""


def long(passes: int) -> dict[str, Any]:
    """Return a request for a run whose update takes seconds; `passes` makes its key unique."""
    return {**TINY, "epochs": 1, "grpo": {"passes": passes}}


def process_of(run: str) -> psutil.Process:
    """Return the process that executes a flow run."""
    for process in psutil.process_iter():
        try:
            variables = process.environ()
        except psutil.Error:
            continue
        if variables.get("PREFECT__FLOW_RUN_ID") == run and "prefect.engine" in process.cmdline():
            return process
    raise AssertionError(f"no process executes {run}")


def started(up: Up, text: str, **request: Any) -> str:
    """Start a co-evolution; returns the flow run's id once its log contains a text."""
    before = len(up.worker_log())
    run = up.start("coevolution", **request)
    # The worker's own log has it at once, the API's in batches.
    until(lambda: text in up.worker_log()[before:], RUN_S)
    return run


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Run one `genenv up` for the tests of this file; it, its servers and its runs are forked."""
    with Forks(tmp_path_factory.mktemp("forks"), "flows.deploy.deployed", "mlflow") as forks:
        started = Up(tmp_path_factory.mktemp("up") / "root", python=forks.python)
        try:
            yield started.wait()
        finally:
            started.stop()


@pytest.fixture(scope="module", autouse=True)
def silent(up: Up, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Kill a run after its first heartbeat, which no worker watches; returns the flow run's id.

    Prefect waits for more of it while the tests of this file play. It has a work pool of its own:
    in that of the others it would take one of two places.
    """
    assert up.call("POST", "/work_pools/", {"name": "lost", "type": "process"})[0] == 201
    known = up.deployment("coevolution")
    alone = {"name": "alone", "work_pool_name": "lost", "enforce_parameter_schema": False}
    made = {**alone, "flow_id": known["flow_id"], "entrypoint": known["entrypoint"]}
    where = f"/deployments/{up.call('POST', '/deployments/', made)[1]['id']}/create_flow_run"
    request = {"run_id": "zombie", "seed": 1, **long(41)}
    body = {"parameters": {"request": request}, "state": {"type": "PENDING"}}
    status, answer = up.call("POST", where, body)
    assert status == 201, answer
    run = answer["id"]
    settings = Settings(up.root, up.ports[0], up.ports[1], up.view_port)
    with (tmp_path_factory.mktemp("lost") / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "prefect.engine"],
            env={**worker_environment(settings), "PREFECT__FLOW_RUN_ID": run},
            cwd=up.root.parent,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    of_run = {"resource": {"id": [f"prefect.flow-run.{run}"]}}
    beats = {"filter": {"event": {"name": ["prefect.flow-run.heartbeat"]}, **of_run}}
    try:
        until(lambda: up.call("POST", "/events/filter", beats)[1]["total"])
    finally:
        process.kill()
        process.wait()
    assert up.flow_run(run)["state"]["type"] == "RUNNING"
    return run


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"nope": 1}, ["'request'", "nope"]),
        ({"rwr": {"stepz": 1}}, ["request.rwr", "stepz"]),
        ({"curriculum": {"alpha": 2}}, ["request.curriculum.alpha", "maximum of 1"]),
        ({"preset": "huge"}, ["request.preset", "tiny"]),
    ],
)
def test_bad_values_are_refused_by_the_api_with_their_path(up: Up, request_, words):
    status, answer = up.request("coevolution", request_)
    assert status == 409
    for word in words:
        assert word in answer["detail"]


def test_a_killed_run_ends_crashed_and_retry_continues_it(up: Up):
    run = started(up, UPDATE, run_id="killed", **long(44))
    before = len(up.worker_log())
    process_of(run).kill()
    ended = up.until(run)
    assert ended["state"]["type"] == "CRASHED"
    assert "SIGKILL" in ended["state"]["message"]  # the worker said it, not the heartbeats
    # The worker reports the end twice, each time with this advice; its second report would undo a
    # Retry that comes before it.
    until(lambda: up.worker_log().count(SIGKILL_ADVICE, before) == 2)
    up.retry(run)
    again = up.until(run, ["COMPLETED", "FAILED"], attempt=2)
    assert again["state"]["type"] == "COMPLETED", again["state"]
    first, second = up.epochs(run, number=1)
    assert second["rollout · epoch 1 of 1"] == "Cached"
    assert second["grpo_update · epoch 1 of 1"] == "Completed"
    assert "Running" not in first.values()


def test_a_cancelled_run_is_cancelled(up: Up):
    run = started(up, UPDATE, run_id="cancelled", **long(42))
    up.set_state(run, "CANCELLING", "Cancelling")
    ended = up.until(run, seconds=RUN_S)
    assert ended["state"]["type"] == "CANCELLED"
    with pytest.raises(AssertionError):
        process_of(run)


def test_one_flow_run_a_run_at_a_time_and_two_runs_side_by_side(up: Up):
    wanted = {**long(43), "run_id": "same", "seed": 2, "root": str(up.root)}
    config = configuration(RunRequest.model_validate(wanted))
    domain = get_domain(config.domain.name, config.domain.options)
    bootstrap = stage_key(parts_of(BOOTSTRAP, config, 0, given_to(config, domain)))
    # The first one waits for this test until the second has begun.
    with leases_of(config.root).hold("bootstrap", bootstrap, lambda: None):
        first = started(up, "stage=bootstrap epoch=0", **wanted)
        second = started(up, "run same is at work in", **wanted)
        assert up.flow_run(first)["state"]["type"] == "RUNNING"
        assert not up.stages(second)
    done = [up.until(run) for run in (first, second)]
    assert {run["state"]["type"] for run in done} == {"COMPLETED"}
    assert set(up.epochs(second, number=1)[0].values()) == {"Cached"}
    others = [up.start("coevolution", run_id=name, **TINY) for name in ("left", "right")]
    ended = [up.until(run) for run in others]
    assert {run["state"]["type"] for run in ended} == {"COMPLETED"}
    assert max(run["start_time"] for run in ended) < min(run["end_time"] for run in ended)


def test_an_epoch_and_a_stage_of_a_run(up: Up):
    run = up.start("coevolution", run_id="parts", **long(45) | {"tracking": {}})
    assert up.until(run)["state"]["type"] == "COMPLETED"
    page = f"http://127.0.0.1:{up.view_port}/runs/parts"
    with urllib.request.urlopen(page, timeout=60) as answer:
        assert "Success on new tasks" in answer.read().decode()
    status = genenv("status", "parts", "--root", str(up.root), cwd=up.root.parent)
    assert page in status.stdout
    versions = MlflowClient(up.mlflow_url).search_model_versions()
    made = f"{page}/checkpoints/agent/1"
    assert made in {version.tags.get("genenv.view") for version in versions}
    with urllib.request.urlopen(made, timeout=60) as answer:
        assert "Rows that the update trained on" in answer.read().decode()
    stage = up.start("rollout", run_id="parts", epoch=1)
    assert up.until(stage)["state"]["type"] == "COMPLETED"
    assert up.stages(stage) == {"rollout · epoch 1 of 1": "Cached"}
    early = up.until(up.start("grpo_update", run_id="parts", epoch=3))
    assert early["state"]["type"] == "FAILED"
    assert " of run parts is not finished" in early["state"]["message"]
    epoch = up.start("epoch", run_id="parts")
    assert up.until(epoch)["state"]["type"] == "COMPLETED"
    assert up.stages(epoch)["publish · epoch 2 of 2"] == "Completed"


def test_a_comparison_plays_its_arms_as_runs_of_the_pool(up: Up):
    asked = {"preset": "tiny", "arms": ["genenv", "base"], "seeds": 1}
    changes = ["epochs=1", "tracking.enabled=false", "rollout.n=5"]
    flow = up.start("compare", **asked, changes=changes)
    assert up.until(flow)["state"]["type"] == "COMPLETED"
    played = up.stages(flow)
    assert {played["genenv · seed 0"], played["base · seed 0"]} == {"Completed"}
    assert len(played) == 4  # Prefect shows a flow run that a task started as one more task
    made = [one for key, one in up.artifacts().items() if key.startswith("verdicts-tiny")]
    assert "genenv, base: 1 seeds" in made[0]["data"]
    assert len(list((up.root / "comparisons").glob("*/runs/*.html"))) == 2
    again = up.start("compare", **asked, changes=changes)
    assert up.until(again)["state"]["type"] == "COMPLETED"
    assert up.stages(again) == dict.fromkeys(("genenv · seed 0", "base · seed 0"), "Cached")
    wrong = up.request("compare", {**asked, "arms": ["genenv"]})
    assert wrong[0] == 409


def test_a_run_that_nobody_is_left_to_report_ends_crashed(up: Up, silent: str):
    ended = up.until(silent)
    assert ended["state"]["type"] == "CRASHED"
    assert "no heartbeat for 95 s" in ended["state"]["message"]


@pytest.mark.xfail(
    strict=True,
    reason="Prefect 3.8.8 beside fastapi 0.154 refuses the `limit: null` of its own client, after "
    "it has registered the first deployment; `genenv deploy` registers the same ones",
)
def test_prefect_deploy_takes_the_file_in_infra(up: Up):
    command = ["-m", "prefect", "--no-prompt", "deploy", "-n", "epoch", "-n", "rollout"]
    done = subprocess.run(
        [sys.executable, *command, "--prefect-file", "infra/prefect.yaml"],
        cwd=REPOSITORY,
        env=environment(
            PREFECT_API_URL=f"{up.url}/api", GENENV_POOL="genenv", GENENV_GPU_POOL="genenv",
            DO_NOT_TRACK="1", PREFECT_HOME=str(up.root / "deployer"),
        ),
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    deployed = up.deployment("rollout")
    assert deployed["entrypoint"] == "flows.deploy.deployed.rollout"
    assert deployed["work_pool_name"] == "genenv"


@pytest.fixture
def ups() -> Iterator[Callable[..., Up]]:
    """Return a function that starts a `genenv up`; every one is stopped after the test."""
    made: list[Up] = []

    def start(*arguments: Any, **options: Any) -> Up:
        made.append(Up(*arguments, **options))
        return made[-1]

    yield start
    for one in made:
        one.stop()


def test_restart_a_second_one_and_a_dead_child(tmp_path: Path, ups: Callable[..., Up]):
    ports = (free_port(), free_port())
    first = ups(tmp_path / "root", ports=ports).wait()
    schedule = first.deployment("coevolution")["schedules"][0]
    assert schedule["active"] is False
    where = f"/deployments/{first.deployment('coevolution')['id']}/schedules/{schedule['id']}"
    assert first.call("PATCH", where, {"active": True})[0] == 204
    second = ups(tmp_path / "root")
    assert second.process.wait(BOUND_S) == 1
    assert f"already, pid {first.process.pid}, at {first.url}" in second.output
    third = ups(tmp_path / "other", ports=ports)
    assert third.process.wait(BOUND_S) == 2
    assert f"port {ports[0]}" in third.output and "uvicorn" in third.output
    family = psutil.Process(first.process.pid).children(recursive=True)
    assert first.stop(signal.SIGTERM) == 0
    assert "stopped" in first.output
    assert not any(process.is_running() for process in family)

    again = ups(tmp_path / "root", ports=ports).wait()
    assert again.deployment("coevolution")["schedules"][0]["active"] is True
    family = psutil.Process(again.process.pid).children(recursive=True)
    os.kill(next(p.pid for p in family if "worker" in p.cmdline()), signal.SIGKILL)
    assert again.process.wait(BOUND_S) == 1
    assert "worker has ended with status -9" in again.output
    assert not any(process.is_running() for process in family)
