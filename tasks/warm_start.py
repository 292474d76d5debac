"""Stage `warm_start`: trains given models for a few supervised steps, as many as they need.

The stage measures a model before the first step and after each round, and stops when the model has
reached its target. So a model that reaches it without training keeps its bits. The rounds are one
optimization: each goes on with the weights and Adam's moments of the one before. Finished rounds
are durable, so a killed stage repeats no finished round.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from genenv_core.config.sections.models import chat_template_kwargs
from genenv_core.config.sections.warm_start import WarmStartConfig
from genenv_core.config.stages import WARM_STARTS
from genenv_core.epoch.rows import of_source
from genenv_core.epoch.trouble import troubles
from genenv_core.epoch.warm_starting import (
    Lessons,
    lesson_rows,
    lessons_of,
    reached,
    right_answers,
    short_of,
    tools_of,
    valid_texts,
)
from genenv_core.epoch.writing.generation import grammar_of
from genenv_core.errors import ConfigError
from genenv_core.exchange.examples.given import examples_at
from genenv_core.play.chat import ChatFormat
from genenv_core.storage.records.manifest import (
    ArtifactRef,
    CheckpointRef,
    ExamplesRef,
    FileRef,
)
from genenv_core.training.requests import TrainerCheckpoints
from genenv_core.training.updates.warm_start import SftRequest, of_warm_start
from genenv_core.types import Policy, TaskSource
from tasks.placement.task import StageTask
from tasks.policies.engine import SAMPLING_FIELDS, patient_engine
from tasks.policies.noted import show_steps, shown_steps
from tasks.policies.rounds import CHECKPOINT, STATE, Round, Rounds
from tasks.policies.trainer import trainer
from tasks.stage import Stage, StageContext, log

SETTINGS = tuple(name for name in WarmStartConfig.model_fields if name != "examples")
"""Fields in the key, which holds the digest of named examples instead of their name."""

STAGE = Stage(
    "warm_start",
    ("tasks.warm_start", "genenv_core.training.sft.trainer"),
    (
        *(f"warm_start.{name}" for name in SETTINGS),
        "warm_start.easy_skew",  # a constant
        "training",
        "domain",
        "generation.guard",
        "generation.max_tokens",
        "generation.shots",
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

    `examples` is a file or a stored run in place of the domain's own examples.
    """

    agent: CheckpointRef
    env: CheckpointRef
    bootstrap: ArtifactRef
    agent_given: bool
    env_given: bool
    examples: FileRef | ExamplesRef | None = None


def compute(context: StageContext[WarmStartInputs]) -> dict[str, Any]:
    """Write both checkpoints that the game starts from; return the facts."""
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
    """Return the folder of a given policy after its warm start, and the warm start's numbers."""
    settings, given = _settings(context), context.checkpoint(start)
    lessons, chat = _lessons(context, settings), _chat(context, policy, given)
    rounds = Rounds(context.durable(), context.work, policy.value)
    last = rounds.newest()
    if last.number:
        log.info("stage=%s part=pi_%s resumed_at=%d", STAGE.name, policy, last.steps)
    while True:
        folder, digest = given, start.digest
        if last.number:
            folder = rounds.folder(last.number) / CHECKPOINT
            digest = last.digests[CHECKPOINT]
        right, of = _look(context, policy, folder, digest, lessons, chat, last.number)
        told = reached(policy, settings, last.metrics, steps=last.steps, right=right, of=of)
        words = f"{right} of {of} {'texts' if policy is Policy.ENV else 'answers'} right"
        loss = f"loss {last.metrics['loss']:.3f}, " if last.number else ""
        context.progress(
            last.steps, settings.steps, "steps", part=f"pi_{policy}", message=f"{loss}{words}"
        )
        if told["reached"] >= told["target"] or last.steps >= settings.steps:
            return folder, told
        steps, size = min(settings.round_steps, settings.steps - last.steps), settings.batch_rows
        examples = lessons.taught(policy, last.steps * size, steps * size)
        rows = context.work / f"{policy}-{last.number + 1}.parquet"
        lesson_rows(chat, examples, tools_of(context.domain(), policy)).write_parquet(rows)
        last = _round(context, policy, given, rows, rounds, last)


def _round(
    context: StageContext[WarmStartInputs],
    policy: Policy,
    given: Path,
    rows: Path,
    rounds: Rounds,
    last: Round,
) -> Round:
    """Train a round on `rows` after the `last` one, make it durable, and return it."""
    settings, number = _settings(context), last.number + 1
    home = rounds.folder(number)
    home.mkdir()
    asked = SftRequest(
        policy=policy,
        checkpoint=given,
        output=home / CHECKPOINT,
        rows=rows,
        settings=settings,
        training=of_warm_start(context.config.training),
        gradient_checkpointing=context.execution.gradient_checkpointing == "full",
        seed=context.seed_for("train", policy) % 2**31,
        threads=context.config.compute.threads,
        checkpoints=TrainerCheckpoints(
            folder=rounds.trainer(number), seconds=context.execution.checkpoint_seconds
        ),
        noted=home / "losses",
        follows=rounds.folder(last.number) / STATE if last.number else None,
        leaves=home / STATE,
    )
    assert asked.noted is not None
    part = f"pi_{policy}"
    with shown_steps(context, asked.noted, settings.steps, part=part, before=last.steps):
        result = trainer().update(asked)
    made = rounds.keep(number, last.steps + result.steps, result.metrics)
    # Only now, as the round is durable: in a cancelled run a report ends the stage.
    show_steps(context, asked.noted, settings.steps, part=part, before=last.steps)
    return made


def _look(
    context: StageContext[WarmStartInputs],
    policy: Policy,
    folder: Path,
    digest: str,
    lessons: Lessons,
    chat: ChatFormat,
    number: int,
) -> tuple[int, int]:
    """Return how many examples or texts of a look are right, and how many it has."""
    config, count = context.config, context.config.warm_start.probe_rows
    domain = context.domain()
    top_p = config.generation.top_p if policy is Policy.ENV else 1.0
    with closing(patient_engine(context, folder, digest, top_p=top_p)) as engine:
        if policy is Policy.AGENT:
            asked = lessons.asked(number, count)
            tools = tools_of(domain, policy)
            max_tokens = config.rollout.max_tokens
            return right_answers(engine, chat, asked, tools, max_tokens=max_tokens), len(asked)
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
    """Return the section of the configuration, without the field that the stage may not read."""
    view = context.config.warm_start
    return WarmStartConfig(**{name: getattr(view, name) for name in SETTINGS})


def _lessons(context: StageContext[WarmStartInputs], settings: WarmStartConfig) -> Lessons:
    ref, domain, examples = context.inputs.examples, context.domain(), None
    if ref is not None:
        data = context.frame(context.inputs.bootstrap, "tasks")
        measured = of_source(data, TaskSource.VALIDATION, TaskSource.TEST)
        examples = examples_at(ref, set(measured["fingerprint"]))
    found = lessons_of(domain, examples, settings.easy_skew, context.seed_for("lessons"))
    if found is None:
        raise ConfigError(f"warm_start: the domain {domain.name} has no seed data")
    return found


def _chat(context: StageContext[WarmStartInputs], policy: Policy, folder: Path) -> ChatFormat:
    return ChatFormat.load(folder, chat_template_kwargs(context.config.models, policy))


warm_start = StageTask(STAGE, WarmStartInputs, compute)
