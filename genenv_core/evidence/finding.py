"""A finding: a claim of the paper, a verdict on it, a table and charts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from genenv_core.compare.charts import banded
from genenv_core.report.charts import Chart

line_chart = partial(banded, legend=True)
"""Returns a chart that names its lines; the arguments are those of `banded`."""


@dataclass(frozen=True)
class Finding:
    """One of the paper's findings, checked; `holds` is None where too few seeds decide.

    `number` counts from 1 in the order of the page. `head` names the columns of the table; each of
    `rows` has as many cells.
    """

    number: int
    title: str
    claim: str
    holds: bool | None
    verdict: str
    head: list[str]
    rows: list[list[str]]
    charts: list[Chart] = field(default_factory=list[Chart])

    @property
    def word(self) -> str:
        """Return the verdict in a word or two."""
        return {True: "holds", False: "does not hold", None: "not decided"}[self.holds]


def all_hold(holds: Sequence[bool | None]) -> bool | None:
    """Return whether all hold; None where some are undecided and no other one fails."""
    return False if False in holds else None if None in holds else True
