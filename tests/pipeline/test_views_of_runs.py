"""The views and what_if on real runs: of each arm, and of a stopped one.

Invariants: each arm trains what it should and no more; every view answers, with the columns of the
dictionary; the numbers are those of the tables, counted here; an arm shows what it does and nothing
else; a stopped run shows its finished stages, and no epoch.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import polars as pl
import pytest

from flows.planner import plan_run
from genenv_core.config.schema import RunConfig
from genenv_core.config.stages import LAST
from genenv_core.errors import StageError
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.sql.catalog import query
from genenv_core.storage.sql.sources import open_tables
from genenv_core.storage.store.local import LocalStore
from schemas.relations import describe
from tests.examples import some
from tests.pipeline.builders import manifests, run, sql, tiny

pytestmark = pytest.mark.slow

ASKED = [relation for relation in describe() if relation.kind != "table"]
TRAINS_AGENT = {"random", "static", "offline"}
TABLES = ("tasks", "traces", "scores", "task_scores", "selections", "update_samples", "evaluations")
Views = dict[str, pl.DataFrame]


def views_of(config: RunConfig) -> Views:
    """Return all views and macros over one run, and the tables to compare them with."""
    found: Views = {}
    with open_tables(LocalStore(Path(config.root)), [str(config.run_id)]) as connection:
        for relation in ASKED:
            found[relation.name] = query(connection, f"FROM {relation.reference}")
            assert found[relation.name].columns == [column.name for column in relation.columns]
        for table in TABLES:
            found[table] = query(connection, f"FROM {table}")
    return found


def has_played(config: RunConfig) -> bool:
    log = RunLog(LocalStore(Path(config.root)), str(config.run_id))
    return LAST in log.keys(config.epochs)


@pytest.fixture(scope="module")
def offline_file(api: None, tiny_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = tiny(tiny_root, "arm=base", run_id="arm-base")
    if not has_played(config):
        run(config)
    programs = sql(config, "SELECT program FROM tasks WHERE source = 'base' ORDER BY task_id")
    path = tmp_path_factory.mktemp("offline") / "teacher.jsonl"
    path.write_text("".join(json.dumps({"program": p}) + "\n" for p in programs["program"]))
    return path


@pytest.fixture(params=some(("static", "random", "base", "offline"), ("base", "offline")))
def played(request: pytest.FixtureRequest, tiny_root: Path, offline_file: Path) -> RunConfig:
    """Complete a run of an arm, or reuse the one that there is."""
    settings = [f"arm={request.param}"]
    epochs = None
    if request.param == "offline":
        settings.append(f"teacher.file={offline_file}")
        epochs = 1
    config = tiny(tiny_root, *settings, epochs=epochs, run_id=f"arm-{request.param}")
    if not has_played(config):
        run(config)
    return config


def test_each_arm_trains_what_it_should(played: RunConfig) -> None:
    found, arm, epochs = manifests(played), played.arm.value, range(1, played.epochs + 1)
    for epoch in epochs:
        assert found[(epoch, "rwr_update")].facts["action"] == "skipped"
        assert "arm" in found[(epoch, "rwr_update")].facts["note"]
    actions = {found[(epoch, "grpo_update")].facts["action"] for epoch in epochs}
    assert ("updated" in actions) == (arm in TRAINS_AGENT)
    assert sql(played, "SELECT DISTINCT env_checkpoint FROM epochs").height == 1
    if arm == "base":  # the same weights in every epoch: epoch 0 measured them
        told = sql(played, "SELECT * EXCLUDE (epoch) FROM evaluations ORDER BY ALL")
        assert told.unique().height * 3 == told.height
        assert told["measured_epoch"].unique().to_list() == [0]
        counted = "SELECT tokens > 0 AS any FROM cost WHERE stage = 'evaluate' ORDER BY epoch"
        assert sql(played, counted)["any"].to_list() == [True, False, False]
        gains = "SELECT DISTINCT gain, gain_low, gain_high FROM test_gains WHERE "
        exact = sql(played, gains + "measure = 'answer_probability'")
        assert exact.rows() == [(0.0, 0.0, 0.0)]
        verdicts = sql(played, gains + "measure <> 'answer_probability'")
        assert [(gain, -low) for gain, low, _ in verdicts.rows()] == [
            (0.0, high) for _, _, high in verdicts.rows()
        ]
        assert (verdicts["gain_high"] > 0).all()
    if arm == "static":
        generated = sql(played, "SELECT DISTINCT epoch FROM tasks WHERE source = 'generated'")
        assert generated["epoch"].to_list() == [1]
    assert {entry.status for entry in plan_run(played)} == {"hit"}


def test_the_views_of_an_arm_say_what_its_tables_say(played: RunConfig) -> None:
    views, arm, epochs = views_of(played), played.arm.value, list(range(1, played.epochs + 1))
    assert {name: set(frame["arm"]) - {arm} for name, frame in views.items()} == {
        name: set() for name in views
    }
    assert views["settings"].select("alpha", "k_min", "n").rows() == [(0.5, 0.25, 4)]
    says_how_the_epochs_went(views, arm, epochs)
    says_what_failed_and_what_was_rejected(views)
    says_which_rows_trained(views, arm)
    says_each_attempt_and_text(views)
    says_what_it_cost(views, arm, epochs)


def says_how_the_epochs_went(views: Views, arm: str, epochs: list[int]) -> None:
    rows = views["epochs"].sort("epoch")
    assert rows["epoch"].to_list() == epochs
    assert set(rows["env_action"]) == {"skipped"} and rows["kl_env"].null_count() == len(epochs)
    assert ("updated" in rows["agent_action"].to_list()) == (arm in TRAINS_AGENT)
    new = views["task_scores"].filter(pl.col("source") != "base")
    counted = {
        epoch: (frame.height, frame["successes"].sum() / frame["n"].sum())
        for (epoch,), frame in new.group_by("epoch")
    }
    seen = views["curriculum"].sort("epoch")
    assert seen["epoch"].to_list() == epochs
    assert set(seen["env_policy_version"]) == {None if arm == "offline" else 0}
    whole = views["calibration"].filter(pl.col("scope") == "epoch").sort("epoch")
    attempted = views["tasks"].filter(pl.col("valid") & pl.col("choice").ne_missing("not_chosen"))
    for frame in (seen, whole):
        for epoch, tasks, p_hat in frame.select("epoch", "tasks", "p_hat").iter_rows():
            assert (tasks, p_hat) == pytest.approx(counted[epoch])
    for epoch, tasks, p_hat in rows.select("epoch", "tasks_valid", "p_hat").iter_rows():
        made_for = 1 if arm == "static" else epoch
        assert p_hat == pytest.approx(counted[epoch][1]) and tasks >= counted[epoch][0]
        assert attempted.filter(pl.col("epoch") == made_for).height == counted[epoch][0]
    assert (whole["wilson_low"] < whole["p_hat"]).all()
    assert (whole["p_hat"] < whole["wilson_high"]).all()
    history = views["task_history"]
    assert history.height == views["task_scores"].height == views["decisions"].height
    names = {"base", "teacher" if arm == "offline" else "generated"}
    assert set(history["source"]) == names
    if arm == "static":  # the same tasks again, on a second occasion
        again = history.filter((pl.col("epoch") == 2) & (pl.col("source") == "generated"))
        assert again["p_hat_before"].null_count() == 0 and again["occasion"].min() == 2
        assert "near_duplicate" not in views["suspects"]["reason"]
    suspects = views["suspects"]
    assert (suspects["value"].abs() >= suspects["threshold"]).all()


def says_what_failed_and_what_was_rejected(views: Views) -> None:
    failed = views["scores"].filter(~pl.col("success"))
    counts = failed.group_by("epoch", "failure").len("attempts")
    by = ["epoch", "failure"]
    shown = views["failures"]
    assert shown.select(*by, "attempts").sort(by).rows() == counts.sort(by).rows()
    assert set(shown["example_trace_id"]) <= set(failed["trace_id"])
    invalid = views["tasks"].filter(~pl.col("valid"))
    rejected = views["rejections"].filter(pl.col("kept_from") == "tasks")
    assert rejected["rejections"].sum() == invalid.height
    assert set(rejected["rejection"]) == set(invalid["rejection"])
    groups = views["selections"].filter(~pl.col("reason").is_in(["invalid_task", "not_attempted"]))
    refused = groups.filter(~pl.col("kept") & (pl.col("reason") != "not_in_update"))
    unused = refused.group_by("epoch", "update", "reason").len()
    dropped = views["rejections"].filter(pl.col("kept_from") != "tasks")
    by = ["epoch", "kept_from", "rejection"]
    expected = unused.sort("epoch", "update", "reason").rows()
    assert dropped.select(*by, "rejections").sort(by).rows() == expected
    near = groups.filter((pl.col("update") == "env") & pl.col("kept"))
    assert sorted(views["near_alpha"]["task_id"]) == sorted(near["task_id"])
    assert (views["near_alpha"]["distance"] <= 0.25 + 1e-9).all()


def says_which_rows_trained(views: Views, arm: str) -> None:
    rows = views["lineage"]
    assert sorted(rows["row_id"]) == sorted(views["update_samples"]["row_id"])
    assert set(rows["policy"]) == ({"agent"} if arm in TRAINS_AGENT else set())
    for name in ("checkpoint", "parent_checkpoint", "task_id", "row_epoch"):
        assert rows[name].null_count() == 0, name
    assert (rows["row_epoch"] <= rows["epoch"]).all()


def says_each_attempt_and_text(views: Views) -> None:
    attempts, held_out = views["agent_attempts"], pl.col("source").is_in(["validation", "test"])
    assert attempts.height == views["traces"].height + views["evaluations"].height
    assert attempts.filter(held_out).height == views["evaluations"].height
    assert attempts["reward"].sum() == pytest.approx(
        views["scores"]["reward"].sum() + views["evaluations"]["reward"].sum()
    )
    for name in ("source", "prompt", "ground_truth", "response_text", "success", "failure"):
        assert attempts[name].null_count() == 0, name
    used = attempts.filter(pl.col("agent_updates").is_not_null())
    trained = views["update_samples"].filter(policy="agent")
    assert set(used["trace_id"]) == set(trained["row_id"])
    assert used.filter(pl.col("advantage").is_null() | held_out).is_empty()
    made = views["tasks"].filter(pl.col("source").is_in(["generated", "teacher"]))
    assert sorted(views["env_texts"]["task_id"]) == sorted(made["task_id"])
    asked = views["env_texts"].filter(source="generated")
    assert asked["asked"].str.starts_with("success ").all()


def says_what_it_cost(views: Views, arm: str, epochs: list[int]) -> None:
    cost = {(row["epoch"], row["stage"]): row for row in views["cost"].iter_rows(named=True)}
    assert {epoch for epoch, _ in cost} == {0, *epochs}
    for epoch in epochs:
        traces = views["traces"].filter(pl.col("epoch") == epoch)
        tokens = traces["prompt_tokens"].sum() + traces["response_tokens"].sum()
        assert cost[epoch, "rollout"]["tokens"] == tokens > 0
        accepted = views["tasks"].filter(
            pl.col("valid")
            & (pl.col("epoch") == epoch)
            & ~pl.col("source").is_in(["base", "validation", "test"])
        )
        assert cost[epoch, "rollout"]["accepted_tasks"] == accepted.height
        assert cost[epoch, "rwr_update"]["rows"] == 0
        assert (cost[epoch, "grpo_update"]["rows"] > 0) == (arm in TRAINS_AGENT)
        assert ((epoch, "generate_tasks") in cost) == (arm != "static" or epoch == 1)


def test_what_if_of_an_arm(played: RunConfig) -> None:
    own = sql(played, "FROM what_if() ORDER BY group_id")
    assert own.height == sql(played, "FROM task_scores").height > 0
    for name in ("r_env", "agent_reason", "env_reason"):
        assert own[name].equals(own[f"{name}_played"].rename(name)), name
    other = sql(played, "FROM what_if(alpha := 0.9, beta := 2, k_min := 1.0, lambda_ := 3)")
    assert other.height == own.height and other["in_band"].all()
    offline = played.arm.value == "offline"
    assert set(other["env_reason"]) == {"not_in_update"} | ({"kept"} if not offline else set())
    rated = other.drop_nulls("r_env")
    assert rated.height == sql(played, "FROM task_scores WHERE source <> 'base'").height
    for p_hat, r_env in rated.select("p_hat", "r_env").iter_rows():
        assert r_env == pytest.approx(math.exp(-2 * (p_hat - 0.9) ** 2))
    weighed = rated.drop_nulls("weight_raw")
    assert weighed.is_empty() == offline
    alone = weighed.filter(pl.len().over("epoch", "generation_id") == 1)
    assert alone.height > 0 or offline
    for r_env, weight in alone.select("r_env", "weight_raw").iter_rows():
        assert weight == pytest.approx(math.exp(3 * r_env))


@pytest.mark.parametrize(
    ("stage", "finished"),
    [("generate_tasks", set()), ("score", {"generate_tasks", "rollout"})],
)
def test_the_views_of_a_run_that_was_stopped(
    api: None, tiny_root: Path, monkeypatch: pytest.MonkeyPatch, stage: str, finished: set[str]
) -> None:
    monkeypatch.setenv("GENENV_TEST_FAULTS", "1")
    # Settings of its own, so that the stage is not found done by another test's run.
    settings = ("curriculum.alpha=0.35", f"execution.test_fault={stage}:1")
    if stage == "generate_tasks":
        settings = (*settings, "generation.temperature=0.9")
    config = tiny(tiny_root, *settings, epochs=1, run_id=f"stopped-{stage}")
    with pytest.raises(StageError, match=rf"{stage} of epoch 1: execution\.test_fault"):
        run(config)
    views = views_of(config)
    assert views["settings"]["alpha"].to_list() == [0.35]
    cost = views["cost"].filter(pl.col("rows").is_not_null())
    assert set(cost.filter(pl.col("epoch") == 1)["stage"]) == finished
    assert set(cost.filter(pl.col("epoch") == 0)["stage"]) == {"bootstrap", "evaluate", "publish"}
    failed = views["cost"].filter(pl.col("rows").is_null())
    assert failed.select("epoch", "stage", "attempts").rows() == [(1, stage, 1)]
    assert cost["kept_rollouts"].sum() == 0
    assert cost["seconds_per_kept_rollout"].null_count() == cost.height
    # Epoch 0 was evaluated before the run stopped.
    filled = {"settings", "cost", "predictions", "rejections", "suspects", "tasks", "test_results"}
    filled |= {"traces", "certified", "evaluations", "agent_attempts", "env_texts", "calls"}
    filled |= {"judged_traces", "reused"}  # another run of the root made epoch 0
    filled |= {"outcomes", "findings", "lookalikes", "repeats", "domains", "task_domains"}
    assert {name for name, frame in views.items() if not frame.is_empty()} <= filled
    grave = views["findings"].filter(severity="failure")
    assert grave.select("epoch", "rule", "subject").rows() == [(1, "stage_failed", stage)]
    assert views["outcomes"].select("epochs", "planned", "gain").rows() == [(0, 1, None)]
    assert views["traces"].is_empty() == (stage == "generate_tasks")
    invalid = views["tasks"].filter(~pl.col("valid"))
    assert views["rejections"]["rejections"].sum() == invalid.height
    assert invalid.is_empty() == (stage == "generate_tasks")


def test_a_run_says_what_taught_the_agent_and_learns_the_same(api: None, tiny_root: Path) -> None:
    """Measuring moves no weight: epoch 1 of a run without it has the same agent."""
    plain = tiny(tiny_root, epochs=1, run_id="untaught")
    asked = tiny(tiny_root, "grpo.attribution=true", epochs=1, run_id="taught")
    for config in (plain, asked):
        run(config)
    digest = "SELECT digest, metrics FROM checkpoints WHERE policy = 'agent' AND epoch = 1"
    assert sql(plain, digest).rows() == sql(asked, digest).rows()
    keys = [{place: one.key for place, one in manifests(each).items()} for each in (plain, asked)]
    changed = {stage for epoch, stage in keys[0] if len({one[epoch, stage] for one in keys}) > 1}
    assert changed == {"grpo_update", "evaluate", "publish"}
    assert sql(plain, "FROM influence").is_empty() and sql(plain, "FROM taught").is_empty()
    rows = sql(asked, "FROM influence")
    drawn = sql(asked, "SELECT DISTINCT group_id FROM update_samples WHERE policy = 'agent'")
    assert sorted(rows["group_id"]) == sorted(drawn["group_id"])
    assert rows["share"].abs().sum() == pytest.approx(1)
    assert rows["alignment"].is_finite().all() and (rows["loss_tokens"] > 0).all()
    taught = sql(asked, "FROM taught")
    assert taught["alignment"].sum() == pytest.approx(rows["alignment"].sum())
    assert taught["groups"].sum() == rows.height
    assert (taught["groups_with_signal"] <= taught["groups_attempted"]).all()
    more = rows["tokens"].sum()
    cost = "SELECT tokens FROM cost WHERE stage = 'grpo_update' AND epoch = 1"
    assert sql(asked, cost).item() == sql(plain, cost).item() + more
