"""Stage `warm_start`: a few supervised steps of given models, as many as they need.

A model is looked at before the first step and after each round. It goes on as it is when it has
reached its target, so a model that had reached it before keeps its bits.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from genenv_core.config.sections.warm_start import WarmStartConfig
from genenv_core.domains.protocol import SeedData, ToolsByTask
from genenv_core.epoch.generation import grammar_of
from genenv_core.epoch.reached import WARM_STARTS
from genenv_core.epoch.trouble import troubles
from genenv_core.epoch.warm_starting import (
    FileLessons,
    Lessons,
    OwnLessons,
    lesson_rows,
    reached,
    right_answers,
    short_of,
    valid_texts,
)
from genenv_core.errors import ConfigError
from genenv_core.exchange.examples import read_examples
from genenv_core.play.chat import ChatFormat
from genenv_core.storage.records.artifacts import folder_digest
from genenv_core.storage.records.manifest import ArtifactRef, CheckpointRef, FileRef
from genenv_core.training.requests import SftRequest, TrainerCheckpoints, of_warm_start
from genenv_core.types import JsonObject, Policy
from tasks.policies.engine import SAMPLING_FIELDS, patient_engine
from tasks.policies.trainer import trainer
from tasks.stage import Stage, StageContext, log
from tasks.stage.task import StageTask

SETTINGS = tuple(name for name in WarmStartConfig.model_fields if name != "examples")
"""What is in the key; the file of examples is, by its content."""

STAGE = Stage(
    "warm_start",
    ("tasks.warm_start", "genenv_core.training.sft.trainer"),
    (
        *(f"warm_start.{name}" for name in SETTINGS),
        "training",
        "domain",
        "generation.guard",
        "generation.max_tokens",
        "generation.structured",
        "generation.temperature",
        "generation.top_p",
        "models.agent_chat_template_kwargs",
        "models.env_chat_template_kwargs",
        "rollout.max_tokens",
        *SAMPLING_FIELDS,
    ),
    ("torch", "transformers", "trl", "accelerate", "peft"),
)


@dataclass(frozen=True, slots=True)
class WarmStartInputs:
    """The checkpoints of bootstrap, and which of them are given models.

    `examples` is a file in place of the domain's own examples.
    """

    agent: CheckpointRef
    env: CheckpointRef
    bootstrap: ArtifactRef
    agent_given: bool
    env_given: bool
    examples: FileRef | None = None


def compute(context: StageContext[WarmStartInputs]) -> dict[str, Any]:
    """Write both checkpoints that the game starts from; return what was reached."""
    inputs = context.inputs
    started = dict(context.manifest(inputs.bootstrap).facts.get(WARM_STARTS, {}))
    made: dict[Policy, Path] = {}
    for policy, ref, given in (
        (Policy.AGENT, inputs.agent, inputs.agent_given),
        (Policy.ENV, inputs.env, inputs.env_given),
    ):
        made[policy] = context.checkpoint(ref)
        if given:
            made[policy], started[policy.value] = _taught(context, policy, ref)
    for policy, folder in made.items():
        context.out.checkpoint(policy, folder)
    facts: dict[str, Any] = {WARM_STARTS: started, **short_of(started)}
    for said in troubles(facts):
        log.warning("stage=%s %s", STAGE.name, said)
    return facts


def _taught(
    context: StageContext[WarmStartInputs], policy: Policy, start: CheckpointRef
) -> tuple[Path, dict[str, float]]:
    """Return the folder of a given policy after its warm start, and what it reached."""
    settings = _settings(context)
    lessons, tools = _lessons(context, settings), _tools(context, policy)
    folder, digest, metrics = context.checkpoint(start), start.digest, dict[str, float]()
    steps = number = 0
    while True:
        right, of = _look(context, policy, folder, digest, lessons, number)
        told = reached(policy, settings, metrics, steps=steps, right=right, of=of)
        words = f"{right} of {of} {'texts' if policy is Policy.ENV else 'answers'} right"
        loss = f"loss {metrics['loss']:.3f}, " if metrics else ""
        context.progress(
            steps, settings.steps, "steps", part=f"pi_{policy}", message=f"{loss}{words}"
        )
        if told["reached"] >= told["target"] or steps >= settings.steps:
            return folder, told
        count = min(settings.round_steps, settings.steps - steps)
        batch = settings.batch_rows
        examples = lessons.taught(policy, steps * batch, count * batch)
        rows = context.work / f"{policy}-{number}.parquet"
        lesson_rows(_chat(context, policy, folder), examples, tools).write_parquet(rows)
        kept = context.durable() / f"{policy}-{number}"
        result = trainer().update(
            SftRequest(
                policy=policy,
                checkpoint=folder,
                output=context.work / f"{policy}-{number}",
                rows=rows,
                settings=settings,
                training=of_warm_start(context.config.training),
                gradient_checkpointing=context.execution.gradient_checkpointing == "full",
                seed=context.seed_for("train", policy, number) % 2**31,
                threads=context.config.compute.threads,
                checkpoints=TrainerCheckpoints(
                    folder=kept, seconds=context.execution.checkpoint_seconds
                ),
            )
        )
        shutil.rmtree(kept, ignore_errors=True)
        if number:  # a round of this stage; the first one began at the given model
            shutil.rmtree(folder)
        folder, digest = result.checkpoint, folder_digest(result.checkpoint)
        metrics, steps, number = result.metrics, steps + result.steps, number + 1


def _look(
    context: StageContext[WarmStartInputs],
    policy: Policy,
    folder: Path,
    digest: str,
    lessons: Lessons,
    number: int,
) -> tuple[int, int]:
    """Return how many of a look's examples or texts are right, and how many it has."""
    config, count = context.config, context.config.warm_start.probe_rows
    chat = _chat(context, policy, folder)
    top_p = config.generation.top_p if policy is Policy.ENV else 1.0
    with closing(patient_engine(context, folder, digest, top_p=top_p)) as engine:
        if policy is Policy.AGENT:
            asked = lessons.asked(number, count)
            tools = _tools(context, policy)
            max_tokens = config.rollout.max_tokens
            return right_answers(engine, chat, asked, tools, max_tokens=max_tokens), len(asked)
        domain = context.domain()
        valid = valid_texts(
            engine,
            chat,
            domain,
            config.generation,
            grammar_of(domain, config.generation),
            data=context.frame(context.inputs.bootstrap, "tasks"),
            count=count,
            seed_for=partial(context.seed_for, "look", number),
        )
        return valid, count


