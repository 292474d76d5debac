"""What every kind of `genenv certify` prints of the checks of attempts: table, remedies, counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from flows.shown.tables import WORTH_STYLES, counted_worths

if TYPE_CHECKING:
    from flows.cli.data.certifying.worded_table import WordedTable
    from genenv_core.evidence.worth import WorthCheck


WITHOUT_TASKS = {
    "nobody attempted a task": ("reachable", "headroom"),
    "no task has two attempts": ("separating", "variance"),
    "no task has two attempts in one epoch": ("signal",),
    "no task was looked at for accepts_trivial or accepts_canary": ("floor",),
    "no task says how often a guess is right": ("chance",),
}
"""Why a check has no task or group to look at, and the checks that it is true of."""


def counted_checks(checks: Sequence[WorthCheck]) -> str:
    """Return how many checks of attempts pass, fail, and cannot say."""
    if not checks:
        return "no checks of attempts"
    return f"of {len(checks)} checks of attempts: {counted_worths(check.worth for check in checks)}"


def check_table(checks: Sequence[WorthCheck]) -> WordedTable:
    """Return a row for each check of attempts."""
    from rich.text import Text

    from flows.cli.data.certifying.worded_table import WordedTable

    rows: list[tuple[list[str | Text], Text]] = []
    for check in checks:
        rule = check.rule
        known = check.low is not None and check.high is not None
        cells = [
            check.name,
            "" if check.estimate is None else f"{check.estimate:.1%}",
            f"\\[{check.low:.1%}, {check.high:.1%}]" if known else "",
            f"{check.n} {rule.unit}",
            f"{'at least' if rule.at_least else 'at most'} {rule.limit:.0%}",
            Text(check.worth.value, WORTH_STYLES[check.worth.value]),
        ]
        rows.append((cells, Text("; ".join(filter(None, [rule.measures, check.fact])))))
    numbers = ("estimate", "95 % interval", "of", "wanted")
    return WordedTable(("check", *numbers, "verdict"), numbers, "what it is", rows)


def said_of(checks: Sequence[WorthCheck], remedies: Mapping[str, str] | None = None) -> list[str]:
    """Return what to do about the checks that fail, and why others say nothing.

    `remedies` by name of a check stand for those of its rule.
    """
    from genenv_core.evidence.worth import Worth

    given = remedies or {}
    lines = [
        f"{check.name}: {given.get(check.name, check.rule.remedy)}"
        for check in checks
        if check.worth is Worth.FAIL
    ]
    unsure = [check.name for check in checks if check.worth is Worth.UNSURE and check.n]
    if unsure:
        lines.append(
            f"cannot say ({', '.join(unsure)}): too few tasks to be sure on which side of the "
            "wanted value it is; more of them would tell"
        )
    for why, names in WITHOUT_TASKS.items():
        if nothing := [check.name for check in checks if check.name in names and not check.n]:
            lines.append(f"nothing to check for {', '.join(nothing)}: {why}")
    return lines
