"""`genenv certify --run RUN --tasks base|test`: tasks that a run drew from its domain.

A run stores no certificate of these, so they are played for their flaws, by the domain as it is
today. The checks of attempts read what the run stored.
"""

from __future__ import annotations

from contextlib import chdir
from typing import TYPE_CHECKING

import typer

from flows.cli.data.certifying.certify_outputs import CertifyOutputs, command_of
from flows.cli.data.certifying.certify_tasks import GivenSet, flaw_cost
from flows.cli.data.certifying.concluding import conclude, say_sound
from flows.cli.data.certifying.flaw_table import tasks_of
from flows.cli.options import epochs_of, existing
from genenv_core.errors import ConfigError
from genenv_core.types import TaskSource

if TYPE_CHECKING:
    from genenv_core.evidence.written import StoredSet

KINDS = {TaskSource.BASE: "base tasks", TaskSource.TEST: "test tasks"}


def certify_stored(
    run: str, which: TaskSource, epochs: str | None, root: str | None, outputs: CertifyOutputs
) -> None:
    """Print flaws and checks of a run's base tasks or test tasks, and write a row for each.

    `epochs` names those whose attempts count. By default only attempts of the newest version of
    pi_agent count: no version has the success that several versions have together.
    Raises ConfigError where the run has no such task, DomainError for a fault of the domain,
    GenenvError where tasks have flaws.
    """
    from genenv_core.config.load import as_recorded
    from genenv_core.domains.registry import get_domain
    from genenv_core.epoch.rows import to_tasks
    from genenv_core.evidence.attempted import REMEDIES_OF_RUN, played_flaws, worth_of_attempts
    from genenv_core.evidence.written import read_set
    from genenv_core.play.checking.sets import SetTask
    from genenv_core.storage.records.runs import RunLog
    from genenv_core.storage.sql.sources import open_tables
    from tasks.upkeep.started_in import go_where_started

    store, within = existing(root), epochs_of(epochs)
    with open_tables(store, [run]) as connection:
        stored = read_set(connection, run, which, within)
    tasks = to_tasks(stored.tasks)
    if not tasks:
        raise ConfigError(
            f"--run {run} --tasks {which.value}: the run has no {KINDS[which]}; "
            f"genenv sql \"SELECT source, count(*) FROM tasks WHERE run_id = '{run}' GROUP BY ALL\""
            " says which tasks it has"
        )
    info = RunLog(store, run).info()
    config = as_recorded(info.config, run)
    with chdir("."):  # files that a person names for the output stay here
        go_where_started(info)
        domain = get_domain(config.domain.name, config.domain.options)
        typer.echo(
            f"certifies {tasks_of(len(tasks))}, the {KINDS[which]} of {run}, with domain "
            f"{domain.name}, version {domain.version}"
        )
        typer.echo(flaw_cost(domain, len(tasks)))
        found = played_flaws(domain, [SetTask(which.value, task.draft) for task in tasks])
    ids = [task.task_id for task in tasks]
    checks = [] if stored.scores.is_empty() else worth_of_attempts(found, ids, stored.scores)
    words = ["--run", run, "--tasks", which.value, *(("--epochs", epochs) if epochs else ())]
    facts = {
        "run": run,
        "domain": f"{domain.name}, version {domain.version}",
        "tasks": f"{len(tasks)}, the {KINDS[which]} of the run",
        "command": command_of(*words),
    }
    about = f"{tasks_of(len(tasks))}, the {KINDS[which]} of {run}, played without a model."
    given = GivenSet(run, about, facts, _attempts(stored, which))
    conclude(given, domain, found, checks, REMEDIES_OF_RUN, outputs)
    say_sound(run, found, checks)


def _versions(old: int, new: int) -> str:
    from genenv_core.report.words import first_to_last

    return f"{'version' if old == new else 'versions'} {first_to_last(old, new)}"


def _attempts(stored: StoredSet, which: TaskSource) -> list[str]:
    """Return who attempted how many of the tasks, and what counts nowhere."""
    from genenv_core.report.words import first_to_last

    lines: list[str] = []
    if stored.epochs is None or stored.versions is None:
        lines.append("the run stored no attempt with a verdict at them, so nothing else is checked")
    else:
        (first, last), (old, new) = stored.epochs, stored.versions
        when = f"{'epoch' if first == last else 'epochs'} {first_to_last(first, last)}"
        by = _versions(old, new)
        lines.append(
            f"{stored.scores['task_id'].n_unique()} attempted by pi_agent {by} in {when}: "
            f"{stored.scores.height} attempts with a verdict"
        )
        if stored.older:
            lines.append(
                f"the newest alone: attempts of {_versions(*stored.older)} do not count, unless "
                "--epochs names their epochs"
            )
        if old != new:
            lines.append(
                f"checks take the attempts of {by} together: without --epochs, those of the newest "
                "version count alone"
            )
        if which is TaskSource.TEST:
            lines.append("sampled attempts alone; those of each epoch have equal seeds")
    if stored.lost:
        lines.append(
            f"{stored.lost} attempts were lost by no fault of the agent, and count nowhere"
        )
    return lines
