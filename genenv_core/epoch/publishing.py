"""Stage `publish`: the gates, the current checkpoints, and the epoch's summary row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import polars as pl

from genenv_core.algorithm.chance import skill_of
from genenv_core.algorithm.gates import GateResult, agent_gate, env_gate
from genenv_core.algorithm.reward import judged_skill
from genenv_core.algorithm.selection import in_band
from genenv_core.canonical import canonical_json
from genenv_core.config.sections.curriculum import CurriculumConfig
from genenv_core.config.sections.evaluation import GatesConfig
from genenv_core.epoch.attempting.choosing import reserve_tasks, written_p_hat
from genenv_core.epoch.rows import Output, frame, new_groups, with_verdict
from genenv_core.storage.records.manifest import CheckpointRef, Manifest
from genenv_core.types import Policy
from schemas.enums import EvaluationMode, Gate, Split, UpdateAction


@dataclass(frozen=True, slots=True)
class Update:
    """What an update did to a policy.

    `parent` and `digest` are the checkpoints before and after it, equal for a skipped update.
    """

    action: UpdateAction
    note: str
    steps: int
    metrics: Mapping[str, float]
    parent: str
    digest: str

    @classmethod
    def of(cls, update: Manifest, current: CheckpointRef) -> Self:
        """Read the manifest of an update; `current` is the policy's checkpoint before it."""
        facts = update.facts
        action = UpdateAction(facts["action"])
        skipped = action is UpdateAction.SKIPPED
        digest = current.digest if skipped else update.checkpoint_digest(current.name)
        return cls(action, facts["note"], facts["steps"], facts["metrics"], current.digest, digest)

    @property
    def made(self) -> bool:
        """Return whether the update made a new checkpoint."""
        return self.action is not UpdateAction.SKIPPED


@dataclass(frozen=True, slots=True)
class HeldoutSuccess:
    """A checkpoint's success on the held-out tasks.

    The gates read `validation` alone. `test` holds columns of `epochs`, for people to read.
    """

    validation: float
    test: Mapping[str, float | None]

    @classmethod
    def of(cls, evaluation: Manifest) -> Self:
        """Read the manifest of an evaluation."""
        test = evaluation.facts[Split.TEST]
        columns = {
            "heldout_success": test[EvaluationMode.SAMPLED],
            "heldout_success_greedy": test.get(EvaluationMode.GREEDY),
            "heldout_answer_probability": test.get("answer_probability"),
        }
        return cls(evaluation.facts[Split.VALIDATION][EvaluationMode.SAMPLED], columns)

    @property
    def columns(self) -> dict[str, float | None]:
        """Return the columns of `epochs`."""
        return {"validation_success": self.validation, **self.test}


def publish_candidates(
    updates: Mapping[Policy, Update],
    measured: HeldoutSuccess,
    *,
    current: float,
    best: float,
    tasks: pl.DataFrame,
    traces: pl.DataFrame,
    task_scores: pl.DataFrame,
    selections: pl.DataFrame,
    rollout_metrics: Mapping[str, float],
    fidelity: float | None = None,
    tasks_note: str = "",
    epoch: int,
    gates: GatesConfig,
    curriculum: CurriculumConfig,
) -> Output:
    """Return `checkpoints` and `epochs`; the next epoch starts from the facts.

    Args:
        updates: of both policies.
        measured: the candidate agent's success on the held-out tasks.
        current: validation success of the checkpoint it would replace.
        best: validation success of the best checkpoint so far.
        tasks: the epoch's tasks.
        traces: the epoch's traces.
        task_scores: the epoch's groups.
        selections: the epoch's decisions.
        rollout_metrics: metrics of the rollouts, stored beside those of pi_agent's update.
        fidelity: of what pi_env answered in the place of the tools, None where the tools ran.
        tasks_note: what is wrong with the epoch's tasks, else ''.
        epoch: number of the round.
        gates: limits of a candidate.
        curriculum: the settings by which the summary judges tasks.
    """
    if fidelity is not None:
        agent = updates[Policy.AGENT]
        heard = replace(agent, metrics={**agent.metrics, "fidelity": fidelity})
        updates = {**updates, Policy.AGENT: heard}
    results = {
        policy: _gate(policy, update, gates, measured.validation, current)
        for policy, update in updates.items()
    }
    open_ = {policy: result.gate is Gate.OPEN for policy, result in results.items()}
    is_best = open_[Policy.AGENT] and measured.validation > best
    shown = {
        policy: {**(rollout_metrics if policy is Policy.AGENT else {}), **update.metrics}
        for policy, update in updates.items()
    }
    rows = [
        {
            "policy": policy.value,
            "epoch": epoch,
            "digest": update.digest,
            "parent_digest": update.parent,
            "published": open_[policy],
            "gate": results[policy].gate.value,
            "gate_detail": results[policy].detail,
            "steps": update.steps,
            "is_best": is_best and policy is Policy.AGENT,
            "metrics": canonical_json(shown[policy]).decode(),
        }
        for policy, update in updates.items()
    ]
    published = {
        policy: update.digest if open_[policy] else update.parent
        for policy, update in updates.items()
    }
    agent, env = updates[Policy.AGENT], updates[Policy.ENV]
    summary = {
        "epoch": epoch,
        "tasks_note": tasks_note,
        **_of_tasks(tasks, traces, task_scores, selections, curriculum),
        **measured.columns,
        "kl_env": env.metrics.get("kl_env"),
        "kl_env_se": env.metrics.get("kl_env_se"),
        "grpo_steps": agent.steps,
        "rwr_steps": env.steps,
        "agent_checkpoint": published[Policy.AGENT],
        "env_checkpoint": published[Policy.ENV],
        "agent_action": agent.action.value,
        "agent_note": agent.note,
        "env_action": env.action.value,
        "env_note": env.note,
    }
    return Output(
        {"checkpoints": frame("checkpoints", rows), "epochs": frame("epochs", [summary])},
        {
            "published": {
                policy.value: open_[policy] and update.made for policy, update in updates.items()
            },
            "gates": {
                policy.value: f"{result.gate.value}: {result.detail}"
                for policy, result in results.items()
                if not open_[policy]
            },
            "is_best": is_best,
            "validation": measured.validation,
            "summary": summary,
        },
    )