def _settings(context: StageContext[WarmStartInputs]) -> WarmStartConfig:
    """Return the section of the configuration as far as the stage may read it."""
    view = context.config.warm_start
    return WarmStartConfig(**{name: getattr(view, name) for name in SETTINGS})


def _lessons(context: StageContext[WarmStartInputs], settings: WarmStartConfig) -> Lessons:
    file, domain, seed = context.inputs.examples, context.domain(), context.seed_for("lessons")
    if file is not None:
        return FileLessons(read_examples(Path(file.path), ()), seed)
    if not isinstance(domain, SeedData):
        raise ConfigError(f"warm_start: the domain {domain.name} has no seed data")
    return OwnLessons(domain, seed, settings.easy_skew)


def _tools(context: StageContext[WarmStartInputs], policy: Policy) -> Sequence[JsonObject]:
    """Return the tools that pi_agent has in every task; examples name no task."""
    domain = context.domain()
    return () if policy is Policy.ENV or isinstance(domain, ToolsByTask) else domain.tools


def _chat(context: StageContext[WarmStartInputs], policy: Policy, folder: Path) -> ChatFormat:
    models = context.config.models
    variables = {
        Policy.AGENT: models.agent_chat_template_kwargs,
        Policy.ENV: models.env_chat_template_kwargs,
    }
    return ChatFormat.load(folder, variables[policy])


warm_start = StageTask(STAGE, WarmStartInputs, compute)
