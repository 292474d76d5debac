"""Published checkpoints, and the summary of an epoch.

Invariants: a candidate is published exactly when its gate is open, else its parent stays; an agent
that learned from lies stays unpublished, and so does a lying pi_env; a skipped update publishes
nothing and closes no gate; a checkpoint is best only when it is published and
better than the best, not equal; success on the test tasks decides nothing; the summary counts new
tasks, not base tasks.
"""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pytest

from genenv_core.config.sections.curriculum import CurriculumConfig, Level
from genenv_core.config.sections.evaluation import GatesConfig
from genenv_core.epoch.publishing import HeldoutSuccess, Update, publish_candidates, publish_first
from genenv_core.epoch.rows import Output, frame
from genenv_core.storage.records.manifest import ArtifactRef, CheckpointRef, Manifest, Part
from genenv_core.types import Policy
from schemas.enums import UpdateAction
from tests.mutations import mutation
from tests.unit.epoch.builders_epoch import generated, group, trace

PUBLISHING = "genenv_core/epoch/publishing.py"

AGENT, ENV = Policy.AGENT, Policy.ENV
TEST = {
    "heldout_success": 0.75,
    "heldout_success_greedy": 0.625,
    "heldout_answer_probability": 0.25,
}
AGENT_METRICS = {"entropy": 0.5, "reward_std": 0.25}
ENV_METRICS = {"kl_env": 2.0, "kl_env_se": 0.25}


def update(name: str, *, made: bool = True, **metrics: float) -> Update:
    action = UpdateAction.UPDATED if made else UpdateAction.SKIPPED
    digest = f"{name}-1" if made else f"{name}-0"
    return Update(action, "a note", 3 if made else 0, metrics, f"{name}-0", digest)


TABLES = {
    "tasks": frame(
        "tasks",
        [generated("a", "x"), generated("b", "xyz"), generated("c", "w", rejection="duplicate")],
    ),
    "traces": frame(
        "traces",
        [
            trace("g-a", 0, "a", response_tokens=4),
            trace("g-b", 0, "b", response_tokens=8),
            trace("g-base", 0, "base", response_tokens=99),
        ],
    ),
    "task_scores": frame(
        "task_scores",
        [
            group("a", 1, r_env=0.5, p_hat_group=0.5),
            group("b", 0, r_env=0.25, p_hat_group=0.5),
            group("base", 4, "base"),
        ],
    ),
    "selections": frame(
        "selections",
        [
            {"task_id": name, "update": policy, "kept": kept}
            for name, policy, kept in (
                ("a", "env", True),
                ("b", "env", False),
                ("a", "agent", True),
                ("b", "agent", True),
                ("base", "agent", True),
            )
        ],
    ),
}


def published(
    agent: Update | None = None,
    env: Update | None = None,
    *,
    sampled: float = 0.5,
    measured: HeldoutSuccess | None = None,
    current: float = 0.5,
    best: float = 0.25,
    level: Level = Level.TASK,
    fidelity: float | None = None,
    tables: dict[str, pl.DataFrame] = TABLES,
) -> Output:
    return publish_candidates(
        {
            AGENT: agent or update("agent", **AGENT_METRICS),
            ENV: env or update("env", **ENV_METRICS),
        },
        measured or HeldoutSuccess(sampled, TEST),
        current=current,
        best=best,
        **tables,
        rollout_metrics={"logprob_gap": 0.125},
        fidelity=fidelity,
        epoch=2,
        gates=GatesConfig(),
        curriculum=CurriculumConfig(alpha=0.5, k_min=0.25, level=level),
    )


def rows(output: Output) -> list[tuple[Any, ...]]:
    columns = ("policy", "digest", "parent_digest", "published", "gate", "is_best")
    return output.tables["checkpoints"].select(columns).rows()


