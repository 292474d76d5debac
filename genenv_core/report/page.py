"""The report as one HTML page: no script, no network, everything in it.

Texts of models are hostile: Jinja escapes them all, and the page's content security policy lets
nothing load or run. Only the charts, which hold no such text, go in as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import yaml
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from genenv_core.addresses import at_root
from genenv_core.play.transcript import folded, visible
from genenv_core.report.charts import GLYPHS, SERIES, draw
from genenv_core.report.data import RunReport


@dataclass(frozen=True, slots=True)
class Headline:
    """One number at the head of the page, with what it is compared with."""

    label: str
    value: str
    note: str


def render(runs: Sequence[RunReport], *, root: str, now: datetime, version: str) -> str:
    """Return the page on these runs; `root` is as the commands on the page should name it."""
    template = templates("genenv_core.report", spoken=folded).get_template("page.html.j2")
    return template.render(
        runs=runs,
        headlines=headlines(runs[0]),
        summaries={run.run_id: summary(run) for run in runs},
        looks={
            run.run_id: {"colour": f"s{index % SERIES}", "glyph": GLYPHS[index % SERIES]}
            for index, run in enumerate(runs)
        },
        charts=[(chart, Markup(chart.svg)) for chart in draw(runs)],
        root=root,
        at_root=at_root(root),
        measures=MEASURES,
        now=now,
        version=version,
    )


def templates(package: str, **filters: Callable[..., Any]) -> Any:
    """Return the templates of a package, which may include the report's; model texts are escaped.

    They have the filters of the report's numbers, and `filters`.
    """
    environment: Any = Environment(
        loader=ChoiceLoader(
            [PackageLoader(package, "."), PackageLoader("genenv_core.report", ".")]
        ),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "visible": visible,
        "number": number,
        "percent": percent,
        "signed": signed,
        "yaml": partial(yaml.safe_dump, sort_keys=False, allow_unicode=True),
        **filters,
    }
    return environment


MEASURES = {
    "answer_probability": "probability of the answer",
    "sampled": "sampled success",
    "greedy": "greedy success",
}
"""Measures of the view `test_gains`, in words."""


def headlines(run: RunReport) -> list[Headline]:
    """Return the numbers that sum a run up; those that are not there yet are left out."""
    found: list[Headline] = []
    sampled = run.measured("sampled")
    if sampled:
        last = sampled[-1]
        error = f" ± {last['se']:.3f}" if last["se"] is not None else ""
        note = f"sampled, after epoch {last['epoch']}"
        found.append(Headline("test success ± s.e.", f"{last['value']:.3f}{error}", note))
    gained = [row for row in run.evidence if row["gain"] is not None]
    if gained:
        last = gained[-1]
        note = "since epoch 0, paired by task"
        if last["gain_low"] is not None:
            note = f"{signed(last['gain_low'])} to {signed(last['gain_high'])} (95 %), {note}"
        found.append(Headline(f"gain, {MEASURES[last['measure']]}", signed(last["gain"]), note))
    if run.evidence and (true := run.evidence[-1]["fidelity"]) is not None:
        note = f"in the place of the tools, epoch {run.evidence[-1]['epoch']}"
        found.append(Headline("fidelity of pi_env", f"{true:.2f}", note))
    if run.curriculum:
        first, last = run.curriculum[0], run.curriculum[-1]
        for label, column, shown, goal in (
            ("success on new tasks", "skill", percent, f"target {run.alpha:g}, "),
            ("in the band", "share_in_band", percent, ""),
            ("groups without signal", "share_zero_signal", percent, ""),
            ("response tokens", "response_tokens", number, ""),
        ):
            way = f"{shown(first[column])} → {shown(last[column])}"
            note = goal + (way if len(run.curriculum) > 1 else "")
            found.append(Headline(label, shown(last[column]), note))
    if run.epochs:
        seconds = [row["seconds"] for row in run.epochs if row["seconds"] is not None]
        kl, error = run.epochs[-1]["kl_env"], run.epochs[-1]["kl_env_se"]
        if kl is not None:
            shown = number(kl) + ("" if error is None else f" ± {number(error, 2)}")
            found.append(Headline("KL of pi_env ± s.e.", shown, f"cap {run.kl_cap:g}, nats"))
        if seconds:
            found.append(
                Headline("an epoch", f"{sum(seconds) / len(seconds):.1f} s", _total(seconds))
            )
    return found


def summary(run: RunReport) -> str:
    """Return how far the run is, in a sentence."""
    done = len(run.epochs)
    if not done:
        return (
            "No epoch is finished yet: the charts fill as epochs end. What has been tried so far "
            "is under Gates and unfinished stages."
        )
    if done < run.planned:
        return f"{done} of {run.planned} epochs are finished: this is how far it is now."
    return f"All {done} epochs are finished."


def number(value: float | None, digits: int = 3) -> str:
    """Return a number for people, '' for none."""
    if value is None:
        return ""
    if isinstance(value, int):
        return f"{value:,}"
    if value and not 1e-3 <= abs(value) < 1e6:
        return f"{value:.{digits - 1}e}"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:,.{places}f}"


def percent(value: float | None) -> str:
    """Return a share as percent, '' for none."""
    return "" if value is None else f"{value:.0%}"


def signed(value: float | None) -> str:
    """Return a difference with its sign, '' for none."""
    return "" if value is None else f"{value:+z.3f}".replace("-", "−")


def _total(seconds: Sequence[float]) -> str:
    total = sum(seconds)
    unit, size = ("min", 60) if total >= 120 else ("s", 1)
    return f"{total / size:.1f} {unit} in {len(seconds)} epochs"
