"""`genenv certify --run`: the flaws of the tasks that pi_env wrote, and whether they are any good.

Flaws end the command with status 1. The checks of the attempts do not: they say as much about the
agent that played as about the tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import typer

from flows.cli.data.certifying.certify_outputs import CertifyOutputs, command_of
from flows.cli.data.certifying.check_table import check_table, counted_checks, said_of
from flows.cli.data.certifying.flaw_table import check_sound, flaw_table, say_remedies, tasks_of
from flows.cli.options import epochs_of, existing
from genenv_core.errors import ConfigError
from genenv_core.types import Flaw

if TYPE_CHECKING:
    from genenv_core.evidence.certified import CertifiedPage
    from genenv_core.evidence.written import WrittenTasks
    from genenv_core.play.checking.set_flaws import AnyFlaw
    from genenv_core.play.checking.showing import FlawExample


def certify_run(run: str, epochs: str | None, root: str | None, outputs: CertifyOutputs) -> None:
    """Print the flaws and the checks of a run's tasks, and write a row for each."""
    from genenv_core.evidence.written import read_examples, read_written
    from genenv_core.storage.sql.sources import open_tables

    within = epochs_of(epochs)
    with open_tables(existing(root), [run]) as connection:
        found = read_written(connection, run, within)
        examples = read_examples(connection, run, within) if outputs.page else {}
    if found is None:
        where = f" in {_epochs_in_words(within)}" if within else ""
        raise ConfigError(
            f"--run {run}: pi_env wrote no task{where} that may be attempted; "
            "`genenv sql 'FROM rejections'` says what became of its texts"
        )
    _show(run, found)
    outputs.write_checks(found.flaws, found.checks)
    command = command_of("--run", run, *(() if epochs is None else ("--epochs", epochs)))
    outputs.write_page(lambda: _page(run, found, examples, command))
    check_sound(run, found.flawed, found.written)
    typer.echo(_ended(found))


def _ended(found: WrittenTasks) -> str:
    flaws = f"no flaw in {tasks_of(found.written)}" if found.flaws else "no certificates"
    return f"{flaws}; {counted_checks(found.checks)}"


def _epochs_in_words(epochs: tuple[int, int]) -> str:
    from genenv_core.report.words import first_to_last

    first, last = epochs
    return f"{'epoch' if first == last else 'epochs'} {first_to_last(first, last)}"


def _show(run: str, found: WrittenTasks) -> None:
    from flows.shown.tables import console

    for line in _ahead(run, found):
        typer.echo(line)
    out = console()
    if found.flaws:
        typer.echo("")
        out.print(flaw_table(found.flaws))
        _say_unchecked(found)
        say_remedies(found.flaws)
    else:
        typer.echo("\nflaws: the run has no certificates")
    typer.echo("")
    out.print(check_table(found.checks))
    typer.echo("")
    for line in said_of(found.checks):
        typer.echo(line)


def _ahead(run: str, found: WrittenTasks) -> list[str]:
    """Return which tasks were attempted by whom, and what that leaves out."""
    from genenv_core.report.words import first_to_last

    which = _epochs_in_words(found.epochs)
    lines = [
        f"{tasks_of(found.written)} of domain {found.domain} that pi_env wrote in {run}, {which}"
    ]
    if found.versions is not None:
        old, new = found.versions
        by = f"{'version' if old == new else 'versions'} {first_to_last(old, new)}"
        verdicts = f"{found.attempts} attempts with a verdict"
        lines.append(f"{found.attempted} attempted by pi_agent {by}: {verdicts}")
    never = found.written - found.attempted
    if never:
        others = never - found.not_chosen
        rest = f", {others} of them chosen and without a verdict" if others else ""
        lines.append(f"{tasks_of(never)} never attempted{rest}: of these, only certificates count")
    if found.predicted:
        lines.append(
            f"no random sample: {found.predicted} of the {found.attempted} attempted were chosen "
            "for a predicted success near alpha (generation.candidates)"
        )
    if found.lost:
        lines.append(f"{found.lost} attempts were lost by no fault of the agent, and count nowhere")
    if found.by_chance:
        lines.append(
            f"in {tasks_of(found.by_chance)} one and the same text succeeded and failed: "
            "genenv sql 'FROM certified WHERE by_chance'"
        )
    if found.refused:
        said = ", ".join(f"{flaw} {count}" for flaw, count in found.refused.items())
        lines.append(f"texts that the guard refused for a flaw, not counted below: {said}")
    return lines


def _say_unchecked(found: WrittenTasks) -> None:
    if missing := _unchecked(found):
        typer.echo(f"\nnot checked: {', '.join(missing)} (no certificate has it)")


def _unchecked(found: WrittenTasks) -> list[str]:
    checked = {count.flaw for count in found.flaws}
    return [flaw.value for flaw in Flaw if flaw not in checked]


def _page(
    run: str,
    found: WrittenTasks,
    examples: Mapping[AnyFlaw, Sequence[FlawExample]],
    command: str,
) -> CertifiedPage:
    """Return the page on a run's tasks; nothing is played for it."""
    from genenv_core.evidence.certified import CertifiedPage

    subject, *notes = _ahead(run, found)
    facts = {
        "run": run,
        "domain": found.domain,
        "tasks": f"{found.written} that may be attempted, {_epochs_in_words(found.epochs)}",
        "SHA-256 of the tasks": found.digest,
        "command": command,
    }
    missing = _unchecked(found) if found.flaws else []
    reasons = {"no certificate has it": missing} if missing else {}
    sentences = [f"{note[:1].upper()}{note[1:]}." for note in notes]
    if examples:
        sentences.append("Nothing was played for this page: a run stores what a check found alone.")
    return CertifiedPage(
        run, f"{subject}.", found.written, facts, found.flaws, examples, sentences, reasons,
        found.checks,
    )  # fmt: skip