@mutation(
    "executed tools have no fidelity, and close the gate", "genenv_core/algorithm/gates.py",
    'metrics.get("fidelity", 1.0)', 'metrics.get("fidelity", 0.0)',
)  # fmt: skip
def test_candidates_behind_open_gates_are_published() -> None:
    output = published()
    assert rows(output) == [
        ("agent", "agent-1", "agent-0", True, "open", True),
        ("env", "env-1", "env-0", True, "open", False),
    ]
    facts = output.facts
    assert facts["published"] == {"agent": True, "env": True}
    assert (facts["gates"], facts["is_best"], facts["validation"]) == ({}, True, 0.5)
    assert facts["summary"]["agent_checkpoint"] == "agent-1"
    assert facts["summary"]["env_checkpoint"] == "env-1"
    metrics = output.tables["checkpoints"]["metrics"].to_list()
    assert json.loads(metrics[0]) == {**AGENT_METRICS, "logprob_gap": 0.125}
    assert json.loads(metrics[1]) == ENV_METRICS


@mutation(
    "a closed gate publishes", PUBLISHING,
    "update.digest if open_[policy] else update.parent", "update.digest",
)  # fmt: skip
@mutation(
    "the facts publish behind a closed gate", PUBLISHING,
    "open_[policy] and update.made for", "update.made for",
)  # fmt: skip
def test_behind_a_closed_gate_the_parent_stays() -> None:
    output = published(env=update("env", kl_env=61.0), current=0.75)  # drops by 0.25 > 0.1
    assert rows(output) == [
        ("agent", "agent-1", "agent-0", False, "validation_drop", False),
        ("env", "env-1", "env-0", False, "kl_env", False),
    ]
    assert output.facts["published"] == {"agent": False, "env": False}
    assert output.facts["is_best"] is False
    assert output.facts["gates"]["env"].startswith("kl_env: KL to the initial simulator 61.000")
    assert output.facts["summary"]["agent_checkpoint"] == "agent-0"
    assert output.facts["summary"]["env_checkpoint"] == "env-0"


@mutation(
    "an agent that learned from lies is published", PUBLISHING,
    "if fidelity is not None:", "if False:",
)  # fmt: skip
def test_an_agent_that_learned_from_lies_and_a_lying_pi_env_are_not_published() -> None:
    honest, liar = (update("env", kl_env=2.0, fidelity=value) for value in (0.9, 0.1))
    output = published(env=honest, fidelity=0.9)
    assert output.facts["published"] == {"agent": True, "env": True}
    metrics = json.loads(output.tables["checkpoints"]["metrics"][0])
    assert metrics == {**AGENT_METRICS, "logprob_gap": 0.125, "fidelity": 0.9}
    output = published(env=liar, fidelity=0.9)
    assert rows(output)[1] == ("env", "env-1", "env-0", False, "fidelity", False)
    assert output.facts["published"] == {"agent": True, "env": False}
    assert output.facts["summary"]["env_checkpoint"] == "env-0"
    # The epoch's tools lied, and the new pi_env does not.
    output = published(env=honest, fidelity=0.1)
    assert rows(output)[0] == ("agent", "agent-1", "agent-0", False, "fidelity", False)
    assert output.facts["published"] == {"agent": False, "env": True}
    assert output.facts["gates"]["agent"].startswith("fidelity: the tools' answers that it learned")


def test_a_skipped_update_publishes_nothing_and_closes_no_gate() -> None:
    output = published(update("agent", made=False), update("env", made=False), current=1.0)
    assert rows(output) == [
        ("agent", "agent-0", "agent-0", True, "open", True),
        ("env", "env-0", "env-0", True, "open", False),
    ]
    assert output.facts["published"] == {"agent": False, "env": False}


@mutation(
    "an equal checkpoint is the best", PUBLISHING,
    "measured.validation > best", "measured.validation >= best",
)  # fmt: skip
@pytest.mark.parametrize(("best", "is_best"), [(0.5, False), (0.49, True), (0.51, False)])
def test_best_is_better_than_the_best(best: float, is_best: bool) -> None:
    output = published(best=best)
    assert output.facts["is_best"] is is_best
    assert output.tables["checkpoints"]["is_best"].to_list() == [is_best, False]


