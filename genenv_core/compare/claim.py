"""Writes the result of a comparison as a table and one figure, for a README or a paper's draft."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files

from genenv_core.compare.charts import BUDGETS, epochs_chart
from genenv_core.compare.judging import SIGNS, ArmVerdict
from genenv_core.compare.page import PlayedComparison
from genenv_core.report.words import MEASURES, spans

CLAIM, FIGURE = "claim.md", "gain.svg"
"""The files of table and figure, beside the page."""

WIDTH = 640
"""Width of the figure in pixels, which a page may override."""

_ROOT = re.compile(r":root \{(.*?)\}", re.S)
_BOX = re.compile(r'viewBox="0 0 ([0-9.]+) ([0-9.]+)"')


def claim(made: PlayedComparison, *, version: str) -> str:
    """Return the verdicts as Markdown, with the figure and a sentence on the method.

    Where all runs have several domains, a table of each follows that of all test tasks.
    """
    judged, asked = made.judged, made.comparison
    first = next(iter(asked.arms))
    domains = dict.fromkeys(verdict.domain for verdict in judged.by_domain)
    tables = [_table(f"{first} against", judged.verdicts)]
    tables += [
        _table(
            f"{first} against, in {domain}",
            [verdict for verdict in judged.by_domain if verdict.domain == domain],
        )
        for domain in domains
    ]
    of_domains = f" Of the domains, {judged.family}, in each measure." if domains else ""
    lines = [
        f"![Gain in {MEASURES[judged.measure]} on test tasks by epoch, a line an arm]({FIGURE})",
        "",
        *(line for table in tables for line in (*table, "")),
        f"Differences of gains on test tasks, in points of 100, at equal {BUDGETS[asked.budget]}, "
        f"with 95 % t intervals over {_seeds(judged.seeds)}. *Better* and *worse* are decided by "
        f"an exact sign-flip test with Holm's adjustment as well.{of_domains} Played with genenv "
        f"{version} on `{asked.base}`.",
    ]
    return "\n".join(lines) + "\n"


def _table(head: str, verdicts: Sequence[ArmVerdict]) -> list[str]:
    """Return the lines of a table with a row for each other arm and a column for each measure."""
    measures = list(dict.fromkeys(verdict.measure for verdict in verdicts))
    others = list(dict.fromkeys(verdict.other for verdict in verdicts))
    cells = {(verdict.other, verdict.measure): _cell(verdict) for verdict in verdicts}
    return [
        f"| {head} | {' | '.join(MEASURES[measure] for measure in measures)} |",
        "|---" * (1 + len(measures)) + "|",
        *(
            f"| {other} | {' | '.join(cells[other, measure] for measure in measures)} |"
            for other in others
        ),
    ]


def _cell(verdict: ArmVerdict) -> str:
    found = verdict.difference
    sign = SIGNS.get(found.decision)
    numbers = f"{100 * found.mean:+.1f} [{100 * found.low:.1f}, {100 * found.high:.1f}]"
    return f"**{numbers}**, {found.decision}" if sign else f"{numbers}, not decided"


def _seeds(seeds: Sequence[int]) -> str:
    if len(seeds) == 1:
        return f"one seed ({seeds[0]})"
    return f"{len(seeds)} seeds ({spans(seeds)})"


def figure(made: PlayedComparison) -> str:
    """Return the gain by epoch as an SVG file that needs no page around it, '' without epochs."""
    svg = epochs_chart(made.comparison, made.judged, made.results, alone=True).svg
    box = _BOX.search(svg)
    if box is None:
        return ""
    width, height = map(float, box.groups())
    root = _ROOT.search((files("genenv_core.report") / "page.css").read_text(encoding="utf-8"))
    assert root is not None
    style = f"svg {{{root[1]} background: var(--paper); font-family: system-ui, sans-serif; }}"
    colours = re.sub(r"color-scheme:[^;]*;", "", style)
    size = f'width="{WIDTH}" height="{WIDTH * height / width:.0f}"'
    outside = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    head, _, body = svg.partition(">")
    return f"{head} {outside} {size}><style>{' '.join(colours.split())}</style>{body}\n"
