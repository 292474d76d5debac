"""Reads findings 1 to 4 from played comparisons, run by run and epoch by epoch."""

# scipy has partial types only.
# pyright: reportUnknownVariableType=false, reportMissingTypeStubs=false

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from genenv_core.algorithm.paired import FEWEST, LEVEL, Decision, interval
from genenv_core.algorithm.stats import mean
from genenv_core.compare.charts import Spot
from genenv_core.evidence.finding import Finding, all_hold, line_chart

BAND = 0.1
"""How far from alpha the last epochs may be."""

LAST = 3
"""Last epochs whose p_hat counts."""

SETTLED = 2
"""The epoch from which on tasks are as hard as they should be: growth before it does not count."""


@dataclass(frozen=True)
class Run:
    """One run of a comparison: p_hat and response tokens by epoch, and attempts against gain.

    `p_hat` and `tokens` begin with epoch 1 and are at least `SETTLED` long; `curve` begins with
    (0, 0), before the first epoch.
    """

    domain: str
    arm: str
    seed: int
    alpha: float
    p_hat: list[float]
    tokens: list[float]
    curve: list[Spot]

    @property
    def last(self) -> float:
        """Return the mean p_hat of the last epochs."""
        return mean(self.p_hat[-LAST:])

    @property
    def growth(self) -> float:
        """Return the share by which answers are longer at the end than in the epoch `SETTLED`."""
        return self.tokens[-1] / self.tokens[SETTLED - 1] - 1

    @property
    def steady(self) -> float:
        """Return the standard deviation of p_hat since the epoch `SETTLED`."""
        settled = self.p_hat[SETTLED - 1 :]
        return math.sqrt(mean([(value - mean(settled)) ** 2 for value in settled]))


def emergence(runs: Sequence[Run]) -> Finding:
    """Return finding 1: answers grow longer while the success on new tasks stands still."""
    rows: list[list[str]] = []
    holds: list[bool | None] = []
    words: list[str] = []
    for domain, own in by_domain(runs).items():
        for arm in ("genenv", "random"):
            found = [run for run in own if run.arm == arm]
            middle, low, high = interval([run.growth for run in found])
            whole = mean([run.tokens[-1] / run.tokens[0] - 1 for run in found])
            steady = mean([run.steady for run in found])
            level = mean([mean(run.p_hat[SETTLED - 1 :]) for run in found])
            rows.append([domain, arm, str(len(found)), f"{whole:+.0%}",
                         f"{middle:+.0%} [{low:+.0%}, {high:+.0%}]", f"{level:.2f}",
                         f"{steady:.3f}"])  # fmt: skip
            if arm == "genenv":
                holds.append(None if len(found) < FEWEST else low > 0 and steady < BAND)
                words.append(f"{domain} {middle:+.0%} at p_hat {level:.2f}")
    return Finding(
        1,
        "The curriculum emerges",
        "Answers grow longer (the paper: +49 %) while the success on new tasks stands still.",
        all_hold(holds),
        f"From epoch {SETTLED} to the last, answers grow: {'; '.join(words)}.",
        ["domain", "arm", "seeds", "tokens since epoch 1", f"since epoch {SETTLED} [95 %]",
         "p_hat", "its spread over epochs"],
        rows,
        [
            line_chart(f"Response length, {domain}", "Mean tokens of an attempt; a band: 95 % "
                       "interval over seeds.", "epoch",
                       _arms(own, ("genenv", "random"), "tokens"))
            for domain, own in by_domain(runs).items()
        ],
    )  # fmt: skip


def calibration(runs: Sequence[Run], alphas: Sequence[Run]) -> Finding:
    """Return finding 2: the success on new tasks ends near alpha, whichever it is."""
    rows: list[list[str]] = []
    holds: list[bool | None] = []
    groups = {
        f"{domain}, alpha 0.5": [run for run in own if run.arm == "genenv"]
        for domain, own in by_domain(runs).items()
    }
    for alpha in sorted({run.alpha for run in alphas} - {0.5}):
        groups[f"desk, alpha {alpha}"] = [run for run in alphas if run.alpha == alpha]
    for name, found in groups.items():
        inside = [abs(run.last - run.alpha) <= BAND for run in found]
        holds.append(all(inside))
        rows.append([name, str(len(found)), f"{mean([run.last for run in found]):.2f}",
                     " ".join(f"{run.last:.2f}" for run in found),
                     f"{sum(inside)} of {len(found)}"])  # fmt: skip
    missed = [row[0] for row, one in zip(rows, holds, strict=True) if not one]
    by_alpha = {
        f"alpha {alpha}": [_spots(run, "p_hat") for run in alphas if run.alpha == alpha]
        for alpha in sorted({run.alpha for run in alphas})
    }
    return Finding(
        2,
        "Tasks meet alpha",
        "The success on new tasks ends within .1 of alpha, for alpha .3, .5 and .7.",
        all_hold(holds),
        f"Mean p_hat of the last {LAST} epochs is within {BAND:g} of alpha "
        + ("on every seed." if not missed else f"on every seed, except: {', '.join(missed)}."),
        ["what", "seeds", "p_hat", "by seed", "inside"],
        rows,
        [
            line_chart("p_hat, desk, by alpha", "Success on attempted tasks.", "epoch", by_alpha,
                       share=True),
            *(
                line_chart(f"p_hat, {domain}", "Success on attempted tasks; the dashed line is "
                           "alpha.", "epoch", _arms(own, ("genenv", "random", "static"), "p_hat"),
                           line=0.5, share=True)
                for domain, own in by_domain(runs).items()
            ),
        ],
    )  # fmt: skip