def test_test_success_decides_nothing() -> None:
    def facts(**test: float) -> dict[str, Any]:
        measured = HeldoutSuccess(0.5, {**TEST, **test})
        found = published(measured=measured).facts
        shown = {name: found["summary"].pop(name) for name in TEST}
        assert shown == {**TEST, **test}
        return found

    assert facts() == facts(heldout_success=0.0, heldout_answer_probability=0.0)


@mutation(
    "the test tasks decide", PUBLISHING,
    "evaluation.facts[Split.VALIDATION]", "evaluation.facts[Split.TEST]",
)  # fmt: skip
def test_an_evaluation_is_read_by_split() -> None:
    part = Part(name="x", path="p", sha256="s", bytes=1)
    facts = {
        "validation": {"sampled": 0.5, "answer_probability": 0.4},
        "test": {"sampled": 0.75, "greedy": 0.625, "answer_probability": 0.25},
    }
    manifest = Manifest(stage="evaluate", key="k", key_parts={}, parts=(part,), facts=facts)
    assert HeldoutSuccess.of(manifest) == HeldoutSuccess(0.5, TEST)
    bare = manifest.model_copy(update={"facts": {**facts, "test": {"sampled": 0.75}}})
    unknown = {"heldout_success_greedy": None, "heldout_answer_probability": None}
    assert HeldoutSuccess.of(bare) == HeldoutSuccess(0.5, {"heldout_success": 0.75, **unknown})


@mutation(
    "the summary counts base tasks", "genenv_core/epoch/rows.py",
    'task_scores.filter(pl.col("source") != TaskSource.BASE.value)', "task_scores",
)  # fmt: skip
def test_the_summary_counts_new_tasks() -> None:
    output = published()
    summary = output.tables["epochs"].row(0, named=True)
    assert summary == {
        "epoch": 2,
        "tasks_generated": 3,
        "tasks_valid": 2,
        "p_hat": 0.125,  # 1 of 8
        "p_hat_written": 0.125,
        "r_env_mean": 0.375,
        "share_in_band": 0.5,
        "share_zero_signal": 0.5,
        "share_kept": 0.5,
        "mean_difficulty": 2.0,
        "mean_response_tokens": 6.0,
        **TEST,
        "validation_success": 0.5,
        "kl_env": 2.0,
        "kl_env_se": 0.25,
        "grpo_steps": 3,
        "rwr_steps": 3,
        "agent_checkpoint": "agent-1",
        "env_checkpoint": "env-1",
        "agent_action": "updated",
        "agent_note": "a note",
        "env_action": "updated",
        "env_note": "a note",
        "attempts_lost": 0,
        "tasks_refilled": None,
        "skill": 0.125,
        "tasks_note": "",
    }
    assert output.facts["summary"] == summary
    assert published(level=Level.GROUP).facts["summary"]["share_in_band"] == 1.0


@mutation(
    "the summary counts what was lost", PUBLISHING, "verdicts = with_verdict(traces)",
    "verdicts = traces",
)  # fmt: skip
def test_the_summary_counts_what_was_lost_apart() -> None:
    traces = TABLES["traces"]
    lost = traces.head(1).with_columns(
        trace_id=pl.lit("lost"), cause=pl.lit("engine"), response_tokens=pl.lit(99, pl.Int64)
    )
    both = {**TABLES, "traces": pl.concat([traces, lost])}
    summary = published(tables=both).facts["summary"]
    assert (summary["attempts_lost"], summary["mean_response_tokens"]) == (1, 6.0)


