"""Judges whether measured alignment ranks what tasks teach: rank correlations with intervals.

Parts of one update share its luck, so the bootstrap resamples whole updates.
"""

# scipy has partial types only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl
from scipy.stats import rankdata

from genenv_core.algorithm.stats import mean

RESAMPLED = 2000
"""Draws of a bootstrap."""

PREDICTORS = ("alignment", "groups", "spread", "tokens")
"""What ranks the parts: the measured alignment, and three numbers that need no measurement."""


@dataclass(frozen=True, slots=True)
class UpdatePart:
    """Some groups of one update: predictors of their worth, and the measured worth.

    `spread` is the sum of p (1 - p) over the groups. `worth` is a difference of P(answer), by the
    source of the tasks that measure it.
    """

    run: str
    epoch: int
    kind: str
    name: str
    alignment: float
    groups: int
    spread: float
    tokens: int
    worth: Mapping[str, float]
    measuring_s: float = 0.0
    update_s: float = 0.0

    @classmethod
    def of(
        cls, groups: pl.DataFrame, *, kind: str, name: str, worth: Mapping[str, float], **told: Any
    ) -> UpdatePart:
        """Make the part of groups, a row each, with successes, n, alignment, tokens."""
        p = pl.col("successes") / pl.col("n")
        return cls(
            kind=kind,
            name=name,
            alignment=float(groups["alignment"].sum()),
            groups=groups.height,
            spread=float(groups.select((p * (1 - p)).sum()).item()),
            tokens=int(groups["tokens"].sum()),
            worth=dict(worth),
            **told,
        )

    @property
    def update(self) -> tuple[str, int]:
        """Return the update of this part."""
        return self.run, self.epoch

    def as_values(self) -> dict[str, Any]:
        """Return plain values; `UpdatePart(**values)` makes the part again."""
        return asdict(self)


Value = Callable[[UpdatePart], float]
"""Returns a predictor of a part, or its worth."""


@dataclass(frozen=True, slots=True)
class RankCorrelation:
    """Spearman's rank correlation over parts, and the ends of its 95 % bootstrap interval."""

    rho: float
    low: float
    high: float
    parts: int

    def __str__(self) -> str:
        if math.isnan(self.rho):
            return "none"
        return f"{self.rho:+.2f} [{self.low:+.2f}, {self.high:+.2f}]"


def ranked(
    parts: Sequence[UpdatePart],
    predictor: Value,
    truth: Value,
    *,
    less: Value | None = None,
    draws: int = RESAMPLED,
) -> RankCorrelation:
    """Return how well a predictor ranks parts by the truth; the bootstrap resamples whole updates.

    With another predictor as `less`, the function subtracts its correlation, in each draw too. The
    interval is the percentile one (Efron and Tibshirani, An Introduction to the Bootstrap, 1993,
    chapter 13). All numbers are NaN where one side has no differences. Raises ValueError for fewer
    than three parts or two updates.
    """
    by_update: defaultdict[tuple[str, int], list[tuple[float, ...]]] = defaultdict(list)
    for part in parts:
        other = () if less is None else (less(part),)
        by_update[part.update].append((truth(part), predictor(part), *other))
    updates = list(by_update.values())
    if len(parts) < 3 or len(updates) < 2:
        raise ValueError(f"{len(parts)} parts of {len(updates)} updates: too few for a correlation")
    lot = random.Random(0)
    found = (_rho(lot.choices(updates, k=len(updates))) for _ in range(draws))
    known = sorted(value for value in found if not math.isnan(value))
    if not known:
        return RankCorrelation(math.nan, math.nan, math.nan, len(parts))
    low, high = np.quantile(known, [0.025, 0.975])
    return RankCorrelation(_rho(updates), float(low), float(high), len(parts))


def _rho(updates: Sequence[Sequence[tuple[float, ...]]]) -> float:
    """Return Spearman's correlation of the first column with the second, less that with a third.

    NaN where a column has no differences.
    """
    ranks = rankdata(np.array([row for update in updates for row in update], float), axis=0)
    ranks -= ranks.mean(axis=0)
    sizes = np.sqrt((ranks**2).sum(axis=0))
    if not sizes.all():
        return math.nan
    rhos = [float(x) for x in ranks[:, 0] @ ranks[:, 1:] / (sizes[0] * sizes[1:])]
    return rhos[0] - sum(rhos[1:])


def centred(parts: Sequence[UpdatePart], value: Value) -> Value:
    """Return a value less its mean over the parts of the same update."""
    of_update: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    for part in parts:
        of_update[part.update].append(value(part))
    means = {update: mean(values) for update, values in of_update.items()}
    return lambda part: value(part) - means[part.update]


def judged_parts(parts: Sequence[UpdatePart], *, draws: int = RESAMPLED) -> list[str]:
    """Return lines: rank correlations of each predictor with the truth, for families and halves.

    `in an update` compares the families of one update alone, `a task` divides by the number of
    groups, `halves` compares a half with the other half of its split. The last lines say for each
    other predictor how far the alignment is ahead of it.
    """
    lines: list[str] = []
    for source in ("test", "validation"):
        lines.append(f"worth by P(answer) of the {source} tasks, Spearman's rho [95 %]")
        for name in PREDICTORS:
            lines.append(f"  {name:10s} {_line(parts, source, name, None, draws)}")
        for name in PREDICTORS[1:]:
            lines.append(f"  - {name:8s} {_line(parts, source, PREDICTORS[0], name, draws)}")
    families = [part.worth["test"] for part in parts if part.kind == "family"]
    order = [part.worth["test"] for part in parts if part.kind == "order"]
    lines.append(f"another order of the same groups moves P(answer) by {_size(order):.4f} (rms)")
    lines.append(f"a family is worth {_size(families):.4f} (rms)")
    whole = [part for part in parts if part.kind == "whole"]
    if took := sum(part.update_s for part in whole):
        share = sum(part.measuring_s for part in whole) / took
        lines.append(f"measuring takes {share:.0%} of the time of the update")
    return lines


def _line(
    parts: Sequence[UpdatePart], source: str, predictor: str, less: str | None, draws: int
) -> str:
    """Return the correlations of a predictor, or how far they are above those of `less`."""
    families = [part for part in parts if part.kind == "family"]
    halves = [part for part in parts if part.kind == "half"]
    kinds: dict[str, tuple[list[UpdatePart], Callable[[Value], Value]]] = {
        "families": (families, lambda value: value),
        "in an update": (families, lambda value: centred(families, value)),
        "a task": (families, lambda value: lambda part: value(part) / part.groups),
    }
    if halves:
        kinds["halves"] = (halves, lambda value: centred(halves, value))
    found: list[str] = []
    for label, (compared, made) in kinds.items():
        other = None if less is None else made(_known(less))
        rho = ranked(
            compared, made(_known(predictor)), made(_worth(source)), less=other, draws=draws
        )
        found.append(f"{label} {rho}")
    return "  ".join(found)


def _known(name: str) -> Value:
    return lambda part: float(getattr(part, name))


def _worth(source: str) -> Value:
    return lambda part: part.worth[source]


def _size(values: Sequence[float]) -> float:
    return mean([value**2 for value in values]) ** 0.5 if values else 0.0
