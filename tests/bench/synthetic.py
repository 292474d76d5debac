"""Pools of any size without a model: numbers as a run has them, made column by column.

A run of `epochs` epochs, each with as many new tasks as `traces` asks for, eight attempts at every
one. Ids, lengths, shares and texts are like those of the quickstart (about 27 response tokens), so
a trace costs what it costs there. The tables go through the real writers: validated, Parquet,
manifest, compaction.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache

import numpy as np
import polars as pl
import pyarrow as pa

from genenv_core.canonical import digest
from genenv_core.storage.records.artifacts import ArtifactWriter
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.store.local import LocalStore
from genenv_core.storage.upkeep.compaction import compact
from tests.unit.builders_runs import without_fsync

RUN = "synthetic"
N = 8
TESTED = 200
"""Test tasks; each agent attempts each four times, and once greedily."""

ALPHA, BETA, K_MIN = 0.5, 4.0, 0.25
VOCABULARY = 214
NOT_AT_THIS_LEVEL = (
    *("p_hat_group", "p_hat_batch", "skill_group", "skill_batch"),
    *("r_env_group", "r_env_batch"),
)
START = datetime(2026, 11, 1, 12, tzinfo=UTC)
CONFIG = {
    "arm": "genenv",
    "seed": 0,
    "domain": {"name": "desk"},
    "curriculum": {
        "alpha": ALPHA, "beta": BETA, "k_min": K_MIN, "level": "task", "filter_agent": True
    },
    "rwr": {"lambda": 1.0},
    "rollout": {"n": N},
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shape:
    """How large a pool is."""

    traces: int
    epochs: int

    @property
    def tasks(self) -> int:
        """Return the tasks of one epoch."""
        return self.traces // (self.epochs * N)


def build(store: LocalStore, shape: Shape) -> None:
    """Write a finished, compacted run of this shape."""
    log = RunLog(store, RUN)
    log.open({**CONFIG, "epochs": shape.epochs}, START)
    with without_fsync():
        for stage, tables in _beginning().items():
            log.note_key(0, stage, _commit(store, stage, 0, tables))
        for epoch in range(1, shape.epochs + 1):
            for stage, tables in epoch_tables(epoch, shape.tasks).items():
                log.note_key(epoch, stage, _commit(store, stage, epoch, tables))
        compact(store, RUN)


def epoch_tables(epoch: int, tasks: int) -> dict[str, dict[str, pl.DataFrame]]:
    """Return the rows of an epoch's stages by table."""
    random = np.random.default_rng(epoch)
    task = _tasks(random, epoch, tasks)
    groups = task.select("epoch", "task_id", group_id=_group(epoch))
    chance = np.repeat(random.beta(0.8, 0.8, tasks), N)
    success = random.random(tasks * N) < chance
    traces = _traces(random, epoch, groups)
    ids = traces.select("trace_id", "epoch", "task_id", "group_id")
    failure = np.where(random.random(tasks * N) < 0.3, "wrong tool", "wrong arguments")
    scores = ids.with_columns(
        reward=pl.Series(success.astype(float)),
        success=pl.Series(success),
        failure=pl.Series(np.where(success, "", failure)),
    )
    judged = _judged(task, groups, scores)
    selected = _selections(judged)
    return {
        "generate_tasks": {"tasks": task},
        "rollout": {"traces": traces, "trace_tokens": _tokens(random, traces)},
        "score": {"scores": scores, "task_scores": judged},
        "filter": {"selections": selected},
        "pool": {"d_train": _pooled(scores)},
        "grpo_update": {"update_samples": _trained(random, scores, selected)},
        "rwr_update": {"update_samples": _weighed(random, task, selected)},
        "evaluate": {"evaluations": _evaluated(random, epoch)},
        "publish": {
            "epochs": _summary(epoch, tasks, judged, traces), "checkpoints": _checkpoints(epoch),
        },
    }  # fmt: skip


