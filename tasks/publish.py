"""Stage `publish`: gates, then which checkpoints are current, and the epoch's summary row."""

from __future__ import annotations

from typing import Any

import polars as pl

from genenv_core.algorithm.gates import GateResult, agent_gate, env_gate
from genenv_core.algorithm.selection import in_band
from genenv_core.config.schema import RunConfig
from genenv_core.storage.artifacts import Artifacts
from genenv_core.storage.canonical import canonical_json
from genenv_core.storage.manifest import ArtifactRef, Manifest
from genenv_core.types import TaskSource
from schemas.enums import Gate, PolicyName, UpdateAction
from tasks.housekeeping import tidy
from tasks.rows import frame
from tasks.score import judged_p_hat
from tasks.stage import Stage, StageContext, StageTask
from tasks.tracking import track

STAGE = Stage(
    "publish",
    ("tasks.publish",),
    ("gates", "curriculum.alpha", "curriculum.k_min", "curriculum.level"),
)


def compute(context: StageContext) -> dict[str, Any]:
    """Decide and write the rows; facts say what the next epoch starts from."""
    evaluation = context.manifest("evaluation").facts
    if context.epoch == 0:
        return _bootstrap(context, evaluation)
    current, best = context.inputs["heldout_current"], context.inputs["heldout_best"]
    updates = {
        PolicyName.AGENT: context.manifest("grpo"),
        PolicyName.ENV: context.manifest("rwr"),
    }
    gates: dict[PolicyName, GateResult] = {}
    for policy, update in updates.items():
        settings = context.config.gates
        if update.facts["action"] == UpdateAction.SKIPPED.value:
            gates[policy] = GateResult()
        elif policy is PolicyName.AGENT:
            gates[policy] = agent_gate(
                update.facts["metrics"],
                settings,
                heldout=evaluation["sampled"],
                heldout_current=float(current),
            )
        else:
            gates[policy] = env_gate(update.facts["metrics"], settings)
    open_ = {policy: gates[policy].gate is Gate.OPEN for policy in gates}
    is_best = open_[PolicyName.AGENT] and evaluation["sampled"] > float(best)
    rows: list[dict[str, Any]] = []
    digests: dict[str, str] = {}
    for policy, update in updates.items():
        parent = context.checkpoint_ref(policy.value).digest
        made = update.facts["action"] != UpdateAction.SKIPPED.value
        candidate = update.checkpoint_digest(policy.value) if made else parent
        digests[policy.value] = candidate if open_[policy] else parent
        rows.append(
            {
                "policy": policy.value,
                "epoch": context.epoch,
                "digest": candidate,
                "parent_digest": parent,
                "published": open_[policy],
                "gate": gates[policy].gate.value,
                "gate_detail": gates[policy].detail,
                "steps": update.facts["steps"],
                "is_best": is_best and policy is PolicyName.AGENT,
                "metrics": canonical_json(_metrics(context, policy, update)).decode(),
            }
        )
    context.out.table("checkpoints", frame("checkpoints", rows))
    summary = _summary(context, evaluation, digests)
    context.out.table("epochs", frame("epochs", [summary]))
    return {
        "published": {
            policy.value: open_[policy] and update.facts["action"] != UpdateAction.SKIPPED.value
            for policy, update in updates.items()
        },
        "gates": {
            policy.value: f"{result.gate.value}: {result.detail}"
            for policy, result in gates.items()
            if result.gate is not Gate.OPEN
        },
        "is_best": is_best,
        "heldout": evaluation["sampled"],
        "summary": summary,
    }


def _metrics(context: StageContext, policy: PolicyName, update: Manifest) -> dict[str, float]:
    """Return an update's metrics, and for pi_agent those of the rollouts that it could learn of."""
    rollouts = context.manifest("traces").facts["metrics"] if policy is PolicyName.AGENT else {}
    return {**rollouts, **update.facts["metrics"]}


def _bootstrap(context: StageContext, evaluation: dict[str, Any]) -> dict[str, Any]:
    """Publish the checkpoints that the game starts from; nothing can close a gate yet."""
    rows = [
        {
            "policy": policy.value,
            "epoch": 0,
            "digest": context.checkpoint_ref(policy.value).digest,
            "published": True,
            "gate": Gate.OPEN.value,
            "gate_detail": "",
            "steps": 0,
            "is_best": policy is PolicyName.AGENT,
            "metrics": "{}",
        }
        for policy in PolicyName
    ]
    context.out.table("checkpoints", frame("checkpoints", rows))
    return {
        "published": {policy.value: True for policy in PolicyName},
        "gates": {},
        "is_best": True,
        "heldout": evaluation["sampled"],
        "summary": {
            "heldout_success": evaluation["sampled"],
            "heldout_success_greedy": evaluation.get("greedy"),
        },
    }


def _summary(
    context: StageContext, evaluation: dict[str, Any], digests: dict[str, str]
) -> dict[str, Any]:
    """Return the row of `epochs`; means over no tasks are null."""
    curriculum = context.config.curriculum
    tasks = context.frame("tasks", "tasks")
    groups = context.frame("scores", "task_scores").filter(
        pl.col("source") != TaskSource.BASE.value
    )
    judged = groups.select(judged_p_hat(curriculum.level)).to_series().to_list()
    traces = context.frame("traces", "traces").join(groups, on="group_id", how="semi")
    kept = context.frame("selections", "selections").filter(
        (pl.col("update") == PolicyName.ENV.value) & pl.col("kept")
    )
    grpo, rwr = context.manifest("grpo").facts, context.manifest("rwr").facts
    attempts = int(groups["n"].sum())
    band = [in_band(p, alpha=curriculum.alpha, k_min=curriculum.k_min) for p in judged]
    return {
        "epoch": context.epoch,
        "tasks_generated": tasks.height,
        "tasks_valid": int(tasks["valid"].sum()),
        "p_hat": groups["successes"].sum() / attempts if attempts else None,
        "r_env_mean": groups["r_env"].mean(),
        "share_in_band": sum(band) / len(band) if band else None,
        "share_zero_signal": groups["zero_signal"].cast(pl.Float64).mean(),
        "share_kept": kept.height / groups.height if groups.height else None,
        "mean_calls": tasks.filter("valid")["difficulty"].mean(),
        "mean_response_tokens": traces["response_tokens"].mean(),
        "heldout_success": evaluation["sampled"],
        "heldout_success_greedy": evaluation.get("greedy"),
        "kl_env": rwr["metrics"].get("kl_env"),
        "grpo_steps": grpo["steps"],
        "rwr_steps": rwr["steps"],
        "agent_checkpoint": digests["agent"],
        "env_checkpoint": digests["env"],
        "agent_action": grpo["action"],
        "agent_note": grpo["note"],
        "env_action": rwr["action"],
        "env_note": rwr["note"],
    }


def _after(config: RunConfig, epoch: int, ref: ArtifactRef, artifacts: Artifacts) -> None:
    track(config, epoch, ref, artifacts)
    tidy(config, epoch, ref, artifacts)


publish = StageTask(STAGE, compute, after=_after)
