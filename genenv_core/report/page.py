"""Renders the report as one HTML page that needs no script and no network.

Texts of models are hostile: Jinja escapes them all, and the page's content security policy forbids
to load or run anything. Only the charts go in unescaped, as they hold no such text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime
from functools import partial
from typing import Any

import yaml
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from genenv_core.addresses import at_root
from genenv_core.hiding import visible
from genenv_core.report.data import RunReport
from genenv_core.report.folding import folded
from genenv_core.report.outcome import Headline, figures
from genenv_core.report.outcome import headlines as outcome_headlines
from genenv_core.report.words import MEASURES, number, percent, signed, whole


def render(runs: Sequence[RunReport], *, root: str, now: datetime, version: str) -> str:
    """Return the page on these runs; the commands on the page name the root as `root`."""
    from genenv_core.report.charts import GLYPHS, SERIES, draw  # loads matplotlib

    template = templates("genenv_core.report", spoken=folded).get_template("page.html.j2")
    return template.render(
        runs=runs,
        headlines=headlines(runs[0]),
        figures={run.run_id: figures(asdict(run.outcome)) for run in runs},
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
    """Return the templates of a package, which may include the report's and escape all texts.

    They have the filters for the report's numbers, and `filters`.
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
        "whole": whole,
        "yaml": partial(yaml.safe_dump, sort_keys=False, allow_unicode=True),
        **filters,
    }
    return environment


def headlines(run: RunReport) -> list[Headline]:
    """Return the numbers that sum a run up, as far as they are known."""
    found = outcome_headlines(run.outcome)
    if run.evidence and (true := run.evidence[-1]["fidelity"]) is not None:
        note = f"in the place of the tools, epoch {run.evidence[-1]['epoch']}"
        found.append(Headline("fidelity of pi_env", f"{true:.2f}", note))
    if run.curriculum:
        first, last = (run.curriculum[place]["response_tokens"] for place in (0, -1))
        way = f"{number(first)} in epoch {run.curriculum[0]['epoch']}"
        found.append(Headline("tokens of an attempt", number(last), way))
    if run.epochs:
        kl, error = run.epochs[-1]["kl_env"], run.epochs[-1]["kl_env_se"]
        if kl is not None:
            shown = number(kl) + ("" if error is None else f" ± {number(error, 2)}")
            found.append(Headline("KL of pi_env ± s.e.", shown, f"cap {run.kl_cap:g}, nats"))
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
