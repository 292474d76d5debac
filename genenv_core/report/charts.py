"""Draws the report's charts with matplotlib, as SVG that lives inside the page.

SVG keeps text as text and takes its colours from the page's style sheet (light, dark, print):
matplotlib draws stand-ins, which `to_svg` replaces by CSS variables. Runs differ by colour (Okabe
and Ito's, safe for the colour-blind), by marker and by dashes. A chart is 5 to 15 kB. A plotting
library for the browser would bring 1 to 4 MB of script and need a page that runs it.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from genenv_core.report.data import Row, RunReport

mpl: Any = matplotlib  # its stubs are partial

SERIES = 7
"""Number of looks; an eighth run looks like the first."""
MARKERS = "os^DvPX"
GLYPHS = "●■▲◆▼✚✖"
"""The markers as characters, for legends in text."""
DASHES: tuple[Any, ...] = ("-", (0, (6, 2)), (0, (2, 1.5)), (0, (8, 2, 2, 2)), "-", "--", ":")

FEW = 3
"""Most runs whose intervals on test tasks a chart draws: more would hide each other."""
CHANGE = " Bars: 95 % interval of the change since epoch 0, task by task."

INK, SOFT, GRID, BAND = "#010101", "#020202", "#030303", "#040404"
_STAND_INS = {INK: "--ink", SOFT: "--soft", GRID: "--grid", BAND: "--band"} | {
    f"#0501{index:02x}": f"--s{index}" for index in range(SERIES)
}
_LEFT_OUT = tuple(
    re.compile(pattern, re.DOTALL)
    for pattern in (
        r"<metadata>.*?</metadata>",
        r"<style .*?</style>",  # it would style the whole page
        r"font-family: [^;]*; ",
        # Only clip paths and markers are referred to; their ids are digests of their shapes.
        r"(?<=<g) id=\"[^\"]*\"",
    )
)
_WIDTH_IN, _HEIGHT_IN = 4.7, 2.6
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "genenv",
    "font.size": 10,
    "text.parse_math": False,
    "axes.edgecolor": GRID,
    "axes.labelcolor": SOFT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": SOFT,
    "ytick.labelcolor": SOFT,
    "lines.linewidth": 1.8,
    "lines.markersize": 4,
    "legend.frameon": False,
}


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart: its title, what it shows in a sentence, its SVG; '' without any data yet."""

    title: str
    caption: str
    svg: str


_curriculum: Callable[[RunReport], list[Row]] = attrgetter("curriculum")


@dataclass(frozen=True, slots=True)
class _Line:
    """One value by epoch: a run's `rows`, which must hold `epoch`, and the column to draw."""

    rows: Callable[[RunReport], list[Row]]
    column: str
    label: str = ""
    faint: bool = False


