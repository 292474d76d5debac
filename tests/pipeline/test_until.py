"""A run that is asked to end before its last stage.

Invariants: every stage up to the end is finished, the one beside it too, and no later one has
begun; nothing has failed, in the run's history or in Prefect; the next command goes on, and the
whole gives the keys of a run that never ended; the plan shows what will be done; where the run
ended is noted until a command takes it on.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.sorting import FlowRunSort

from flows.coevolution import coevolution
from flows.planner import plan_run
from genenv_core.config.stages import EPOCH_STAGES
from genenv_core.config.until import Until
from genenv_core.storage.records.endings import Ending, read_ending
from genenv_core.storage.store.local import LocalStore
from tests.mutations import mutation
from tests.pipeline.builders import manifests, run, states, tiny

NEWEST = FlowRunSort.START_TIME_DESC


@mutation(
    "a command that takes a run on leaves the note of its end", "tasks/upkeep/opening.py",
    "    clear_ending(store, name)\n", "",
)  # fmt: skip
@pytest.mark.usefixtures("api")
def test_a_run_ends_where_it_is_asked_to_and_goes_on(tiny_root: Path) -> None:
    config = tiny(tiny_root, "rwr.steps=5", run_id="until", epochs=2)
    end = Until(stage="grpo_update", epoch=1)
    planned = {(one.epoch, one.stage) for one in plan_run(config, end)}
    assert coevolution(config, end) is None
    store = LocalStore(tiny_root)
    assert read_ending(store, "until") == Ending(stage="grpo_update", epoch=1)
    done = set(manifests(config))
    wanted = {(1, s) for s in EPOCH_STAGES[: EPOCH_STAGES.index("grpo_update") + 1]}
    assert done - {(0, s) for _, s in done} == wanted == {p for p in planned if p[0]}
    assert {state for _, _, state in states(config)} <= {"computed", "cached"}
    with get_client(sync_client=True) as client:
        found = [
            flow
            for flow in client.read_flow_runs(sort=NEWEST, limit=200)
            if flow.name.startswith("until")
        ]
    assert {flow.state_name for flow in found} == {"Completed"} and len(found) == 2
    for start in (Until(stage="evaluate", epoch=0), Until(stage="publish", epoch=1)):
        coevolution(config, start)
    assert {epoch for epoch, _ in manifests(config)} == {0, 1}
    assert read_ending(store, "until") == Ending(stage="publish", epoch=1)
    run(config)
    assert read_ending(store, "until") is None
    straight = tiny(tiny_root, "rwr.steps=5", run_id="straight", epochs=2)
    assert {entry.status for entry in plan_run(straight)} == {"hit"}
    assert {one.key for one in plan_run(straight)} == {m.key for m in manifests(config).values()}
