"""Draws the charts of a comparison: an arm's mean over its seeds, with its interval as a band."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.ticker import EngFormatter, MaxNLocator, PercentFormatter

from genenv_core.algorithm.paired import interval
from genenv_core.algorithm.stats import mean
from genenv_core.compare.judging import JudgedComparison
from genenv_core.compare.results import Played
from genenv_core.config.comparison import Budget, Comparison, Measure
from genenv_core.report.charts import (
    DASHES,
    MARKERS,
    SERIES,
    SOFT,
    STYLE,
    Chart,
    colour,
    mpl,
    new_axes,
    to_svg,
)
from genenv_core.report.words import MEASURES

WORDS = {
    Measure.ANSWER_PROBABILITY: "P(answer)",
    Measure.SAMPLED: "sampled",
    Measure.GREEDY: "greedy",
}
"""Measures in a table's head."""

BUDGETS = {
    Budget.ROLLOUTS: "attempts",
    Budget.STEPS: "optimizer steps",
    Budget.TOKENS: "tokens",
}
"""Budgets in words."""

Spot = tuple[float, float]
"""x and y of one run at one epoch."""


def draw(
    comparison: Comparison, judged: JudgedComparison, results: Sequence[Played], *, alpha: float
) -> list[Chart]:
    """Return the charts, in the order of the page; `alpha` is the first arm's target."""
    runs = _finished(judged, results)
    measure, budget = judged.measure, comparison.budget
    seeds = "a band: its 95 % interval over seeds" if len(judged.seeds) > 1 else "one seed"

    def paid(run: Played) -> list[Spot]:
        return [(point.spent[budget], point.gains[measure]) for point in run.points]

    def column(name: str) -> Callable[[Played], list[Spot]]:
        return lambda run: [
            (row["epoch"], row[name]) for row in run.epochs if row[name] is not None
        ]

    arms = list(comparison.arms)
    charts = [
        _chart(runs, arms, f"Gain by {BUDGETS[budget]}",
               f"{_gain(measure)}, against what was spent. A line is an arm's "
               f"mean, {seeds}.", BUDGETS[budget], paid),
        epochs_chart(comparison, judged, results),
        _chart(runs, arms, "Success on attempted tasks",
               "p_hat; the dashed line is alpha of the first arm.", "epoch", column("p_hat"),
               line=alpha, share=True),
        _chart(runs, arms, "Groups with signal",
               "Share of the groups whose rewards differ: pi_agent learns from these.", "epoch",
               column("share_signal"), share=True),
        _chart(runs, arms, "Response length", "Mean tokens that the agent sampled in an attempt.",
               "epoch", column("response_tokens")),
    ]  # fmt: skip
    return [chart for chart in charts if chart.svg]


def epochs_chart(
    comparison: Comparison,
    judged: JudgedComparison,
    results: Sequence[Played],
    *,
    alone: bool = False,
) -> Chart:
    """Return the chart of the gain by epoch; an `alone` one has its own legend and y label."""
    measure = judged.measure

    def gained(run: Played) -> list[Spot]:
        return [(point.epoch, point.gains[measure]) for point in run.points]

    return _chart(
        _finished(judged, results), list(comparison.arms), "Gain by epoch", f"{_gain(measure)}.",
        "epoch", gained, height=f"gain in {WORDS[measure]}" if alone else "", legend=alone,
    )  # fmt: skip


def _finished(judged: JudgedComparison, results: Sequence[Played]) -> list[Played]:
    return [run for run in results if run.seed in judged.seeds]


def _gain(measure: Measure) -> str:
    return f"Gain in {MEASURES[measure]} on the test tasks since epoch 0"


def _chart(
    runs: Sequence[Played],
    arms: Sequence[str],
    title: str,
    caption: str,
    label: str,
    spots: Callable[[Played], list[Spot]],
    **look: Any,
) -> Chart:
    lines = {arm: [spots(run) for run in runs if run.arm == arm] for arm in arms}
    return banded(title, caption, label, lines, **look)


def banded(
    title: str,
    caption: str,
    label: str,
    lines: Mapping[str, Sequence[Sequence[Spot]]],
    *,
    line: float | None = None,
    share: bool = False,
    height: str = "",
    legend: bool = False,
) -> Chart:
    """Return a chart of means with their intervals; the SVG is '' without a curve.

    Args:
        title: what the chart shows.
        caption: the same in a sentence.
        label: what x is.
        lines: by name, the curves of each mean, which ends with the shortest one.
        line: y of a dashed line.
        share: whether y is a share of 1.
        height: what y is, where the title does not say it.
        legend: whether the chart names its lines; a page may do that once for all charts.
    """
    drawn = 0
    with mpl.rc_context(STYLE):
        figure, axes = new_axes()
        if line is not None:
            axes.axhline(line, color=SOFT, lw=1, ls="--")
        for index, (name, curves) in enumerate(lines.items()):
            length = min(map(len, curves), default=0)
            columns = [[own[place] for own in curves] for place in range(length)]
            if not columns:
                continue
            drawn += 1
            x = [mean([spot[0] for spot in column]) for column in columns]
            bounds = [_bounds([spot[1] for spot in column]) for column in columns]
            axes.plot(
                x,
                [middle for middle, _, _ in bounds],
                color=colour(index),
                linestyle=DASHES[index % SERIES],
                marker=MARKERS[index % SERIES],
                label=name,
            )
            lows, highs = [low for _, low, _ in bounds], [high for _, _, high in bounds]
            axes.fill_between(x, lows, highs, color=colour(index), alpha=0.15, lw=0)
        if not drawn:
            return Chart(title, caption, "")
        axes.margins(y=0.1)
        if share:
            low, high = axes.get_ylim()
            axes.set_ylim(max(0.0, low), min(1.0, high))
            axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.set_xlabel(label)
        axes.set_ylabel(height)
        if legend:
            axes.legend(fontsize=8)
        return Chart(title, caption, to_svg(figure, title))


def _bounds(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean and the ends of its 95 % t interval; for one value, the value three times."""
    return interval(values) if len(values) > 1 else (values[0], values[0], values[0])