def draw(runs: Sequence[RunReport]) -> list[Chart]:
    """Return all charts over these runs, in the order of the page."""
    alpha_band = (
        "The dashed line is alpha, the shaded band alpha ± k_min, which the environment update may "
        "use."
    )
    interval = (
        " Bars: 95 % interval, honest about attempts at one task being alike."
        if len(runs) == 1
        else ""
    )
    change = CHANGE if len(runs) <= FEW else ""
    greedy = "; greedy, faint." if any(run.measured("greedy") for run in runs) else "."
    charts = [
        _lines(
            runs, "Success on new tasks",
            f"p_hat above chance of attempted tasks; faint, of all that pi_env wrote. "
            f"{alpha_band}{interval}",
            [
                _Line(lambda run: run.epochs, "p_hat_written", "written", faint=True),
                _Line(_curriculum, "skill", "attempted"),
            ],
            percent=True, top=1.0, decorate=_band,
        ),
        _lines(
            runs, "Test success",
            "Tasks that nobody trained or decided on, from epoch 0 (before training): sampled"
            f"{greedy}{change}",
            [
                _Line(_measured("greedy"), "value", "greedy", faint=True),
                _Line(_measured("sampled"), "value", "sampled"),
            ],
            percent=True, decorate=_changes("sampled"),
        ),
        _lines(
            runs, "Probability of the answer",
            "Mean probability that the agent, sampled, says just the reference answer of a test "
            f"task: without the noise of sampling.{change}",
            [_Line(_measured("answer_probability"), "value")], zero=False,
            decorate=_changes("answer_probability"),
        ),
        _lines(
            runs, "Tasks in the band", "Share of the new tasks with |skill - alpha| at most k_min.",
            [_Line(_curriculum, "share_in_band")], percent=True,
        ),
        _lines(
            runs, "Zero-signal groups",
            "Share of the new groups whose rewards are all equal: pi_agent learns from none.",
            [_Line(_curriculum, "share_zero_signal")], percent=True, top=1.0,
        ),
        _lines(
            runs, "R_env", "Mean reward of pi_env, exp(-beta (skill - alpha)²), of new tasks.",
            [_Line(_curriculum, "r_env")], top=1.0,
        ),
        _lines(
            runs, "Difficulty", "Mean difficulty of new tasks (desk, trails: tool calls asked).",
            [_Line(_curriculum, "difficulty")],
        ),
        _lines(
            runs, "Response length", "Mean tokens that the agent sampled in a rollout.",
            [_Line(_curriculum, "response_tokens")],
        ),
        _lines(
            runs, "KL of pi_env",
            "Distance to the first simulator, nats a sequence. The dashed line is the cap.",
            [_Line(lambda run: run.epochs, "kl_env")], decorate=_cap,
        ),
        _lines(
            runs, "Loss of the agent update", "Small and noisy by nature; a jump is a sign.",
            [_Line(_metrics("agent", "loss"), "value")], zero=False,
        ),
        _lines(
            runs, "Loss of the environment update", "Weighted NLL of pi_env, nats a token.",
            [_Line(_metrics("env", "nll"), "value")], zero=False,
        ),
        _lines(
            runs, "Entropy of the agent", "Mean over the tokens of its update, nats.",
            [_Line(_metrics("agent", "entropy"), "value")],
        ),
        _costs(runs),
    ]  # fmt: skip
    return [chart for chart in charts if chart.svg]


def _measured(measure: str) -> Callable[[RunReport], list[Row]]:
    return lambda run: run.measured(measure)


def _metrics(policy: str, name: str) -> Callable[[RunReport], list[Row]]:
    def rows(run: RunReport) -> list[Row]:
        return [
            {"epoch": row["epoch"], "value": row["metrics"][name]}
            for row in run.checkpoints
            if row["policy"] == policy and name in row["metrics"]
        ]

    return rows


def _lines(
    runs: Sequence[RunReport],
    title: str,
    caption: str,
    lines: Sequence[_Line],
    *,
    percent: bool = False,
    zero: bool = True,
    top: float | None = None,
    decorate: Callable[[Any, Sequence[RunReport]], None] | None = None,
) -> Chart:
    """Return a chart of values by epoch."""
    with mpl.rc_context(STYLE):
        figure, axes = new_axes()
        drawn = 0
        for index, run in enumerate(runs):
            for line in lines:
                rows = [row for row in line.rows(run) if row[line.column] is not None]
                drawn += len(rows)
                axes.plot(
                    [row["epoch"] for row in rows],
                    [row[line.column] for row in rows],
                    color=colour(index),
                    linestyle=DASHES[index % SERIES],
                    marker=None if line.faint else MARKERS[index % SERIES],
                    alpha=0.45 if line.faint else 1.0,
                    label=line.label,
                )
        if not drawn:
            return Chart(title, caption, "")
        if decorate:
            decorate(axes, runs)
        if len(runs) == 1 and len(lines) > 1:
            axes.legend(loc="best", fontsize=8)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.margins(y=0.12)
        if percent:
            axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
        low, high = axes.get_ylim()
        from_zero = zero and (top is not None or low < 0.5 * high)
        axes.set_ylim(min(0.0, low) if from_zero else low, top or high)
        axes.set_xlabel("epoch")
        return Chart(title, caption, to_svg(figure, title))


