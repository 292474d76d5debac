"""How a certificate of played tasks and of attempts at them ends: printed, written, in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import typer

from flows.cli.data.certifying.certify_outputs import CertifyOutputs
from flows.cli.data.certifying.certify_tasks import GivenSet, page_of, show_flaws
from flows.cli.data.certifying.check_table import check_table, counted_checks, said_of
from flows.cli.data.certifying.flaw_table import check_sound, tasks_of

if TYPE_CHECKING:
    from genenv_core.domains.protocol import Domain
    from genenv_core.evidence.worth import WorthCheck
    from genenv_core.play.checking.sets import CertifiedTask


def conclude(
    given: GivenSet,
    domain: Domain,
    found: Sequence[CertifiedTask],
    checks: Sequence[WorthCheck],
    remedies: Mapping[str, str],
    outputs: CertifyOutputs,
) -> None:
    """Print and write the flaws of tasks and the checks of attempts at them.

    Args:
        given: what the certificate is about. Its notes are printed before the checks.
        domain: judges the examples of flaws on the page.
        found: the tasks, with what each was checked for.
        checks: those of the attempts; [] where nobody attempted the tasks.
        remedies: by name of a check, what to do in place of what its rule says.
        outputs: the files that somebody asked for.
    """
    from flows.shown.tables import console
    from genenv_core.play.checking.sets import counted

    show_flaws(domain, found, len(found))
    typer.echo("")
    for note in given.notes:
        typer.echo(note)
    if checks:
        console().print(check_table(checks))
        typer.echo("")
        for line in said_of(checks, remedies):
            typer.echo(line)
    outputs.write_checks(counted(found), checks)
    page = given._replace(notes=[f"{note[:1].upper()}{note[1:]}." for note in given.notes])
    outputs.write_page(
        lambda: page_of(
            page, domain, [one.task for one in found], found,
            plays=True, checks=checks, remedies=remedies,
        )
    )  # fmt: skip


def say_sound(name: str, found: Sequence[CertifiedTask], checks: Sequence[WorthCheck]) -> None:
    """Print how many tasks are sound and how checks came out; raises GenenvError for flaws."""
    check_sound(name, sum(not one.sound for one in found), len(found))
    typer.echo(f"no flaw in {tasks_of(len(found))}; {counted_checks(checks)}")
