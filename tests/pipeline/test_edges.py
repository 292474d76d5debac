"""Epochs in which a stage has no input rows still finish, and record it in rows.

Invariants: nothing passes the filter -> both updates that depend on it are skipped, with a row;
every generation invalid, or every attempt broken -> the epoch ends with its counts, and a second
such epoch stops the run;
an agent that no update changed is evaluated once, and every epoch has the result;
an offline file with a broken line is refused with its place.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flows.coevolution import coevolution
from flows.planner import plan_run
from genenv_core.config.schema import RunConfig
from genenv_core.config.until import Until
from genenv_core.domains.trails.trails_domain import TrailsDomain, TrailsEpisode
from genenv_core.errors import DataError, StageError
from genenv_core.types import TaskDraft
from tests.pipeline.builders import manifests, run, sql, tiny
from tests.pipeline.commands import said
from tests.pipeline.test_trails import TRAILS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def dry(api: None, tiny_root: Path) -> RunConfig:
    # p_hat of 4 attempts is a multiple of 1/4, so .37 is never met exactly.
    config = tiny(
        tiny_root,
        "curriculum.alpha=0.37",
        "curriculum.k_min=0",
        "curriculum.filter_agent=true",
        epochs=2,
        run_id="dry",
    )
    run(config)
    return config


def test_nothing_in_the_band_skips_the_environment_update(dry: RunConfig):
    rows = sql(dry, "SELECT * FROM epochs ORDER BY epoch")
    assert rows["env_action"].to_list() == ["skipped", "skipped"]
    assert rows["agent_action"].to_list() == ["skipped", "skipped"]
    assert rows["share_kept"].to_list() == [0.0, 0.0]
    assert "k_min" in rows["env_note"][0]
    assert rows["env_checkpoint"].n_unique() == 1
    kept = sql(dry, "SELECT DISTINCT reason FROM selections WHERE kept")
    assert kept.is_empty()


def test_an_epoch_without_a_task_ends_with_rows_and_a_second_one_stops_the_run(
    api, tiny_root: Path, caplog: pytest.LogCaptureFixture
):
    config = tiny(tiny_root, "generation.max_tokens=1", epochs=3, run_id="invalid")
    with pytest.raises(StageError, match=r"epoch 2 has no valid task: .* so the run stops: change"):
        run(config)
    assert "epoch 1 has no valid task" in caplog.text
    assert [one.status for one in plan_run(config) if one.stage == "generate_tasks"] == [
        "hit",
        "hit",
        "unknown",
    ]
    (row,) = sql(config, "SELECT * FROM epochs").to_dicts()
    assert row["agent_note"] == row["env_note"] == "this epoch has no valid new task"
    assert row["tasks_valid"] == 0 and row["tasks_generated"] > 0
    assert row["p_hat"] is None and row["heldout_success"] is not None
    reasons = sql(config, "SELECT DISTINCT rejection FROM tasks WHERE source = 'generated'")
    assert set(reasons["rejection"]) <= {"truncated", "unparseable"}
    decided = sql(config, "SELECT DISTINCT reason FROM selections")
    assert decided["reason"].to_list() == ["invalid_task"]


def test_an_epoch_of_broken_attempts_is_told_and_a_second_one_stops_the_run(
    api, tiny_root: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    heldout, opened = set[str](), TrailsDomain.episode

    def closed(domain: TrailsDomain, draft: TaskDraft, seed: int) -> TrailsEpisode:
        if draft.fingerprint not in heldout:
            raise ConnectionError("the warehouse is closed")
        return opened(domain, draft, seed)

    def noted(domain: TrailsDomain, draft: TaskDraft, seed: int) -> TrailsEpisode:
        heldout.add(draft.fingerprint)
        return opened(domain, draft, seed)

    monkeypatch.setattr(TrailsDomain, "version", "closed")  # so that no other run reuses its stages
    # Without the guard, as certificates play the tasks and refuse what cannot be solved.
    settings = (*TRAILS, "generation.guard=false", "execution.retries=0")
    config = tiny(tiny_root, *settings, epochs=3, run_id="broken")
    monkeypatch.setattr(TrailsDomain, "episode", noted)
    coevolution(config, Until(stage="evaluate", epoch=0))
    monkeypatch.setattr(TrailsDomain, "episode", closed)
    why = r"epoch 2: all \d+ attempts ended in an error.*warehouse is closed.*the run stops: mend"
    with pytest.raises(StageError, match=why):
        run(config)
    assert "epoch 1: all" in caplog.text
    (row,) = sql(config, "SELECT * FROM epochs").to_dicts()
    assert row["p_hat"] is None and row["attempts_lost"] > 0
    assert row["agent_action"] == row["env_action"] == "skipped"
    shown = said("status", "broken", "--root", str(tiny_root), cwd=tiny_root)
    told = " ".join(shown.stdout.split())
    assert "warning: epochs 1 to 2: " in told and "warehouse is closed" in told
    assert "look at one with genenv trace" in told
    assert told.count("attempts ended in an error") == 1  # and not as the stage says it too
    assert "attempts were lost by the environment" in told


def test_the_offline_arm_reads_its_tasks_from_a_file(
    dry: RunConfig, tiny_root: Path, tmp_path: Path
):
    base = sql(dry, "SELECT program FROM tasks WHERE source = 'base' ORDER BY task_id")
    programs = base["program"].to_list()
    path = tmp_path / "teacher.jsonl"
    path.write_text("".join(json.dumps({"program": p}) + "\n" for p in programs))
    config = tiny(tiny_root, "arm=offline", f"teacher.file={path}", epochs=1, run_id="arm-offline")
    run(config)
    taught = sql(config, "SELECT program, valid FROM tasks WHERE source = 'teacher'")
    assert taught["program"].to_list() == programs[:8]
    assert manifests(config)[(1, "rwr_update")].facts["action"] == "skipped"
    path.write_text(path.read_text() + '{"program": "what?"}\n')
    broken = tiny(
        tiny_root, "arm=offline", f"teacher.file={path}", epochs=1, run_id="offline-broken"
    )
    with pytest.raises(DataError, match=rf"teacher.jsonl:{len(programs) + 1}: .*what"):
        run(broken)


def test_a_closed_gate_keeps_the_last_good_checkpoint_and_says_why(api, tiny_root: Path):
    closed = ("gates.min_entropy=50", "gates.max_kl_env=1.0e-9")
    config = tiny(tiny_root, *closed, epochs=1, run_id="gated")
    run(config)
    rows = sql(config, "SELECT * FROM checkpoints WHERE epoch > 0 AND steps > 0")
    assert rows.height >= 2
    assert not rows["published"].any()
    assert set(rows["gate"]) == {"entropy", "kl_env"}
    assert all("gates." in detail for detail in rows["gate_detail"])
    first = sql(config, "SELECT DISTINCT digest FROM checkpoints WHERE epoch = 0")
    evaluated = sql(config, "SELECT DISTINCT epoch, measured_epoch FROM evaluations")
    assert (evaluated["epoch"] == evaluated["measured_epoch"]).all()  # each candidate was measured
    current = sql(config, "SELECT DISTINCT agent_checkpoint FROM epochs")
    assert current["agent_checkpoint"].to_list()[0] in first["digest"].to_list()