def superiority(results: Mapping[str, Mapping[str, Any]], runs: Sequence[Run]) -> Finding:
    """Return finding 3: genenv is better than each other arm; `results` are by domain."""
    rows: list[list[str]] = []
    holds: list[bool | None] = []
    for domain, result in results.items():
        for verdict in result["verdicts"]:
            if verdict["measure"] != result["measure"]:
                continue
            decision = verdict["decision"]
            holds.append({Decision.BETTER: True, Decision.WORSE: False}.get(decision))
            middle, low, high = (100 * verdict[name] for name in ("mean", "low", "high"))
            rows.append([domain, f"genenv - {verdict['other']}", verdict["measure"],
                         f"{middle:+.1f} [{low:+.1f}, {high:+.1f}]",
                         f"{verdict['p_holm']:.3f}", str(verdict["seeds"]), decision])  # fmt: skip
    lost = [f"{row[1]} on {row[0]} ({row[6]})" for row in rows if row[6] != Decision.BETTER]
    return Finding(
        3,
        "Co-evolution beats other data",
        "genenv gains more on test tasks than random (the paper: +12.3), static, offline, base.",
        all_hold(holds),
        "At equal attempts genenv is better than every other arm"
        + (f", except: {'; '.join(lost)}." if lost else "."),
        ["domain", "difference", "measure", "points of 100 [95 %]", "p, Holm", "seeds", "decision"],
        rows,
        [
            line_chart(f"Gain by attempts, {domain}", "Gain on the test tasks since epoch 0.",
                       "attempts", _arms(own, _all_arms(own), "curve"))
            for domain, own in by_domain(runs).items()
        ],
    )  # fmt: skip


def efficiency(runs: Sequence[Run]) -> Finding:
    """Return finding 4: how many attempts genenv needs to reach the final score of another arm.

    A seed on which it never gets there counts as one that needs more. The sign test decides.
    """
    rows: list[list[str]] = []
    holds: list[bool | None] = []
    for domain, own in by_domain(runs).items():
        first = {run.seed: run for run in own if run.arm == "genenv"}
        for arm in (one for one in _all_arms(own) if one not in ("genenv", "base")):
            times = sorted(
                attempts_ratio(first[run.seed].curve, run.curve) for run in own if run.arm == arm
            )
            fewer = sum(ratio > 1 for ratio in times)
            holds.append(_sign_test(fewer, len(times)))
            shown = [f"{ratio:.1f}" if ratio else "never" for ratio in times]
            rows.append([domain, arm, f"{median(times):.1f}", " ".join(shown),
                         f"{fewer} of {len(times)}"])  # fmt: skip
    said = "; ".join(f"{row[0]}, {row[1]}: {row[2]} ({row[4]} seeds above 1)" for row in rows)
    return Finding(
        4,
        "Less data for the same score",
        "genenv reaches the final score of other arms with fewer attempts (the paper: 3.3 times).",
        all_hold(holds),
        f"Attempts of the other arm for one of genenv, until genenv has its final score, median: "
        f"{said}.",
        ["domain", "other arm", "times fewer attempts, median", "by seed", "seeds with fewer"],
        rows,
    )


def _sign_test(above: int, seeds: int) -> bool | None:
    """Return whether significantly many seeds are above (or below); None if undecided."""
    from scipy.stats import binomtest

    if binomtest(above, seeds).pvalue > LEVEL:
        return None
    return above > seeds / 2


def attempts_ratio(own: Sequence[Spot], other: Sequence[Spot]) -> float:
    """Return how many times fewer attempts `own` needs to reach the end of `other`; 0.0: never.

    Between epochs the curve is a straight line. Infinite where the other arm gains nothing.
    """
    attempts, goal = other[-1]
    if goal <= 0:
        return math.inf
    for (x0, y0), (x1, y1) in pairwise(own):
        if y1 >= goal > y0:
            return attempts / (x0 + (x1 - x0) * (goal - y0) / (y1 - y0))
    return 0.0


def by_domain(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Return the runs of each domain."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run.domain, []).append(run)
    return found


def _all_arms(runs: Sequence[Run]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(run.arm for run in runs))


def _arms(runs: Sequence[Run], arms: Sequence[str], name: str) -> dict[str, list[list[Spot]]]:
    return {arm: [_spots(run, name) for run in runs if run.arm == arm] for arm in arms}


def _spots(run: Run, name: str) -> list[Spot]:
    if name == "curve":
        return run.curve
    return [(float(epoch), value) for epoch, value in enumerate(getattr(run, name), start=1)]
