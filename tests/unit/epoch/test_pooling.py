"""The rows that an epoch adds to the pools.

Invariants: D_train has the traces of kept groups and of no others, in order, without those that
have no verdict, and marks those on base tasks; D_env has each attempted generation of pi_env once,
with p_hat of the configured level and exp(lambda R_env); one with several tasks gets their mean
reward, and is kept when any of them is.
"""

from __future__ import annotations

import math
from typing import Any

import pytest

from genenv_core.config.sections.curriculum import Level
from genenv_core.config.sections.updates import PayRule
from genenv_core.epoch.pooling import pools
from genenv_core.epoch.rows import Output, frame
from tests.mutations import mutation
from tests.unit.epoch.builders_epoch import generated, trace

POOLING = "genenv_core/epoch/pooling.py"

R_ENV = {"a": 1.0, "b": 0.5, "c": 0.25}


def selected(name: str, agent: bool, env: bool) -> list[dict[str, Any]]:
    return [
        {"task_id": name, "epoch": 2, "update": update, "group_id": f"g-{name}", "kept": kept}
        for update, kept in (("agent", agent), ("env", env))
    ]


def scored(name: str, p_hat: float, source: str = "generated") -> dict[str, Any]:
    levels = {} if source == "base" else {"p_hat_group": 0.5, "p_hat_batch": 0.375}
    return {
        "group_id": f"g-{name}",
        "task_id": name,
        "source": source,
        "p_hat": p_hat,
        "successes": round(8 * p_hat),
        "n": 8,
        "r_env": R_ENV.get(name),
        **levels,
    }


def pooled(
    level: Level = Level.TASK, lambda_: float = 2.0, pay: PayRule = "alpha", **of_a: Any
) -> Output:
    """Return the pools of an epoch. Tasks a and b share a generation; c is not kept."""
    traces = [trace(f"g-{name}", i, name) for name in ("a", "b", "c", "base") for i in (0, 1)]
    lost = trace("g-b", 2, "b", error="503", cause="engine")
    judged = [{**row, "reward": row["sample_index"], "success": False} for row in traces]
    return pools(
        tasks=frame(
            "tasks",
            [
                generated("a", generation="n0") | of_a,
                generated("x", generation="n0", rejection="duplicate"),
                generated("b", generation="n0"),
                generated("c", generation="n1"),
            ],
        ),
        traces=frame("traces", [*traces[:4], lost, *traces[4:]]),
        scores=frame("scores", [{k: r[k] for k in r if k in SCORES} for r in judged]),
        task_scores=frame(
            "task_scores",
            [scored("a", 0.25), scored("b", 0.75), scored("c", 1.0), scored("base", 1.0, "base")],
        ),
        selections=frame(
            "selections",
            [
                *selected("a", False, True),
                *selected("b", True, False),
                *selected("c", False, False),
                *selected("base", True, False),
            ],
        ),
        level=level,
        pay=pay,
        lambda_=lambda_,
        scale=True,
    )


SCORES = frame("scores", []).columns


@mutation(
    "D_train has groups that were not kept", POOLING,
    '_of(selections, Policy.AGENT).filter("kept")', "_of(selections, Policy.AGENT)",
)  # fmt: skip
@mutation("D_train has attempts without a verdict", POOLING, 'how="inner"', 'how="left"')
@mutation(
    "base tasks count as new in D_train", POOLING,
    ".then(pl.lit(PooledTask.BASE.value))", ".then(pl.lit(PooledTask.NEW.value))",
)  # fmt: skip
def test_d_train_has_the_traces_of_kept_groups() -> None:
    rows = pooled().tables["d_train"]
    assert rows.select("trace_id", "source", "reward").rows() == [
        ("g-b.0", "new", 0.0),
        ("g-b.1", "new", 1.0),
        ("g-base.0", "base", 0.0),
        ("g-base.1", "base", 1.0),
    ]


@mutation(
    "pi_env is paid by p_hat", POOLING, 'weight_raw=pl.col("pay")', 'weight_raw=pl.col("p_hat")'
)
@mutation(
    "a generation is paid with the best of its tasks", POOLING,
    'pl.mean("p_hat", "skill", "r_env", "pay")', 'pl.max("p_hat", "skill", "r_env", "pay")',
)  # fmt: skip
def test_a_generation_of_two_tasks_is_paid_with_their_mean() -> None:
    output = pooled()
    rows = output.tables["d_env"].select(
        "generation_id", "task_id", "p_hat", "r_env", "pay", "weight_raw", "kept"
    )
    assert rows.rows() == [
        ("n0", "a", 0.5, 0.75, 0.75, pytest.approx(math.exp(1.5)), True),
        ("n1", "c", 1.0, 0.25, 0.25, pytest.approx(math.exp(0.5)), False),
    ]
    assert output.facts == {"new_groups": 3, "d_train": 4, "d_env": 2, "d_env_kept": 1}


@mutation(
    "pay leaves the prediction out", POOLING,
    'predicted(row["predicted_p"], row["predicted_sd"])', "predicted(None, None)",
)  # fmt: skip
@mutation("pay leaves the chance of a guess out", POOLING, 'row["chance"] or 0.0', "0.0")
def test_pay_is_of_a_tasks_own_attempts_prediction_and_chance() -> None:
    # 2 of 8 after Beta(2, 2) is Beta(4, 8), with chance 1/10; 6 of 8 after the uniform one is
    # Beta(7, 3), 8 of 8 Beta(9, 1).
    known = {"predicted_p": 0.5, "predicted_sd": math.sqrt(0.05), "chance": 0.1}
    rows = pooled(pay="learnability", **known).tables["d_env"]
    a = 4 * (32 / 156 - 0.1 * 8 / 12) / 0.81
    paid = [(a + 4 * 21 / 110) / 2, 4 * 9 / 110]
    assert rows["pay"].to_list() == pytest.approx(paid, rel=1e-12)
    weights = [math.exp(2 * one) for one in paid]
    assert rows["weight_raw"].to_list() == pytest.approx(weights, rel=1e-12)
    assert rows["r_env"].to_list() == [0.75, 0.25]


@pytest.mark.parametrize(("level", "p_hat"), [(Level.GROUP, 0.5), (Level.BATCH, 0.375)])
def test_p_hat_is_of_the_configured_level(level: Level, p_hat: float) -> None:
    assert pooled(level).tables["d_env"]["p_hat"].to_list() == [p_hat, p_hat]


def test_lambda_0_weighs_all_alike() -> None:
    assert pooled(lambda_=0.0).tables["d_env"]["weight_raw"].to_list() == [1.0, 1.0]
