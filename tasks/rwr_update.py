"""Stage `rwr_update`: reward-weighted regression of pi_env on its rows of D_env.

The stage then samples the new pi_env, to measure its KL to the first one, and where pi_env plays
the tools how true its answers are.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from genenv_core.algorithm.pay.alpha import tracked_target
from genenv_core.algorithm.pay.weights import step_count
from genenv_core.engines.protocol import Engine
from genenv_core.epoch.attempting.choosing import written_skill
from genenv_core.epoch.env_update import env_rows, on_policy
from genenv_core.epoch.observing import episode_seed
from genenv_core.epoch.probe import (
    asked_before,
    fidelity_metrics,
    fresh_answers,
    fresh_generations,
    kl_metrics,
)
from genenv_core.epoch.rows import UpdateRows, to_tasks
from genenv_core.play.chat import ChatFormat
from genenv_core.play.fidelity import Fidelity
from genenv_core.play.simulator import Simulator
from genenv_core.storage.records.artifacts import folder_digest
from genenv_core.storage.records.manifest import ArtifactRef, CheckpointRef
from genenv_core.training.updates.rwr import RwrRequest, of_env
from genenv_core.training.updates.table import USUAL
from genenv_core.types import Policy, SamplingParams
from tasks.placement.task import StageTask
from tasks.policies.engine import SAMPLING_FIELDS, patient_engine
from tasks.policies.scoring import arithmetic_of
from tasks.policies.update import update, without
from tasks.stage import Stage, StageContext

STAGE = Stage(
    "rwr_update",
    ("tasks.rwr_update", USUAL[Policy.ENV].trainer),
    (
        "rwr",
        "training",
        "curriculum.alpha",
        "curriculum.beta",
        "curriculum.track",
        "generation.max_tokens",
        "generation.structured",  # the probe holds its texts to the grammars of the rows
        "generation.temperature",
        "generation.top_p",
        "models.env_chat_template_kwargs",
        "domain",
        "rollout.max_length",
        "tools.max_tokens",
        "tools.temperature",
        *SAMPLING_FIELDS,
    ),
    ("torch", "transformers", "trl", "accelerate", "peft"),
)


@dataclass(frozen=True, slots=True)
class SimulatedAttempts:
    """This epoch's attempts, in which pi_env plays the tools, and the run's base tasks."""

    traces: ArtifactRef
    bootstrap: ArtifactRef


@dataclass(frozen=True, slots=True)
class RwrUpdateInputs:
    """The current pi_env, whether to train it, the first pi_env, and the window of D_env.

    `scores` are those of this epoch, which move the target; the rest is of the window. `simulated`
    is None where the tools run. `rehearsed` are the tasks of epoch 1, with the texts of the first
    pi_env; None without rehearsal.
    """

    env: CheckpointRef
    env_initial: CheckpointRef
    pools: Sequence[ArtifactRef]
    generations: Sequence[ArtifactRef]
    scores: ArtifactRef
    train: bool
    simulated: SimulatedAttempts | None = None
    rehearsed: ArtifactRef | None = None


def compute(context: StageContext[RwrUpdateInputs]) -> dict[str, Any]:
    """Train pi_env; return the facts."""
    rwr, rows, aimed = context.config.rwr, None, dict[str, float]()
    if context.inputs.train:
        target = _target(context)
        rows = _rows(context, target)
        aimed = {"rwr_target": target} if rwr.pay == "alpha" else {}
    return update(
        context,
        context.inputs.env,
        rows,
        partial(_request, context),
        lambda rows: step_count(rows, steps=rwr.steps, steps_per_row=rwr.steps_per_row),
        unit="rows",
        without_rows=without(
            context.inputs.pools[-1], "no generation passed the k_min filter in this epoch"
        ),
        measure=lambda folder: aimed | _probe(context, folder),
    )


def _rows(context: StageContext[RwrUpdateInputs], target: float) -> UpdateRows:
    return env_rows(
        context.frame(context.inputs.pools, "d_env"),
        context.frame(context.inputs.generations, "generations"),
        context.frame(context.inputs.generations, "tasks"),
        first=_first_texts(context),
        epoch=context.epoch,
        target=target,
        seed=context.seed_for("rehearsal"),
        rwr=context.config.rwr,
        curriculum=context.config.curriculum,
    )


def _first_texts(context: StageContext[RwrUpdateInputs]) -> pl.DataFrame | None:
    """Return the texts of the first pi_env that became valid tasks; None without rehearsal."""
    made = context.inputs.rehearsed
    if made is None:
        return None
    valid = context.frame(made, "tasks").filter("valid").select("generation_id")
    return context.frame(made, "generations").join(
        valid, on="generation_id", how="semi", maintain_order="left"
    )


def _target(context: StageContext[RwrUpdateInputs]) -> float:
    """Return the skill that the weights reward where pay is R_env."""
    settings = context.config.curriculum
    skill = written_skill(
        context.frame(context.inputs.generations[-1], "tasks"),
        context.frame(context.inputs.scores, "task_scores"),
    )
    return tracked_target(skill, alpha=settings.alpha, track=settings.track)


def _request(context: StageContext[RwrUpdateInputs], **shared: Any) -> RwrRequest:
    return RwrRequest(
        initial=context.checkpoint(context.inputs.env_initial),
        settings=context.config.rwr,
        training=of_env(context.config.training),
        **shared,
    )


def _probe(context: StageContext[RwrUpdateInputs], folder: Path) -> dict[str, float]:
    """Return as metrics the KL of the new pi_env to the first one, and how true its answers are."""
    settings = context.config.generation
    chat = ChatFormat.load(folder, context.config.models.env_chat_template_kwargs)
    generations = context.frame(context.inputs.generations, "generations")
    digest = folder_digest(folder)
    with closing(patient_engine(context, folder, digest, top_p=settings.top_p)) as engine:
        fresh = fresh_generations(
            engine,
            on_policy(generations, epoch=context.epoch),
            SamplingParams(
                settings.max_tokens, settings.temperature, settings.top_p, chat.stop_token_ids
            ),
            count=context.config.rwr.probe_generations,
            seed_for=context.seed_for,
        )
        true = fidelity_metrics(_answers(context, engine, chat))
    from genenv_core.engines.transformers.kl import sequence_kl  # loads torch

    initial = context.checkpoint(context.inputs.env_initial)
    kl = sequence_kl(folder, initial, fresh, arithmetic=arithmetic_of(context.config))
    return kl_metrics(kl) | true


def _answers(
    context: StageContext[RwrUpdateInputs], engine: Engine, chat: ChatFormat
) -> list[Fidelity]:
    """Return how true the new pi_env's answers are in the place of the tools; [] elsewhere."""
    played, config = context.inputs.simulated, context.config
    if played is None:
        return []
    domain = context.domain()
    refs = (context.inputs.generations[-1], played.bootstrap)
    tasks = [task for ref in refs for task in to_tasks(context.frame(ref, "tasks"))]
    said = context.frame(played.traces, "trace_tokens").select("trace_id", "messages")
    asked = asked_before(
        context.frame(context.inputs.scores, "observations"),
        context.frame(played.traces, "traces").join(said, on="trace_id", maintain_order="left"),
        {task.task_id: task for task in tasks},
        domain,
        partial(episode_seed, context.seed, context.epoch),
        count=config.rwr.probe_generations,
    )
    return fresh_answers(
        engine,
        Simulator(domain, chat, max_length=config.rollout.max_length),
        asked,
        SamplingParams(
            config.tools.max_tokens, config.tools.temperature, stop_token_ids=chat.stop_token_ids
        ),
        structured=config.compute.engine == "vllm",
        seed_for=context.seed_for,
    )


rwr_update = StageTask(STAGE, RwrUpdateInputs, compute)
