"""Small frames of every table, made by hand rules from two epochs of one run.

`world(tasks=..., n=...)` is referentially whole: every id that a row names exists. Each epoch has
`tasks` generations, the last of them rejected, and one base task that is attempted again.
"""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import polars as pl

from genenv_core.play.calls import with_calls
from genenv_core.types import Flaw
from schemas.registry import TABLES, schema

EPOCHS = (1, 2)
CONFIG = {
    "epochs": 2,
    "curriculum": {
        "alpha": 0.5, "beta": 4.0, "k_min": 0.25, "level": "task", "filter_agent": True
    },
    "rwr": {"lambda": 1.0},
    "rollout": {"n": 4},
}  # fmt: skip
SHIP = '<tool_call>{"name": "receive", "arguments": {"item": "bolts"}}</tool_call>'
MESSAGES = json.dumps(
    with_calls(
        [
            {"role": "user", "content": "Receive bolts."},
            {"role": "assistant", "content": SHIP},
            {"role": "tool", "name": "receive", "content": "recorded"},
        ]
    ),
    separators=(",", ":"),
)
START = datetime(2026, 11, 1, 12, 0, 0, tzinfo=UTC)
Row = dict[str, Any]


def sample_frame(name: str, rows: int | None = None) -> pl.DataFrame:
    """Return a valid frame, of `rows` rows if given (fewer if the table cannot grow)."""
    tasks = 4
    frame = world(tasks)[name]
    if rows is None:
        return frame
    while frame.height < rows and TABLES[name].kind != "record":
        tasks *= 2
        frame = world(tasks)[name]
    return frame.head(rows)


def world(tasks: int = 4, n: int = 4) -> dict[str, pl.DataFrame]:
    """Return every table of two epochs with `tasks` generations each and groups of `n`.

    The dict is the caller's own: a test may put another table into it.
    """
    return dict(_world(tasks, n))


@cache
def _world(tasks: int, n: int) -> dict[str, pl.DataFrame]:
    rows: dict[str, list[Row]] = {name: [] for name in TABLES}
    rows["tasks"].append(_data_task("base", 0))
    rows["tasks"] += [_data_task("test", index) for index in range(tasks)]
    for policy in ("agent", "env"):
        rows["checkpoints"].append(_checkpoint(policy, 0))
    _add_evaluations(rows, 0, tasks)
    for epoch in EPOCHS:
        _add_generations(rows, epoch, tasks)
        _add_rollouts(rows, epoch, tasks, n)
        _add_updates(rows, epoch)
        _add_evaluations(rows, epoch, tasks)
        _add_summary(rows, epoch, tasks)
    _add_benchmark(rows)
    rows["runs"].append(
        {
            "run_id": "run-a",
            "arm": "genenv",
            "domain": "desk",
            "seed": 0,
            "epochs_planned": 2,
            "started_at": START,
            "config": json.dumps(CONFIG | {"rollout": {"n": n}}),
            "tags": ["baseline", "paper"],
            "note": "",
            "pinned": False,
            "branch_of": None,
            "branch_epoch": None,
            "fixed_tasks": '{"desk":40}',
        }
    )
    return {name: pl.DataFrame(found, schema=schema(name)) for name, found in rows.items()}


def _data_task(source: str, index: int) -> Row:
    return {
        "task_id": f"e0000-{source}-{index:06d}",
        "epoch": 0,
        "source": source,
        "generation_index": index,
        "valid": True,
        "rejection_detail": "",
        "family": "k1",
        "difficulty": 1.0,
        "fingerprint": f"{source}-{index}",
        "env_prompt_tokens": 0,
        "generation_tokens": 0,
        "program": f"+ 8 bolts {index}",
        "prompt": "Receive bolts.",
        "ground_truth": "<tool_call>{}</tool_call>",
        "spec": json.dumps({"calls": [index]}),
    }