def _beginning() -> dict[str, dict[str, pl.DataFrame]]:
    """Return the rows of epoch 0: the test tasks, and what the first agent does on them."""
    random = np.random.default_rng(0)
    tests = _tasks(random, 0, TESTED).with_columns(
        source=pl.lit("test"),
        choice=pl.lit(None, pl.String),
        **dict.fromkeys(
            (
                *("generation_id", "context_id", "base_task_id", "generation_text"),
                *("nearest_task_id", "nearest_test_id"),
            ),
            pl.lit(None, pl.String),
        ),
        **dict.fromkeys(("similarity", "test_similarity"), pl.lit(None, pl.Float64)),
        env_policy_version=pl.lit(None, pl.Int64),
    )
    return {
        "bootstrap": {"tasks": tests},
        "evaluate": {"evaluations": _evaluated(random, 0)},
        "publish": {"checkpoints": _checkpoints(0)},
    }


def _commit(store: LocalStore, stage: str, epoch: int, tables: dict[str, pl.DataFrame]) -> str:
    key = digest([stage, epoch])
    writer = ArtifactWriter(store, stage, {"epoch": epoch}, key)
    for name, frame in tables.items():
        writer.table(name, frame)
    writer.commit({})
    return key


def _padded(column: str, width: int) -> pl.Expr:
    return pl.col(column).cast(pl.String).str.zfill(width)


def _group(epoch: int) -> pl.Expr:
    return pl.format("g{}-4edb7053-{}", pl.lit(f"{epoch:06d}"), _padded("generation_index", 7))


@cache
def _texts(count: int = 8192) -> pl.DataFrame:
    """Return some thousand different tasks as text."""
    rows: list[dict[str, str]] = []
    for index in range(count):
        program = f"+ {index % 97} bolts {index % 89} ; * {index % 83} nuts {index % 7}"
        prompt = f"Receive and count: {program}. Report each total by its tool."
        call = {"id": 1, "name": "receive", "arguments": {"item": "bolts", "total": index}}
        answer = f"<tool_call>{json.dumps(call)}</tool_call>"
        messages = [
            {"role": "user", "content": prompt},
            {"role": "assistant", "content": answer},
        ]
        rows.append(
            {
                "program": program,
                "prompt": prompt,
                "ground_truth": answer,
                "spec": json.dumps({"calls": [call]}),
                "messages": json.dumps(messages),
            }
        )
    return pl.DataFrame(rows)


