"""A run that branches off from another one.

Invariants: with equal settings it has the keys of the other run, so everything is reused and equal
to the bit; with others, only what reads them is computed, and the same command computes nothing
more; what it takes over stands in its history as reused, and in Prefect as one task; a plan says
so before, and writes nothing.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import TaskRunFilter, TaskRunFilterName
from prefect.client.schemas.sorting import TaskRunSort

from flows.coevolution import coevolution
from flows.planner import plan_run
from genenv_core.config.branching import BranchPoint
from genenv_core.config.until import Until
from genenv_core.errors import ConfigError
from genenv_core.storage.records.branches import read_branch
from genenv_core.storage.store.opening import open_store
from tests.pipeline.builders import computed, manifests, sql, states, tiny
from tests.waiting import until

pytestmark = pytest.mark.slow

POINT = BranchPoint(run_id="trunk", epoch=1)
LAST = "gates.max_validation_drop=0.9"
"""A setting that the last stage of an epoch reads and no other one."""


@pytest.mark.usefixtures("api")
def test_a_branch_takes_over_what_is_stored_and_goes_on(tiny_root: Path) -> None:
    trunk = tiny(tiny_root, run_id="trunk", epochs=2)
    state = coevolution(trunk)
    same = tiny(tiny_root, run_id="branch", epochs=2)
    assert {one.status for one in plan_run(same, point=POINT)} == {"hit"}
    store = open_store(str(tiny_root))
    assert read_branch(store, "branch") is None
    assert coevolution(same, point=POINT) == state
    assert {place: one.key for place, one in manifests(same).items()} == {
        place: one.key for place, one in manifests(trunk).items()
    }
    assert not computed(states(same)) and len(states(same)) == len(manifests(trunk))
    both = [sql(one, "FROM epochs ORDER BY epoch").drop("run_id") for one in (trunk, same)]
    told = ["epoch", "tasks_valid", "p_hat", "heldout_success", "kl_env"]
    assert both[0].select(told).equals(both[1].select(told)) and both[0].height == 2
    assert sql(same, "SELECT * FROM reused WHERE computed_by IS NULL").is_empty()
    assert sql(same, "SELECT branch_of, branch_epoch FROM runs").rows() == [("trunk", 1)]

    changed = tiny(tiny_root, LAST, run_id="changed", epochs=2)
    planned = {(one.epoch, one.stage) for one in plan_run(changed, point=POINT) if not one.ref}
    assert planned == {(2, "publish")}
    coevolution(changed, point=POINT)
    assert computed(states(changed)) == planned
    for point in (POINT, None):  # the same command, and as resumed
        assert {one.status for one in plan_run(changed, point=point)} == {"hit"}
    # Prefect takes in task runs after they have ended.
    assert until(lambda: taken_over() == ["Cached", "Cached"])

    early = Until(stage="rollout", epoch=1)
    with pytest.raises(ConfigError, match="--until rollout@1: epoch 1 is taken over"):
        plan_run(changed, early)
    with pytest.raises(ConfigError, match="--force rollout@1: epoch 1 is taken over"):
        plan_run(changed, None, early)


def taken_over() -> list[str | None]:
    """Return the state of each Prefect task that took over the trunk's first epochs."""
    named = TaskRunFilter(name=TaskRunFilterName(any_=["epochs 0 to 1 of run trunk"]))
    newest = TaskRunSort.EXPECTED_START_TIME_DESC
    with get_client(sync_client=True) as client:
        found = client.read_task_runs(task_run_filter=named, sort=newest, limit=10)
    return [task.state_name for task in found]