@mutation(
    "every task of the reserve counts as refilled", PUBLISHING,
    'reserve.join(traces, on="task_id", how="semi").height', "reserve.height",
)  # fmt: skip
def test_the_summary_counts_the_tasks_of_the_reserve_that_were_attempted() -> None:
    tasks, ids = TABLES["tasks"], TABLES["traces"]["task_id"]
    places = pl.int_range(pl.len(), dtype=pl.Int64)
    reserve = tasks.filter("valid").with_columns(choice=pl.lit("reserve"), reserve_place=places)
    assert reserve["task_id"].is_in(ids.implode()).any()
    unseen = reserve.head(1).with_columns(task_id=pl.lit("unseen"))
    both = {**TABLES, "tasks": pl.concat([reserve, unseen])}
    seen = reserve["task_id"].is_in(ids.implode()).sum()
    assert published(tables=both).facts["summary"]["tasks_refilled"] == seen


@mutation(
    "the mean difficulty is that of the whole set", PUBLISHING,
    'tasks.join(groups, on="task_id", how="semi", maintain_order="left")', 'tasks.filter("valid")',
)  # fmt: skip
def test_the_summary_speaks_of_the_tasks_of_the_window() -> None:
    other = frame("tasks", [generated("later", "of another epoch's window")])
    tables = {**TABLES, "tasks": pl.concat([TABLES["tasks"], other])}
    summary = published(tables=tables).facts["summary"]
    assert summary["mean_difficulty"] == 2.0 and summary["p_hat_written"] == 0.125
    assert (summary["tasks_generated"], summary["tasks_valid"]) == (4, 3)  # those of the set


def test_means_over_no_tasks_are_null() -> None:
    nothing = {name: rows.clear() for name, rows in TABLES.items()}
    output = publish_candidates(
        {AGENT: update("agent", made=False), ENV: update("env", made=False)},
        HeldoutSuccess(0.5, {**TEST, "heldout_success_greedy": None}),
        current=0.5,
        best=0.5,
        **nothing,
        rollout_metrics={},
        epoch=2,
        gates=GatesConfig(),
        curriculum=CurriculumConfig(),
    )
    summary = output.facts["summary"]
    means = (
        "p_hat",
        "p_hat_written",
        "r_env_mean",
        "share_in_band",
        "share_zero_signal",
        "share_kept",
        "mean_difficulty",
    )
    assert {summary[name] for name in means} == {None}


def test_the_game_starts_from_two_published_checkpoints() -> None:
    warm = {"agent": {"loss": 0.5, "steps": 9}}
    output = publish_first({AGENT: "agent-0", ENV: "env-0"}, HeldoutSuccess(0.5, TEST), warm)
    metrics = output.tables["checkpoints"]["metrics"]
    assert [json.loads(one) for one in metrics] == [warm["agent"], {}]  # pi_env was given
    assert rows(output) == [
        ("agent", "agent-0", None, True, "open", True),
        ("env", "env-0", None, True, "open", False),
    ]
    assert output.facts == {
        "published": {"agent": True, "env": True},
        "gates": {},
        "is_best": True,
        "validation": 0.5,
        "summary": {"validation_success": 0.5, **TEST},
    }


@pytest.mark.parametrize("action", UpdateAction)
def test_an_update_is_read_from_its_manifest(action: UpdateAction) -> None:
    artifact = ArtifactRef(stage="grpo_update", key="k", digest="d")
    before = CheckpointRef(artifact=artifact, name="agent", digest="old", policy_version=1)
    facts = {"action": action.value, "note": "why", "steps": 4, "metrics": {"loss": 1.0}}
    skipped = action is UpdateAction.SKIPPED
    part = Part(name="agent/model.safetensors", path="p", sha256="s", bytes=1)
    manifest = Manifest(
        stage="grpo_update", key="k", key_parts={}, parts=() if skipped else (part,), facts=facts
    )
    found = Update.of(manifest, before)
    new = "old" if skipped else manifest.checkpoint_digest("agent")
    assert found == Update(action, "why", 4, {"loss": 1.0}, "old", new)
    assert found.made is not skipped
