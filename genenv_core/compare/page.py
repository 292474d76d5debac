"""Renders the page on a comparison, and gives the same as plain values for machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from markupsafe import Markup

from genenv_core.addresses import at_root
from genenv_core.algorithm.paired import LEVEL
from genenv_core.algorithm.stats import mean
from genenv_core.compare.charts import BUDGETS, WORDS, draw
from genenv_core.compare.judging import SIGNS, ArmVerdict, JudgedComparison, Pair, Reading
from genenv_core.compare.results import (
    EPOCHS,
    GAINS,
    GAINS_BY_DOMAIN,
    Played,
    plays_several,
    statement,
)
from genenv_core.config.comparison import Budget, Comparison, PlannedRun, comparison_name, does
from genenv_core.report.charts import GLYPHS, SERIES
from genenv_core.report.page import templates
from genenv_core.report.words import MEASURES, first_to_last

PAGE = "index.html"
"""The page of a comparison, in its folder."""


def run_page(run_id: str) -> str:
    """Return the page of a run, in the folder of its comparison."""
    return f"runs/{run_id}.html"


@dataclass(frozen=True, slots=True)
class PlayedComparison:
    """A played comparison: its runs, their results, and why some did not finish.

    `failures` are (arm, seed, reason). `root` is the root as commands name it.
    """

    comparison: Comparison
    runs: list[PlannedRun]
    results: list[Played]
    judged: JudgedComparison
    failures: list[tuple[str, int, str]]
    root: str

    @property
    def name(self) -> str:
        """Return the name of the comparison."""
        return comparison_name(self.comparison)


@dataclass(frozen=True, slots=True)
class Spending:
    """What an arm spent up to its budget against `against`, on average over seeds."""

    arm: str
    against: str
    epochs: str
    spent: dict[Budget, float]


def as_values(made: PlayedComparison) -> dict[str, Any]:
    """Return the comparison as plain JSON values."""
    judged = made.judged
    return {
        "name": made.name,
        "root": made.root,
        "comparison": made.comparison.model_dump(mode="json"),
        "measure": judged.measure,
        "seeds": judged.seeds,
        "verdicts": [_verdict(one) for one in judged.verdicts],
        "self_checks": [asdict(check) | {"holds": check.holds} for check in judged.self_checks],
        "runs": [_read(reading) for reading in judged.ends],
        "pairs": {
            arm: [[_read(own), _read(other)] for own, other in read]
            for arm, read in judged.pairs.items()
        },
        "failures": [
            {"arm": arm, "seed": seed, "reason": reason} for arm, seed, reason in made.failures
        ],
        **({"by_domain": _by_domain(judged)} if judged.by_domain else {}),
    }


def _verdict(one: ArmVerdict) -> dict[str, Any]:
    named = {"domain": one.domain} if one.domain else {}
    about = {"first": one.first, "other": one.other, "measure": one.measure, "words": one.words}
    return about | named | asdict(one.difference)


def _read(reading: Reading) -> dict[str, Any]:
    """Return a reading as plain values; gains by domain only in a run of several."""
    return {k: v for k, v in asdict(reading).items() if k != "by_domain" or v}


def _by_domain(judged: JudgedComparison) -> dict[str, Any]:
    """Return the verdicts on single domains, and the size of their family for Holm."""
    return {
        "family": len(judged.of_domains(judged.measure)),
        "verdicts": [_verdict(one) for one in judged.by_domain],
    }


def render(made: PlayedComparison, *, now: datetime, version: str) -> str:
    """Return the page: one HTML file without script and without network."""
    comparison, judged = made.comparison, made.judged
    arms = list(comparison.arms)
    alpha = made.runs[0].config.curriculum.alpha
    template = templates("genenv_core.compare", points=_points).get_template("compare.html.j2")
    return template.render(
        made=made,
        judged=judged,
        first=arms[0],
        arms=arms,
        looks={
            arm: {"colour": f"s{index % SERIES}", "glyph": GLYPHS[index % SERIES]}
            for index, arm in enumerate(arms)
        },
        does=does,
        signs=SIGNS,
        level=LEVEL,
        measures=MEASURES,
        budgets=BUDGETS,
        run_page=run_page,
        words=WORDS,
        spending=spending(judged.pairs),
        charts=[
            (chart, Markup(chart.svg))
            for chart in draw(comparison, judged, made.results, alpha=alpha)
        ],
        statements=[statement(sql, made.runs) for sql in _statements(made)],
        settings=comparison.model_dump(mode="json", exclude_none=True),
        at_root=at_root(made.root),
        now=now,
        version=version,
    )


def _statements(made: PlayedComparison) -> list[str]:
    several = any(map(plays_several, made.runs))
    return [GAINS, *([GAINS_BY_DOMAIN] if several else []), EPOCHS]


def spending(pairs: Mapping[str, Sequence[Pair]]) -> list[Spending]:
    """Return what the two arms of each pair spent up to their budget."""
    found: list[Spending] = []
    for read in pairs.values():
        own, other = ([pair[place] for pair in read] for place in (0, 1))
        found += [_spending(own, other[0].arm), _spending(other, own[0].arm)]
    return found


def _spending(readings: Sequence[Reading], against: str) -> Spending:
    epochs = sorted({reading.epoch for reading in readings})
    of = sorted({reading.epochs for reading in readings})
    return Spending(
        arm=readings[0].arm,
        against=against,
        epochs=f"{first_to_last(epochs[0], epochs[-1])} of {first_to_last(of[0], of[-1])}",
        spent={b: mean([float(reading.spent[b]) for reading in readings]) for b in Budget},
    )


def _points(value: float) -> str:
    return f"{value:+z.1f}".replace("-", "−")