def _tasks(random: np.random.Generator, epoch: int, tasks: int) -> pl.DataFrame:
    index = pl.int_range(tasks, dtype=pl.Int64, eager=True).alias("generation_index")
    texts = _texts()
    drawn = texts.drop("messages")[random.integers(0, texts.height, tasks)]
    calls = pl.Series(random.integers(1, 7, tasks))
    head = f"{epoch:06d}-0badcafe"
    return drawn.with_columns(
        index,
        task_id=pl.format(f"t{head}-{{}}", index.cast(pl.String).str.zfill(7)),
        epoch=pl.lit(epoch),
        source=pl.lit("generated"),
        generation_id=pl.format(f"n{head}-{{}}", index.cast(pl.String).str.zfill(7)),
        context_id=pl.format(f"c{head}-{{}}", (index // 4).cast(pl.String).str.zfill(7)),
        base_task_id=pl.lit("t000000-0badcafe-0000000"),
        env_policy_version=pl.lit(epoch - 1),
        valid=pl.lit(True),
        rejection=pl.lit(None, pl.String),
        rejection_detail=pl.lit(""),
        choice=pl.lit("random"),
        reserve_place=pl.lit(None, pl.Int64),
        predicted_p=pl.lit(None, pl.Float64),
        predicted_sd=pl.lit(None, pl.Float64),
        predicted_drift=pl.lit(None, pl.Float64),
        family=pl.format("k{}", calls),
        chance=pl.lit(0.0),
        difficulty=calls.cast(pl.Float64),
        fingerprint=pl.format(f"{epoch}-{{}}", index),
        nearest_task_id=pl.lit(f"t{head}-0000000"),
        similarity=pl.lit(0.65),
        nearest_test_id=pl.lit("t000000-0badcafe-0000000"),
        test_similarity=pl.lit(0.6),
        env_prompt_tokens=pl.lit(24),
        generation_tokens=pl.lit(18),
        generation_text=pl.col("program"),
    )


def _traces(random: np.random.Generator, epoch: int, groups: pl.DataFrame) -> pl.DataFrame:
    rows = groups.height * N
    order = np.repeat(np.arange(groups.height), N)
    sample = pl.Series(np.tile(np.arange(N), groups.height))
    return groups[order].with_columns(
        trace_id=pl.format("{}.{}", "group_id", sample.cast(pl.String).str.zfill(4)),
        sample_index=sample,
        policy_version=pl.lit(epoch - 1),
        turns=pl.lit(1),
        prompt_tokens=pl.Series(random.integers(28, 44, rows)),
        response_tokens=pl.Series(random.integers(7, 48, rows)),
        tool_calls=pl.Series(random.integers(1, 7, rows)),
        finish_reason=pl.Series(np.where(random.random(rows) < 0.02, "length", "stop")),
        error=pl.lit(""),
        cause=pl.lit(None, pl.String),
    )


def _tokens(random: np.random.Generator, traces: pl.DataFrame) -> pl.DataFrame:
    prompt, answer = traces["prompt_tokens"].to_numpy(), traces["response_tokens"].to_numpy()
    texts = _texts()
    drawn = texts[random.integers(0, texts.height, traces.height)]
    total = int(answer.sum())
    return pl.DataFrame(
        {
            "trace_id": traces["trace_id"],
            "prompt_ids": _lists(
                prompt, random.integers(0, VOCABULARY, int(prompt.sum()), "int32")
            ),
            "token_ids": _lists(answer, random.integers(0, VOCABULARY, total, "int32")),
            "logprobs": _lists(answer, -random.exponential(0.2, total).astype("float32")),
            "loss_mask": _lists(answer, np.ones(total, "int8")),
            "messages": drawn["messages"],
            "response_text": drawn["ground_truth"],
        }
    )


def _lists(lengths: np.ndarray, values: np.ndarray) -> pl.Series:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype("int64")
    return pl.Series(pl.from_arrow(pa.LargeListArray.from_arrays(offsets, pa.array(values))))


def _judged(task: pl.DataFrame, groups: pl.DataFrame, scores: pl.DataFrame) -> pl.DataFrame:
    counted = scores["success"].to_numpy().reshape(-1, N).sum(1)
    p_hat = counted / N
    r_env = np.exp(-BETA * (p_hat - ALPHA) ** 2)
    return groups.with_columns(
        context_id=task["context_id"],
        source=pl.lit("generated"),
        n=pl.lit(N),
        successes=pl.Series(counted),
        p_hat=pl.Series(p_hat),
        skill=pl.Series(p_hat),
        r_env_task=pl.Series(r_env),
        r_env=pl.Series(r_env),
        reward_mean=pl.Series(p_hat),
        reward_std=pl.Series(np.sqrt(p_hat * (1 - p_hat))),
        **dict.fromkeys(NOT_AT_THIS_LEVEL, pl.lit(None, pl.Float64)),
        zero_signal=pl.Series((counted == 0) | (counted == N)),
        lost=pl.lit(0),
    )


def _selections(judged: pl.DataFrame) -> pl.DataFrame:
    distance = (pl.col("p_hat") - ALPHA).abs()
    reason = (
        pl.when(distance <= K_MIN + 1e-9).then(pl.lit("kept"))
        .when(pl.col("p_hat") < ALPHA).then(pl.lit("below_band"))
        .otherwise(pl.lit("above_band"))
    )  # fmt: skip
    one = judged.select("task_id", "epoch", "group_id", "p_hat", reason=reason, distance=distance)
    return pl.concat(
        [one.with_columns(update=pl.lit(policy)) for policy in ("agent", "env")]
    ).with_columns(kept=pl.col("reason") == "kept")


def _pooled(scores: pl.DataFrame) -> pl.DataFrame:
    return scores.drop("failure").with_columns(
        policy_version=pl.col("epoch") - 1, source=pl.lit("new")
    )


def _trained(
    random: np.random.Generator, scores: pl.DataFrame, selected: pl.DataFrame
) -> pl.DataFrame:
    """Return the attempts that the update of the agent used: those of the groups in the band."""
    kept = selected.filter("kept", update="agent")
    used = scores.join(kept.select("group_id"), on="group_id", how="semi")
    advantage = pl.Series(random.normal(size=used.height))
    return _samples(used, "trace_id", "agent").with_columns(
        group_id=used["group_id"],
        advantage=advantage,
        weight=pl.lit(None, pl.Float64),
        leash=pl.lit(None, pl.Boolean),
    )


def _weighed(
    random: np.random.Generator, task: pl.DataFrame, selected: pl.DataFrame
) -> pl.DataFrame:
    """Return the texts that the update of pi_env used."""
    kept = selected.filter("kept", update="env")
    used = task.join(kept.select("task_id"), on="task_id", how="semi")
    return _samples(used, "generation_id", "env").with_columns(
        group_id=pl.lit(None, pl.String),
        advantage=pl.lit(None, pl.Float64),
        weight=pl.Series(random.random(used.height) + 0.5),
        leash=pl.lit(True),
    )


def _samples(rows: pl.DataFrame, column: str, policy: str) -> pl.DataFrame:
    return rows.select(
        "epoch", row_id=column, policy=pl.lit(policy), source=pl.lit("new"),
        policy_version=pl.col("epoch") - 1,
    )  # fmt: skip


def _evaluated(random: np.random.Generator, epoch: int) -> pl.DataFrame:
    """Return attempts at the test tasks by the agent of an epoch, which gets slowly better."""
    rows = [
        {"task_id": f"t000000-0badcafe-{task:07d}", "mode": mode, "sample_index": sample}
        for task in range(TESTED)
        for mode, samples in (("sampled", 4), ("greedy", 1))
        for sample in range(samples)
    ]
    chance = 0.3 + 0.4 * np.minimum(1, epoch / 100) + 0.2 * random.normal(size=len(rows))
    success = random.random(len(rows)) < chance
    return pl.DataFrame(rows).with_columns(
        epoch=pl.lit(epoch),
        measured_epoch=pl.lit(epoch),
        policy_version=pl.lit(epoch),
        agent_checkpoint=pl.lit(f"agent-{epoch}"),
        family=pl.format("k{}", 1 + pl.col("task_id").str.slice(-1).cast(pl.Int64) % 6),
        split=pl.lit("test"),
        success=pl.Series(success),
        reward=pl.Series(success.astype(float)),
        answer_probability=pl.Series(np.clip(chance, 0.0, 1.0)),
        response_tokens=pl.lit(20),
        failure=pl.Series(np.where(success, "", "wrong tool")),
    )


def _checkpoints(epoch: int) -> pl.DataFrame:
    """Return the weights of an epoch; none closed a gate."""
    return pl.DataFrame(
        [
            {
                "policy": policy,
                "epoch": epoch,
                "digest": f"{policy}-{epoch}",
                "parent_digest": f"{policy}-{epoch - 1}" if epoch else None,
                "published": True,
                "gate": "open",
                "gate_detail": "",
                "steps": 8 if epoch else 0,
                "is_best": False,
                "metrics": "{}",
            }
            for policy in ("agent", "env")
        ],
        schema_overrides={"parent_digest": pl.String},
    )


def _summary(epoch: int, tasks: int, judged: pl.DataFrame, traces: pl.DataFrame) -> pl.DataFrame:
    in_band = (judged["p_hat"] - ALPHA).abs() <= K_MIN + 1e-9
    return pl.DataFrame(
        [
            {
                "epoch": epoch,
                "tasks_generated": tasks,
                "tasks_valid": tasks,
                "p_hat": judged["p_hat"].mean(),
                "p_hat_written": judged["p_hat"].mean(),
                "skill": judged["p_hat"].mean(),
                "r_env_mean": judged["r_env"].mean(),
                "share_in_band": in_band.mean(),
                "share_zero_signal": judged["zero_signal"].mean(),
                "share_kept": in_band.mean(),
                "mean_difficulty": 3.5,
                "mean_response_tokens": traces["response_tokens"].mean(),
                "validation_success": 0.5,
                "attempts_lost": 0,
                "tasks_refilled": None,
                "tasks_note": "",
                "heldout_success": 0.5,
                "heldout_success_greedy": None,
                "heldout_answer_probability": None,
                "kl_env": None,
                "kl_env_se": None,
                "grpo_steps": 8,
                "rwr_steps": 8,
                "agent_checkpoint": f"agent-{epoch}",
                "env_checkpoint": f"env-{epoch}",
                "agent_action": "updated",
                "agent_note": "",
                "env_action": "updated",
                "env_note": "",
            }
        ]
    )
