"""A second draw of a stage in a run.

Invariants: it gives other rows, and what follows from it is computed anew; what comes before is
reused; a run that is cut off in the middle is continued with that draw; a plan writes nothing.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.coevolution import coevolution
from flows.planner import plan_run
from genenv_core.config.until import Until
from genenv_core.storage.records.draws import read_draws
from genenv_core.storage.store.opening import open_store
from tests.pipeline.builders import manifests, run, tiny

pytestmark = pytest.mark.slow


@pytest.mark.usefixtures("api")
def test_a_stage_is_drawn_anew_and_a_cut_off_run_goes_on_with_it(tiny_root: Path) -> None:
    config = tiny(tiny_root, "grpo.passes=1", run_id="forced", epochs=1)
    run(config)
    before, rollout = manifests(config), Until(stage="rollout", epoch=1)
    planned = {one.stage: one for one in plan_run(config, force=rollout) if one.epoch}
    assert planned["rollout"].changed == ("draw 0 -> 1",)
    assert planned["generate_tasks"].status == "hit"
    assert {one.status for one in plan_run(config)} == {"hit"}
    coevolution(config, Until(stage="score", epoch=1), rollout)  # cut off before the updates
    store = open_store(config.root)
    assert read_draws(store, "forced").open == ("rollout@1",)
    drawn = manifests(config)[1, "rollout"]
    assert drawn.key_parts["draw"] == 1 and drawn.digest != before[1, "rollout"].digest
    coevolution(config, None, rollout)  # the same command
    after = manifests(config)
    assert after[1, "rollout"].key == drawn.key
    assert after[1, "generate_tasks"].key == before[1, "generate_tasks"].key
    for stage in ("score", "pool", "grpo_update", "rwr_update"):
        assert after[1, stage].key != before[1, stage].key
    assert read_draws(store, "forced").open == ()
    assert {one.status for one in plan_run(config)} == {"hit"}
    other = tiny(tiny_root, "grpo.passes=1", run_id="unforced", epochs=1)
    keys = {one.key for one in plan_run(other)}
    assert keys == {manifest.key for manifest in before.values()}  # of another run: the first draw
