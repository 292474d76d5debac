"""Stage `generate_tasks`: pi_env or a teacher writes tasks; rejected texts stay as rows."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genenv_core.domains.protocol import shares_of
from genenv_core.epoch.attempting.choosing import rated_attempts
from genenv_core.epoch.attempting.windows import of_a_set
from genenv_core.epoch.rows import Output
from genenv_core.epoch.trouble import troubles
from genenv_core.epoch.writing.contexts import agent_history
from genenv_core.epoch.writing.generation import (
    Writer,
    grammar_of,
    take_programs,
    write_tasks,
)
from genenv_core.epoch.writing.teaching import CheckpointTeacher, Teacher, teach
from genenv_core.exchange.base_data import read_base
from genenv_core.play.chat import ChatFormat
from genenv_core.storage.records.manifest import ArtifactRef, CheckpointRef, FileRef, TeacherRef
from tasks.placement.task import StageTask
from tasks.policies.engine import SAMPLING_FIELDS, patient_engine
from tasks.stage import Stage, StageContext, log
from tasks.stage.progress import check

STAGE = Stage(
    "generate_tasks",
    ("tasks.generate_tasks",),
    (
        "domain",
        "generation",
        "curriculum.alpha",
        "curriculum.k_min",
        "models.env_chat_template_kwargs",
        *SAMPLING_FIELDS,
    ),
    ("torch", "transformers", "scikit-learn", "scipy"),
)


@dataclass(frozen=True, slots=True)
class GenerateTasksInputs:
    """The current pi_env, and the tasks and attempts of earlier epochs, oldest first.

    A task equal to one of `recent` is a duplicate. `rated` are the scores of `rated_tasks`: the
    choice of tasks learns from all of them, and the last one conditions pi_env. `set_tasks` is the
    size of a set for all epochs, 0 for the tasks of one. With `reserve`, tasks that the choice
    leaves out are a reserve for refills.
    """

    env: CheckpointRef
    bootstrap: ArtifactRef
    recent: Sequence[ArtifactRef]
    rated_tasks: Sequence[ArtifactRef]
    rated: Sequence[ArtifactRef]
    offline: FileRef | None
    teacher: TeacherRef | None = None
    set_tasks: int = 0
    reserve: bool = False


def compute(context: StageContext[GenerateTasksInputs]) -> dict[str, Any]:
    """Let pi_env or a teacher write tasks, or take them from a file of programs."""
    given, teacher = context.inputs.offline, context.inputs.teacher
    if given:
        output = _taken(context, Path(given.path))
    else:
        output = _taught(context, teacher) if teacher else _written(context)
    facts = context.write(output)
    if found := troubles(facts):
        log.warning("stage=%s %s", STAGE.name, found[0])
    elif facts["valid"] < context.inputs.set_tasks:
        log.warning(
            "stage=%s the set has %d tasks, and data.set_tasks asks for %d: "
            "generation.max_generations %d are used up",
            STAGE.name,
            facts["valid"],
            context.inputs.set_tasks,
            context.config.generation.max_generations,
        )
    return facts


def _taken(context: StageContext[GenerateTasksInputs], path: Path) -> Output:
    domain = context.domain()
    return take_programs(
        read_base(path, domain, format_="jsonl", repeats=True, field="teacher.file").drafts,
        domain,
        data=context.frame(context.inputs.bootstrap, "tasks"),
        count=context.config.generation.tasks,
        guard=context.config.generation.guard,
        epoch=context.epoch,
        scope=context.scope,
    )


def _taught(context: StageContext[GenerateTasksInputs], teacher: TeacherRef) -> Output:
    settings = context.config.generation
    with _opened(context, teacher) as model:
        return teach(
            model,
            context.domain(),
            settings,
            count=context.inputs.set_tasks or settings.tasks,
            data=context.frame(context.inputs.bootstrap, "tasks"),
            epoch=context.epoch,
            scope=context.scope,
            seed=context.seed,
            seed_for=context.seed_for,
            progress=context.progress,
        )


@contextmanager
def _opened(context: StageContext[GenerateTasksInputs], teacher: TeacherRef) -> Generator[Teacher]:
    settings = context.config.generation
    if teacher.model is None:
        from genenv_core.exchange.chat_client import Endpoint  # loads aiohttp
        from genenv_core.exchange.chat_endpoint import ChatEndpoint

        endpoint = Endpoint(
            "teacher",
            STAGE.name,
            str(teacher.url),
            str(teacher.model_name),
            teacher.request,
            context.execution.teacher,
            check,
        )
        yield ChatEndpoint(endpoint, settings, context.durable() / "answers.jsonl")
        return
    folder = Path(teacher.model.path)
    chat = ChatFormat.load(folder, teacher.chat_template_kwargs)
    sampling = patient_engine(context, folder, teacher.model.sha256, top_p=settings.top_p)
    with closing(sampling) as engine:
        yield CheckpointTeacher(engine, chat, settings, grammar_of(context.domain(), settings))


def _written(context: StageContext[GenerateTasksInputs]) -> Output:
    settings, domain = context.config.generation, context.domain()
    if context.inputs.set_tasks:
        settings = of_a_set(settings, context.inputs.set_tasks)
    grammar = grammar_of(domain, settings)
    env, folder = context.inputs.env, context.checkpoint(context.inputs.env)
    chat = ChatFormat.load(folder, context.config.models.env_chat_template_kwargs)
    with closing(patient_engine(context, folder, env.digest, top_p=settings.top_p)) as engine:
        return write_tasks(
            Writer(engine, chat, env.policy_version, grammar),
            domain,
            settings,
            data=context.frame(context.inputs.bootstrap, "tasks"),
            recent=context.frame(context.inputs.recent, "tasks"),
            history=agent_history(
                context.frame(context.inputs.rated[-1:], "task_scores"),
                context.frame(context.inputs.rated_tasks[-1:], "tasks"),
                shares_of(domain),
            ),
            known=rated_attempts(
                context.frame(context.inputs.rated_tasks, "tasks"),
                context.frame(context.inputs.rated, "task_scores"),
                shares_of(domain),
            ),
            curriculum=context.config.curriculum,
            reserve=context.inputs.reserve,
            epoch=context.epoch,
            scope=context.scope,
            seed=context.seed,
            seed_for=context.seed_for,
            progress=context.progress,
        )


generate_tasks = StageTask(STAGE, GenerateTasksInputs, compute)
