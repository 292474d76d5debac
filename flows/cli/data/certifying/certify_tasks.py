"""Plays the tasks of a domain or of an exported folder, and shows which flaws they have."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import polars as pl
import typer

from flows.cli.data.certifying.certify_outputs import CertifyOutputs, command_of
from flows.cli.data.certifying.flaw_table import check_sound, flaw_table, say_remedies, tasks_of
from flows.cli.data.certifying.wanted_tasks import WantedTasks, set_sizes
from genenv_core.canonical import digest, file_sha256
from genenv_core.errors import ConfigError, GenenvError
from genenv_core.play.checking.sets import (
    CertifiedTask,
    SetTask,
    certified,
    compared,
    cost_of,
    counted,
    draw_sets,
    rows_of,
    unchecked,
)
from genenv_core.play.checking.shapes import StopChecking

if TYPE_CHECKING:
    from genenv_core.domains.protocol import Domain
    from genenv_core.evidence.certified import CertifiedPage
    from genenv_core.evidence.worth import WorthCheck

One = TypeVar("One")

ROWS: dict[str, Any] = {
    "fingerprint": pl.String, "set": pl.String, "family": pl.String,
    "difficulty": pl.Float64, "prompt": pl.String, "flaw": pl.String,
    "passed": pl.Boolean, "detail": pl.String,
}  # fmt: skip
"""Columns of the rows of tasks."""


def certify_domain(
    name: str,
    domain: Domain,
    wanted: WantedTasks,
    seed: int,
    command: str,
    outputs: CertifyOutputs,
) -> None:
    """Certify so many base tasks and held-out tasks that a domain draws with a seed.

    `command` says on the page how that was asked for, but for the counts.
    """
    try:
        drawn = draw_sets(domain, wanted.base, wanted.heldout, seed, wanted.fewer)
    except StopChecking as stop:
        raise GenenvError(f"{name}: {stop.fault}") from stop
    base, heldout = set_sizes(drawn)
    typer.echo(
        f"certifies {tasks_of(len(drawn))} of domain {domain.name}, version {domain.version} "
        f"({base} base, {heldout} held-out{wanted.short_of(base, heldout)})"
    )
    facts = {
        "domain": f"{domain.name}, version {domain.version}",
        "tasks": f"{len(drawn)}: {base} base tasks and {heldout} held-out tasks",
        "seed": str(seed),
        "command": f"{command} --tasks {base} --heldout {heldout}",
    }
    about = f"{tasks_of(len(drawn))} that the domain {domain.name} draws, played without a model."
    _certify(GivenSet(name, about, facts), domain, drawn, outputs)


def certify_folder(folder: Path, outputs: CertifyOutputs) -> None:
    """Certify all tasks of an exported folder, played by its own code in another process."""
    from genenv_core.exchange.environments.reading import STATEMENT, read_folder, taskset_of
    from genenv_core.play.checking.elsewhere.folder import folder_domain
    from genenv_core.play.checking.openenv_report import check_package, openenv_report

    if module := taskset_of(folder):
        return _certify_taskset(folder, module, outputs)
    if outputs.report is not None:
        check_package(folder)
    given = read_folder(folder)
    with folder_domain(folder, given.package) as domain:
        typer.echo(
            f"certifies {tasks_of(len(given.tasks))} of domain {domain.name}, version "
            f"{domain.version}, that pi_env wrote in {given.run}\n"
            f"{given.files} files are what {STATEMENT} says, and each task what its passport says\n"
            "the folder's own code plays them, in another process, with your rights"
        )
        facts = {
            "domain": f"{domain.name}, version {domain.version}",
            "tasks": f"{len(given.tasks)} that pi_env wrote in {given.run}",
            "SHA-256 of the statement": file_sha256(folder / STATEMENT),
            "command": command_of(folder),
        }
        about = (
            f"{tasks_of(len(given.tasks))} of an exported folder, played without a model by the "
            "folder's own code."
        )
        notes = [
            f"{given.files} files are what {STATEMENT} says, and each task is what its passport "
            "says. The statement is not signed: it shows what changed since the export, and not "
            "who made the folder."
        ]
        started = time.monotonic()

        def report(found: Sequence[CertifiedTask]) -> None:
            seconds = time.monotonic() - started
            outputs.write_report(lambda: openenv_report(folder, found, seconds))

        about_folder = GivenSet(str(folder), about, facts, notes)
        _certify(about_folder, domain, given.tasks, outputs, report)


def _certify_taskset(folder: Path, module: str, outputs: CertifyOutputs) -> None:
    """Certify the tasks of a taskset of verifiers that genenv did not write."""
    from genenv_core.play.checking.elsewhere.taskset import MOST, as_domain, taskset_domain

    if outputs.report is not None:
        raise ConfigError("--report is of a package of OpenEnv, and not of a taskset of verifiers")
    with taskset_domain(folder, module) as taskset:
        tasks = taskset.tasks()
        known = sum(bool(one.draft.ground_truth) for one in tasks)
        typer.echo(
            f"certifies {tasks_of(len(tasks))} of the taskset {module}, {taskset.version}\n"
            f"{known} have an answer that can be judged\n"
            "its own rewards judge them, in another process, with your rights"
        )
        facts = {
            "taskset": f"{module}, {taskset.version}",
            "tasks": f"{len(tasks)} of {taskset.size}",
            "answers": f"{known} of these tasks have one that can be judged",
            "command": command_of(folder),
        }
        notes = [
            "An attempt is one answer, and a success earns 1 or more. Remedies name methods of "
            "genenv: score stands for the rewards of a task, base_tasks for load().",
        ]
        if not known:
            notes.append(
                "No task's answer succeeds in a spelling that genenv tries, so none has a "
                "right attempt."
            )
        if taskset.size > MOST:
            notes.append(f"Of {taskset.size} tasks, {MOST} at equal distances are certified.")
        about = f"{tasks_of(len(tasks))} of a taskset of verifiers, judged by its own rewards."
        _certify(GivenSet(str(folder), about, facts, notes), as_domain(taskset), tasks, outputs)


class GivenSet(NamedTuple):
    """What a page says ahead of the flaws."""

    name: str
    subject: str
    facts: dict[str, str]
    notes: Sequence[str] = ()


def _certify(
    given: GivenSet,
    domain: Domain,
    tasks: Sequence[SetTask],
    outputs: CertifyOutputs,
    then: Callable[[Sequence[CertifiedTask]], None] = lambda found: None,
) -> None:
    """Certify, show and write; `then` gets all tasks where nothing ended it early."""
    typer.echo(flaw_cost(domain, len(tasks)))
    found: list[CertifiedTask] = []
    name, whole = given.name, False
    try:
        for one in _followed(certified(domain, tasks), "certifies", len(tasks)):
            found.append(one)
        for place, one in _followed(compared(domain, found), "compares", len(tasks)):
            found[place] = one
        whole = True
        then(found)
    except StopChecking as stop:
        raise GenenvError(f"{name}: {stop.fault}") from stop
    finally:  # what was found before an error counts
        show_flaws(domain, found, len(tasks))
        outputs.write_rows(rows_of(found), ROWS)
        if found:
            outputs.write_page(lambda: page_of(given, domain, tasks, found, plays=whole))
    check_sound(name, sum(not one.sound for one in found), len(found))
    typer.echo(f"no flaw in {tasks_of(len(found))}")


def _followed(tasks: Iterable[One], what: str, count: int) -> Iterator[One]:
    """Yield the tasks, with a bar on a terminal."""
    from rich.console import Console
    from rich.progress import track

    bar = Console(stderr=True)
    yield from track(tasks, what, count, console=bar, transient=True, disable=not bar.is_terminal)


def flaw_cost(domain: Domain, tasks: int) -> str:
    """Return what the flaws of so many tasks cost at most, in all and each."""
    cost = cost_of(domain)
    more = "one attempt and one verdict" if cost.played else f"{cost.trivial} verdicts"
    return (
        f"flaws take at most {tasks * cost.attempts:,} attempts and {tasks * cost.verdicts:,} "
        f"verdicts ({cost.attempts} and {cost.verdicts} for each task), and {more} more for each "
        "trivial answer of a task"
    )


def show_flaws(domain: Domain, found: Sequence[CertifiedTask], asked: int) -> None:
    """Print the table of flaws, which could not be checked, and what to do about those found."""
    from flows.shown.tables import console

    if len(found) < asked:
        typer.echo(f"ended early: {len(found)} of {tasks_of(asked)} certified")
    elif (beside := sum(one.compared for one in found)) < asked:
        typer.echo(f"ended early: {beside} of {tasks_of(asked)} compared with the others")
    if not found:
        return
    counts = counted(found)
    typer.echo("")
    console().print(flaw_table(counts))
    typer.echo("")
    reasons = unchecked(domain, found).items()
    if reasons:
        said = "; ".join(f"{', '.join(flaws)} ({why})" for why, flaws in reasons)
        typer.echo(f"not checked: {said}")
    say_remedies(counts)


def page_of(
    given: GivenSet,
    domain: Domain,
    tasks: Sequence[SetTask],
    found: Sequence[CertifiedTask],
    *,
    plays: bool,
    checks: Sequence[WorthCheck] = (),
    remedies: Mapping[str, str] | None = None,
) -> CertifiedPage:
    """Return the page; `plays` says whether the domain may be asked again for examples.

    `checks` are those of a model's attempts, with remedies by name that stand for their own.
    """
    from genenv_core.evidence.certified import CertifiedPage
    from genenv_core.play.checking.showing import flaw_examples

    reasons = unchecked(domain, found)
    return CertifiedPage(
        given.name,
        given.subject,
        len(tasks),
        given.facts | {"SHA-256 of the tasks": digest([asdict(one.draft) for one in tasks])},
        counted(found),
        flaw_examples(domain, found, plays=plays),
        given.notes,
        {why: [flaw.value for flaw in flaws] for why, flaws in reasons.items()},
        checks,
        remedies or {},
    )