def _band(axes: Any, runs: Sequence[RunReport]) -> None:
    for alpha, k_min in sorted({(run.alpha, run.k_min) for run in runs}):
        axes.axhspan(max(0, alpha - k_min), min(1, alpha + k_min), color=BAND, lw=0, zorder=0)
        axes.axhline(alpha, color=SOFT, lw=1, ls="--", zorder=1)
    axes.set_ylim(bottom=0)
    if len(runs) == 1:
        _bars(axes, 0, runs[0].calibration, "cluster_low", "cluster_high")


def _changes(measure: str) -> Callable[[Any, Sequence[RunReport]], None]:
    """Return a function that draws intervals of the change since epoch 0, for up to `FEW` runs."""

    def drawn(axes: Any, runs: Sequence[RunReport]) -> None:
        for index, run in enumerate(runs if len(runs) <= FEW else ()):
            _bars(axes, index, run.measured(measure), "low", "high")

    return drawn


def _bars(axes: Any, index: int, rows: Sequence[Row], low: str, high: str) -> None:
    """Draw the interval of each row that has one, in the colour of a run."""
    known = [row for row in rows if row[low] is not None]
    axes.vlines(
        [row["epoch"] for row in known],
        [row[low] for row in known],
        [row[high] for row in known],
        color=colour(index),
        alpha=0.35,
        lw=4,
    )


def _cap(axes: Any, runs: Sequence[RunReport]) -> None:
    for cap in sorted({run.kl_cap for run in runs}):
        axes.axhline(cap, color=SOFT, lw=1, ls="--")


def _costs(runs: Sequence[RunReport]) -> Chart:
    """Return a chart of seconds an epoch by stage, one bar for each run."""
    title = "Cost by stage"
    caption = "Mean wall seconds an epoch that each stage took; reused stages count nothing."
    seconds = [
        {row["stage"]: row["seconds_an_epoch"] for row in run.cost if row["seconds_an_epoch"]}
        for run in runs
    ]
    stages = sorted(
        {stage for found in seconds for stage in found},
        key=lambda stage: max(found.get(stage, 0) for found in seconds),
    )
    if not stages:
        return Chart(title, caption, "")
    with mpl.rc_context(STYLE | {"axes.grid.axis": "x"}):
        figure, axes = new_axes()
        thick = 0.8 / len(runs)
        for index, found in enumerate(seconds):
            places = [place + 0.4 - thick * (index + 0.5) for place in range(len(stages))]
            values = [found.get(stage, 0) for stage in stages]
            axes.barh(places, values, height=thick * 0.9, color=colour(index))
            if len(runs) == 1:
                for place, value in zip(places, values, strict=True):
                    axes.text(value, place, f"  {value:.2g}", va="center", color=SOFT, fontsize=8)
        axes.set_yticks(range(len(stages)), stages)
        axes.tick_params(axis="y", length=0)
        axes.margins(x=0.13)
        axes.set_xlabel("s")
        return Chart(title, caption, to_svg(figure, title))


def new_axes() -> tuple[Any, Any]:
    """Return a figure of a chart's size and its axes."""
    # Plain figures: pyplot would keep each one, and ask for a display.
    figure: Any = Figure(figsize=(_WIDTH_IN, _HEIGHT_IN), layout="constrained")
    return figure, figure.subplots()


def colour(index: int) -> str:
    """Return the stand-in for the colour of a series."""
    return f"#0501{index % SERIES:02x}"


def to_svg(figure: Any, title: str) -> str:
    """Return the figure as an SVG element without links, styles or metadata."""
    out = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(out, format="svg", transparent=True, metadata=nothing)
    _, _, text = out.getvalue().partition("<svg ")
    head, _, body = text.partition(">")
    box = re.search(r'viewBox="[^"]*"', head)
    for pattern in _LEFT_OUT:
        body = pattern.sub("", body)
    body = " ".join(body.split())
    for stand_in, variable in _STAND_INS.items():
        body = body.replace(stand_in, f"var({variable})")
    label = title.replace("&", "&amp;").replace('"', "&quot;")
    return f'<svg {box[0] if box else ""} role="img" aria-label="{label}">{body}'
