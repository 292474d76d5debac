"""A small storm of kill -9 on one run, and SIGTERM; `make crash-storm` is the large one.

Invariants: a run that was killed inside a checkpoint's adoption, the making of MLflow's database,
MLflow logging, a shard, a pool append, a training step, the seal of a trainer checkpoint, and
between manifest and run record ends with the tables, manifests, weights and MLflow entries of an
unharmed one, and so do one killed in the rounds of a refill, whose batch is full, and one whose
attempts have several sequences; SIGTERM ends a rollout after its shard and an update after its
step, and the next run does only the rest.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from genenv_core.config.until import Until
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.store.local import LocalStore
from tests.pipeline.builders import run, sql, tiny
from tests.storm import points
from tests.storm.compare import differences
from tests.storm.points import Plan
from tests.storm.storm import RUN, Zygote, last_line
from tests.storm.zygote import zygote_of_the_api

KILLS = [
    Plan(kind="adopting a checkpoint's file", number=2, whom="tree"),
    Plan(kind=points.MLFLOW_SQL, number=100, whom="parent"),
    Plan(kind=points.MLFLOW, number=20, after=True, whom="tree"),
    Plan(kind="writing a shard's record", number=1, whom="parent"),
    Plan(kind=points.APPEND, number=1, after=True, whom="tree"),
    Plan(kind=points.SEAL, number=2, whom="tree"),
    Plan(kind=points.STEP, number=1, whom="worker"),
    Plan(kind="between manifest and run record", number=1, whom="parent"),
]
"""In the order of a run, so that each is reached after the one before it."""


@pytest.fixture(scope="module")
def zygote(api: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    with zygote_of_the_api(tmp_path_factory.mktemp("zygote")) as started:
        yield started


@pytest.mark.slow
def test_a_run_that_was_killed_again_and_again_ends_like_one_that_never_was(
    zygote: Zygote, begun: Callable[[Path], None], tmp_path: Path
):
    begun(tmp_path / "reference")
    settings = ("tracking.enabled=true", "execution.checkpoint_seconds=0")
    reference = tiny(tmp_path / "reference", *settings, epochs=1, run_id=RUN)
    run(reference)
    root, output = tmp_path / "root", tmp_path / "log"
    for plan in KILLS:
        ended = zygote.run(root, plan, output, 0, "--epochs", "1")
        expected = 1 if plan.whom == "worker" else -signal.SIGKILL
        assert ended.status == expected, (plan, last_line(output))
    ended = zygote.run(root, Plan(), output, 0, "--epochs", "1")
    assert ended.status == 0, last_line(output)
    assert differences(tmp_path / "reference", root, RUN) == []


REFILL = (
    "generation.candidates=3",
    "generation.max_generations=96",
    "refill.groups=12",
    "grpo.max_groups=20",
    "rollout.shard_groups=2",
)
REFILLS = [
    Plan(kind="writing a shard's record", number=3, whom="parent"),
    Plan(kind="writing a shard's record", number=5, after=True, whom="tree"),
    Plan(kind="writing a shard's record", number=1, whom="tree"),
    Plan(kind="between manifest and run record", number=2, whom="parent"),
]
"""In the first round, which has six shards, after the first shard of the second round, and then."""


@pytest.mark.slow
def test_a_run_that_was_killed_while_it_refilled_ends_like_one_that_never_was(
    zygote: Zygote, begun: Callable[[Path], None], tmp_path: Path
):
    begun(tmp_path / "reference")
    settings = ("tracking.enabled=true", "execution.checkpoint_seconds=0", *REFILL)
    reference = tiny(tmp_path / "reference", *settings, epochs=1, run_id=RUN)
    run(reference)
    refilled = sql(reference, "SELECT tasks_refilled FROM epochs WHERE epoch = 1").item()
    groups = sql(reference, "SELECT count(*) FROM task_scores WHERE source <> 'base'").item()
    assert refilled == groups - 8 > 3
    kept = (
        "SELECT count(*) FROM selections JOIN tasks USING (task_id) "
        "WHERE update = 'agent' AND kept AND source = 'generated'"
    )
    assert sql(reference, kept).item() == 12  # the batch is full, and no fuller
    root, output = tmp_path / "root", tmp_path / "log"
    options = ["--epochs", "1", *(part for one in REFILL for part in ("--set", one))]
    for plan in REFILLS:
        ended = zygote.run(root, plan, output, 0, *options)
        assert ended.status == -signal.SIGKILL, (plan, last_line(output))
    assert zygote.run(root, Plan(), output, 0, *options).status == 0, last_line(output)
    assert differences(tmp_path / "reference", root, RUN) == []


FORGETFUL = (
    "domain.name=trails",
    "domain.options={max_looks: 2, history: 2}",
    "rollout.max_turns=4",
    "rollout.shard_groups=2",
)
"""Attempts whose conversation begins anew after each look, so that they have several sequences."""

FORGOTTEN = [
    Plan(kind="writing a shard's record", number=2, whom="tree"),
    Plan(kind=points.STEP, number=1, whom="tree"),
]
"""Amid the shards of the rollout, and in the update of either policy."""


@pytest.mark.slow
def test_attempts_of_several_sequences_survive_kills(zygote: Zygote, tmp_path: Path):
    from flows.coevolution import coevolution

    start, reference, root = (tmp_path / name for name in ("start", "reference", "root"))
    coevolution(tiny(start, *FORGETFUL, run_id="start"), Until(stage="evaluate", epoch=0))
    for copy in (reference, root):
        shutil.copytree(start, copy)
    settings = ("tracking.enabled=true", "execution.checkpoint_seconds=0", *FORGETFUL)
    whole = tiny(reference, *settings, epochs=1, run_id=RUN)
    run(whole)
    drawn = (
        "SELECT sequence, count(*) AS rows FROM trace_sequences JOIN update_samples "
        "ON row_id = trace_id WHERE policy = 'agent' GROUP BY ALL ORDER BY 1"
    )
    assert [number for number, rows in sql(whole, drawn).rows() if rows > 3] == [1, 2]
    options = ["--epochs", "1", *(part for one in FORGETFUL for part in ("--set", one))]
    stopped: list[str] = []
    for plan in FORGOTTEN:
        ended = zygote.run(root, plan, tmp_path / "log", 0, *options)
        assert ended.status == -signal.SIGKILL, (plan, last_line(tmp_path / "log"))
        stopped.append(RunLog(LocalStore(root), RUN).attempts()[-1].stage)
    assert stopped[0] == "rollout" and stopped[1] in ("grpo_update", "rwr_update"), stopped
    assert zygote.run(root, Plan(), tmp_path / "log", 0, *options).status == 0
    assert differences(reference, root, RUN) == []


@pytest.mark.slow
def test_sigterm_ends_a_rollout_after_its_shard_and_an_update_after_its_step(
    zygote: Zygote, begun: Callable[[Path], None], tmp_path: Path
):
    root, output, census = tmp_path / "root", tmp_path / "log", tmp_path / "census"
    begun(root)
    census.mkdir()
    store = LocalStore(root)
    options = ("--epochs", "1", "--set", "rollout.shard_groups=2", "--set", "grpo.passes=8")
    kind = "writing a shard's record"
    plan = Plan(kind=kind, number=2, whom="tree", signal=signal.SIGTERM)
    assert zygote.run(root, plan, output, 0, *options).status == 143
    assert last_line(output).endswith(
        "stopped by SIGTERM: the same command continues from rollout of epoch 1"
    )
    assert RunLog(store, RUN).attempts()[-1].state == "interrupted"
    kept = store.list("shards")

    # The worker that ends a step notifies all, itself included.
    plan = Plan(kind=points.STEP_END, number=1, signal=signal.SIGTERM, census=str(census))
    assert zygote.run(root, plan, output, 0, *options).status == 143
    assert "grpo_update of epoch 1" in last_line(output)
    shards = store.list("shards")
    assert 2 <= len(kept) < len(shards)
    assert (census / kind).stat().st_size == len(shards) - len(kept)

    assert zygote.run(root, Plan(), output, 0, *options).status == 0
    assert "stage=grpo_update epoch=1 resumed_at=" in (root / f"runs/{RUN}/run.log").read_text()
    assert store.list("leases") == []