def _add_generations(rows: dict[str, list[Row]], epoch: int, tasks: int) -> None:
    rows["contexts"] += [
        {
            "context_id": f"e{epoch:04d}-c{index:06d}",
            "epoch": epoch,
            "base_task_id": "e0000-base-000000",
            "messages": json.dumps([{"role": "user", "content": f"success none; {index}"}]),
        }
        for index in range((tasks + 1) // 2)
    ]
    for index in range(tasks):
        rejected = index == tasks - 1
        generation_id = f"e{epoch:04d}-n{index:06d}"
        rows["tasks"].append(
            _data_task("generated", index)
            | {
                "task_id": f"e{epoch:04d}-t{index:06d}",
                "epoch": epoch,
                "generation_id": generation_id,
                "context_id": f"e{epoch:04d}-c{index // 2:06d}",
                "base_task_id": "e0000-base-000000",
                "env_policy_version": epoch - 1,
                "choice": "random",
                "env_prompt_tokens": 3,
                "generation_tokens": 2,
                "fingerprint": f"{epoch}-{index}",
                "generation_text": f"* 3 nuts {index}",
                "nearest_task_id": "e0000-base-000000",
                "similarity": 1.0 if index == 0 else 0.75,
                "nearest_test_id": f"e0000-test-{index:06d}",
                "test_similarity": 1.0,
            }
        )
        if not rejected:
            rows["certificates"] += [
                {
                    "task_id": f"e{epoch:04d}-t{index:06d}",
                    "epoch": epoch,
                    "flaw": flaw.value,
                    "passed": True,
                    "detail": "",
                }
                for flaw in Flaw
            ]
        if rejected:
            gone = dict.fromkeys(
                (
                    *("choice", "prompt", "program", "spec", "ground_truth", "fingerprint"),
                    *("nearest_task_id", "similarity", "nearest_test_id", "test_similarity"),
                )
            )
            rows["tasks"][-1] |= gone | {
                "valid": False,
                "rejection": "unparseable",
                "rejection_detail": "no operator",
                "generation_text": "nuts nuts",
                "family": None,
                "difficulty": None,
            }
        rows["generations"].append(
            {
                "generation_id": generation_id,
                "epoch": epoch,
                "context_id": f"e{epoch:04d}-c{index // 2:06d}",
                "env_policy_version": epoch - 1,
                "finish_reason": "stop",
                "error": "",
                "prompt_ids": [1, 2, 3],
                "token_ids": [4, 5],
                "logprobs": [-0.5, -0.25],
            }
        )


def _add_rollouts(rows: dict[str, list[Row]], epoch: int, tasks: int, n: int) -> None:
    attempted = [(f"e{epoch:04d}-t{index:06d}", index) for index in range(tasks - 1)]
    attempted.append(("e0000-base-000000", tasks - 1))
    for task_id, index in attempted:
        base = task_id.startswith("e0000")
        group_id = f"e{epoch:04d}-g{index:06d}"
        successes = index % (n + 1)
        for sample in range(n):
            trace_id = f"{group_id}-s{sample:04d}"
            common = {
                "trace_id": trace_id,
                "epoch": epoch,
                "task_id": task_id,
                "group_id": group_id,
            }
            success = sample < successes
            outcome = {"reward": float(success), "success": success}
            rows["traces"].append(
                common
                | {
                    "sample_index": sample,
                    "policy_version": epoch - 1,
                    "turns": 1,
                    "prompt_tokens": 2,
                    "response_tokens": 3,
                    "tool_calls": 1,
                    "finish_reason": "stop",
                    "error": "",
                }
            )
            rows["trace_tokens"].append(
                {
                    "trace_id": trace_id,
                    "prompt_ids": [7, 8],
                    "token_ids": [9, 10, 11, 12],
                    "logprobs": [-1.5, -0.125, -0.75, 0.0],
                    "loss_mask": [1, 1, 1, 0],
                    "messages": MESSAGES,
                    "response_text": "<tool_call>",
                }
            )
            if sample == 0:
                rows["trace_sequences"].append(
                    {
                        "trace_id": trace_id, "sequence": 1, "turn": 1, "message": 2,
                        "parent": 0, "branch_turn": 1,
                        "prompt_ids": [1, 5], "token_ids": [6, 2], "logprobs": [-0.5, -0.25],
                        "loss_mask": [1, 1],
                    }
                )  # fmt: skip
                rows["trainer_logprobs"].append(
                    {
                        "trace_id": trace_id,
                        "epoch": epoch,
                        "logprobs": [-1.25, -0.125, -0.75, 0.0],
                    }
                )
            alike = 0.5 if sample == 0 else 1.0
            rows["observations"].append(
                {
                    **{name: common[name] for name in ("trace_id", "epoch", "task_id")},
                    "turn": 0,
                    "fits_schema": True,
                    "same_state": True,
                    "content_similarity": alike,
                    "fidelity": alike,
                    "said": "recorded" if sample else "recorded bolts and nuts",
                    "true_content": "recorded",
                }
            )
            failure = "" if success else "wrong arguments"
            rows["scores"].append(common | outcome | {"failure": failure})
            rows["d_train"].append(
                common
                | outcome
                | {"policy_version": epoch - 1, "source": "base" if base else "new"}
            )
        _add_judgement(rows, epoch, task_id, group_id, index, (successes, n))


def _add_judgement(
    rows: dict[str, list[Row]],
    epoch: int,
    task_id: str,
    group_id: str,
    index: int,
    outcome: tuple[int, int],
) -> None:
    successes, n = outcome
    p_hat = successes / n
    r_env = math.exp(-4 * (p_hat - 0.5) ** 2)
    base = task_id.startswith("e0000")
    context_id = f"e{epoch:04d}-c{index // 2:06d}"
    rows["task_scores"].append(
        {
            "group_id": group_id,
            "epoch": epoch,
            "task_id": task_id,
            "context_id": None if base else context_id,
            "source": "base" if base else "generated",
            "n": n,
            "successes": successes,
            "p_hat": p_hat,
            "r_env_task": None if base else r_env,
            "r_env": None if base else r_env,
            "reward_mean": p_hat,
            "reward_std": math.sqrt(p_hat * (1 - p_hat)),
            "zero_signal": successes in (0, n),
        }
    )
    distance = abs(p_hat - 0.5)
    band = "below_band" if p_hat < 0.5 else "above_band"
    for update in ("agent", "env"):
        reason = "kept" if distance <= 0.25 else band
        if update == "env" and base:
            reason = "not_in_update"
        rows["selections"].append(
            {
                "task_id": task_id,
                "epoch": epoch,
                "update": update,
                "group_id": group_id,
                "kept": reason == "kept",
                "reason": reason,
                "p_hat": p_hat,
                "distance": distance,
            }
        )
    if not base:
        rows["d_env"].append(
            {
                "generation_id": f"e{epoch:04d}-n{index:06d}",
                "epoch": epoch,
                "task_id": task_id,
                "context_id": context_id,
                "env_policy_version": epoch - 1,
                "p_hat": p_hat,
                "r_env": r_env,
                "weight_raw": math.exp(r_env),
                "kept": distance <= 0.25,
            }
        )


def _add_updates(rows: dict[str, list[Row]], epoch: int) -> None:
    for row in rows["d_train"]:
        origin = row["source"] if row["epoch"] == epoch else "history"
        rows["update_samples"].append(
            {
                "row_id": row["trace_id"],
                "policy": "agent",
                "epoch": epoch,
                "group_id": row["group_id"],
                "source": origin,
                "policy_version": row["policy_version"],
                "advantage": row["reward"] - 0.5,
            }
        )
    groups = {row["group_id"]: row for row in rows["update_samples"] if row["epoch"] == epoch}
    used = {name: row for name, row in groups.items() if row["policy"] == "agent"}
    tasks = {row["group_id"]: row["task_id"] for row in rows["d_train"]}
    unit = 0.5 ** len(used).bit_length()  # exact, so the sum is the same in any order
    for place, (group_id, row) in enumerate(used.items(), 1):
        rows["influence"].append(
            {
                "group_id": group_id,
                "epoch": epoch,
                "task_id": tasks[group_id],
                "source": row["source"],
                "alignment": 0.25 * place,
                "share": 1 - (len(used) - 1) * unit if place == len(used) else unit,
                "loss_tokens": 12,
                "tokens": 50,
            }
        )
    kept = {row["generation_id"] for row in rows["d_env"] if row["kept"]}
    for row in rows["generations"]:
        if row["epoch"] == epoch:
            rows["update_samples"].append(
                {
                    "row_id": row["generation_id"],
                    "policy": "env",
                    "epoch": epoch,
                    "source": "new",
                    "policy_version": row["env_policy_version"],
                    "weight": 1.0 if row["generation_id"] in kept else 0.0,
                    "leash": True,
                }
            )
    for policy in ("agent", "env"):
        rows["checkpoints"].append(_checkpoint(policy, epoch))


def _checkpoint(policy: str, epoch: int) -> Row:
    return {
        "policy": policy,
        "epoch": epoch,
        "digest": f"{policy}-digest-{epoch}",
        "parent_digest": f"{policy}-digest-{epoch - 1}" if epoch else None,
        "published": True,
        "gate": "open",
        "gate_detail": "",
        "steps": 8 if epoch else 0,
        "is_best": True,
        "metrics": json.dumps({"loss": 0.5}),
    }


def _add_evaluations(rows: dict[str, list[Row]], epoch: int, tasks: int) -> None:
    for index in range(tasks):
        for mode in ("sampled", "greedy"):
            rows["evaluations"].append(
                {
                    "task_id": f"e0000-test-{index:06d}",
                    "epoch": epoch,
                    "measured_epoch": epoch,
                    "policy_version": epoch,
                    "agent_checkpoint": f"agent-digest-{epoch}",
                    "family": "k1",
                    "split": "test",
                    "mode": mode,
                    "sample_index": 0,
                    "success": index == 0,
                    "answer_probability": 0.25 if mode == "sampled" else None,
                    "reward": float(index == 0),
                    "response_tokens": 5,
                    "failure": "" if index == 0 else "no call",
                }
            )
            rows["evaluation_texts"].append(
                {
                    "task_id": f"e0000-test-{index:06d}",
                    "epoch": epoch,
                    "split": "test",
                    "mode": mode,
                    "sample_index": 0,
                    "messages": json.dumps([{"role": "user", "content": "Receive bolts."}]),
                    "response_text": f"{mode} answer {index}",
                }
            )


def _add_benchmark(rows: dict[str, list[Row]]) -> None:
    """Add verdicts on the traces, as if they were attempts at a benchmark's items."""
    for place, trace in enumerate(rows["traces"]):
        rows["benchmark_items"].append(
            {
                "trace_id": trace["trace_id"],
                "task_id": trace["task_id"],
                "benchmark": "bfcl",
                "item": f"simple_{place}",
                "category": "simple",
                "sample_index": 0,
                "mode": "official",
                "valid": place == 0,
                "score": float(place == 0),
                "reason": "" if place == 0 else "another function",
                "parts": "{}",
            }
        )
    rows["set_flaws"] += [
        {
            "task_id": task_id,
            "set_name": "base",
            "flaw": "accepts_trivial",
            "passed": task_id != rows["traces"][0]["task_id"],
            "detail": "" if task_id != rows["traces"][0]["task_id"] else "'' is a success",
        }
        for task_id in dict.fromkeys(trace["task_id"] for trace in rows["traces"])
    ]
    rows["certified_sets"] += [
        {
            "name": name,
            "estimate": estimate,
            "low": None if estimate is None else estimate / 2,
            "high": estimate,
            "n": 2,
            "unit": "tasks",
            "wanted": limit,
            "at_least": limit > 0,
            "verdict": verdict,
            "detail": "",
        }
        for name, estimate, limit, verdict in (
            ("any_flaw", 0.5, 0.0, "fail"),
            ("reachable", 1.0, 0.9, "cannot say"),
            ("variance", None, 0.05, "cannot say"),
        )
    ]
    rows["benchmark_metrics"] += [
        {
            "benchmark": "bfcl",
            "metric": metric,
            "headline": metric == "simple",
            "items": len(rows["traces"]),
            "not_run": 3,
            "value": 0.25,
            "low": 0.125,
            "high": 0.5,
            "missing": "",
        }
        for metric in ("simple", "python_ast")
    ]


def _add_summary(rows: dict[str, list[Row]], epoch: int, tasks: int) -> None:
    rows["epochs"].append(
        {
            "epoch": epoch,
            "tasks_generated": tasks,
            "tasks_valid": tasks - 1,
            "p_hat": 0.25,
            "r_env_mean": 0.75,
            "share_in_band": 0.5,
            "share_zero_signal": 0.5,
            "share_kept": 0.5,
            "mean_difficulty": 1.0,
            "mean_response_tokens": 3.0,
            "validation_success": 0.5,
            "heldout_success": 0.5,
            "grpo_steps": 8,
            "rwr_steps": 8,
            "agent_checkpoint": f"agent-digest-{epoch}",
            "env_checkpoint": f"env-digest-{epoch}",
            "agent_action": "updated",
            "agent_note": "",
            "env_action": "updated",
            "env_note": "",
        }
    )
    begin = START + timedelta(minutes=epoch)
    # Two seconds of rollout; then both updates side by side, three seconds in all; an hour later
    # the same command again, cached.
    rows["stage_runs"] += [
        _stage_run(epoch, "rollout", 1, begin, 2.0, "computed"),
        _stage_run(epoch, "grpo_update", 1, begin + timedelta(seconds=2), 3.0, "computed"),
        _stage_run(epoch, "rwr_update", 1, begin + timedelta(seconds=3), 1.0, "computed"),
        _stage_run(epoch, "rollout", 2, begin + timedelta(hours=1), 0.5, "cached"),
        _stage_run(epoch, "evaluate", 1, begin + timedelta(seconds=5), None, "interrupted"),
    ]


def _stage_run(
    epoch: int, stage: str, attempt: int, begin: datetime, seconds: float | None, state: str
) -> Row:
    return {
        "run_id": "run-a",
        "epoch": epoch,
        "stage": stage,
        "attempt": attempt,
        "stage_key": f"{stage}-{epoch}",
        "state": state,
        "host": "laptop",
        "pid": 4242,
        "started_at": begin,
        "seconds": seconds,
        "compute_seconds": seconds,
        "rows": 4 if state == "computed" else None,
        "bytes": 100 if state == "computed" else None,
        "error": "",
        "computed_by": "run-b" if state == "cached" else None,
        "computed_at": START if state == "cached" else None,
        "computed_seconds": 12.5 if state == "cached" else None,
        "computed_root": "s3://team/genenv" if state == "cached" and epoch == 2 else None,
        "tokens": 1200 if state == "computed" else None,
        "peak_memory": 2_000_000_000 if state == "computed" else None,
    }
