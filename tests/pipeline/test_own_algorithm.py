"""The REINFORCE of docs/examples in a whole run.

Invariants: two epochs end, both updates of the agent are computed by it, and the stored advantages
are its own; a run that was killed in the seal of a trainer checkpoint ends with the tables and
weights of one that never was.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.pipeline.builders import manifests, run, sql, tiny
from tests.pipeline.commands import REPOSITORY
from tests.same import main
from tests.storm import points
from tests.storm.points import Plan
from tests.storm.storm import RUN, Zygote, last_line
from tests.storm.zygote import zygote_of_the_api

SETTINGS = (
    f"agent_update.algorithm={REPOSITORY / 'docs' / 'examples' / 'reinforce.py'}:Reinforce",
    "grpo.passes=1",
    "grpo.groups_per_step=2",
    "execution.checkpoint_seconds=0",
)

KILL = Plan(kind=points.SEAL, number=2, whom="tree")


@pytest.fixture(scope="module")
def zygote(api: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    with zygote_of_the_api(tmp_path_factory.mktemp("zygote")) as started:
        yield started


@pytest.mark.slow
def test_a_run_by_it_that_was_killed_ends_like_one_that_never_was(
    zygote: Zygote, begun: Callable[[Path], None], tmp_path: Path
) -> None:
    whole, root, output = tmp_path / "whole", tmp_path / "root", tmp_path / "log"
    begun(whole)
    begun(root)
    config = tiny(whole, *SETTINGS, epochs=2, run_id=RUN)
    run(config)
    options = [word for one in (*SETTINGS, "tracking.enabled=false") for word in ("--set", one)]
    for plan, status in ((KILL, -signal.SIGKILL), (Plan(), 0)):
        ended = zygote.run(root, plan, output, 0, "--epochs", "2", *options)
        assert ended.status == status, (plan, last_line(output))
    assert main(str(whole), str(root), RUN) == 0
    for epoch in (1, 2):
        facts = manifests(config)[(epoch, "grpo_update")].facts
        assert facts["action"] == "updated" and facts["steps"] >= 2
        assert "clip_fraction" not in facts["metrics"]
    rows = sql(
        config,
        "SELECT u.advantage, s.reward - avg(s.reward) OVER (PARTITION BY u.epoch, u.group_id) "
        "AS own "
        "FROM update_samples AS u JOIN scores AS s ON s.trace_id = u.row_id "
        "WHERE u.policy = 'agent'",
    )
    gaps = [abs(own - stored) for stored, own in rows.iter_rows()]
    assert len(gaps) > 16 and max(gaps) < 1e-9