def publish_first(
    digests: Mapping[Policy, str],
    measured: HeldoutSuccess,
    warm_starts: Mapping[str, Mapping[str, float]],
) -> Output:
    """Return the `checkpoints` that the game starts from, all of them with open gates.

    `warm_starts` are the metrics of each warm start, by policy; a given model may have none.
    """
    rows = [
        {
            "policy": policy.value,
            "epoch": 0,
            "digest": digest,
            "published": True,
            "gate": Gate.OPEN.value,
            "gate_detail": "",
            "steps": 0,
            "is_best": policy is Policy.AGENT,
            "metrics": canonical_json(warm_starts.get(policy, {})).decode(),
        }
        for policy, digest in digests.items()
    ]
    return Output(
        {"checkpoints": frame("checkpoints", rows)},
        {
            "published": {policy.value: True for policy in digests},
            "gates": {},
            "is_best": True,
            "validation": measured.validation,
            "summary": measured.columns,
        },
    )


def _gate(
    policy: Policy, update: Update, gates: GatesConfig, validation: float, current: float
) -> GateResult:
    if not update.made:
        return GateResult()
    if policy is Policy.ENV:
        return env_gate(update.metrics, gates)
    return agent_gate(update.metrics, gates, validation=validation, current=current)


def _of_tasks(
    tasks: pl.DataFrame,
    traces: pl.DataFrame,
    task_scores: pl.DataFrame,
    selections: pl.DataFrame,
    curriculum: CurriculumConfig,
) -> dict[str, Any]:
    """Return the columns of `epochs` about new tasks; without tasks, means are null."""
    groups = new_groups(task_scores)
    band = [
        in_band(skill, alpha=curriculum.alpha, k_min=curriculum.k_min)
        for skill in groups.select(judged_skill(curriculum.level)).to_series()
    ]
    kept = selections.filter((pl.col("update") == Policy.ENV.value) & pl.col("kept"))
    attempts = int(groups["n"].sum())
    verdicts = with_verdict(traces)
    of_new = verdicts.join(groups, on="group_id", how="semi")
    # A set lasts for several epochs: these are the tasks of this one.
    attempted = tasks.join(groups, on="task_id", how="semi", maintain_order="left")
    return {
        "tasks_generated": tasks.height,
        "tasks_valid": int(tasks["valid"].sum()),
        "p_hat": int(groups["successes"].sum()) / attempts if attempts else None,
        "p_hat_written": written_p_hat(tasks, task_scores),
        "skill": skill_of(groups, tasks),
        "r_env_mean": groups["r_env"].mean(),
        "share_in_band": sum(band) / len(band) if band else None,
        "share_zero_signal": groups["zero_signal"].cast(pl.Float64).mean(),
        "share_kept": kept.height / groups.height if groups.height else None,
        "mean_difficulty": attempted["difficulty"].mean(),
        "mean_response_tokens": of_new["response_tokens"].mean(),
        "attempts_lost": traces.height - verdicts.height,
        "tasks_refilled": _refilled(tasks, traces),
    }


def _refilled(tasks: pl.DataFrame, traces: pl.DataFrame) -> int | None:
    """Return how many tasks of the reserve the epoch attempted; None without a reserve."""
    reserve = reserve_tasks(tasks)
    if reserve.is_empty():
        return None
    return reserve.join(traces, on="task_id", how="semi").height
