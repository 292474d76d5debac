"""Decides a comparison: the first arm against every other, each pair at an equal budget.

A pair's budget on a seed is the lesser of what the two spent in all, so a third arm, cheap or dear,
does not change it. Seeds are the unit. `genenv_core.algorithm.paired` gives the interval, the exact
test and Holm's adjustment over the pairs.

In runs of several domains, this module compares the gains on the test tasks of each domain in the
same way. In a measure, the pairs of all domains are one more family for Holm's adjustment. So a
domain that is better by luck is as rare as with one domain, and the verdicts on all tasks do not
change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from genenv_core.algorithm.paired import (
    CLAIM,
    FEWEST,
    Decision,
    Difference,
    against_itself,
    compare,
    fewest_seeds,
)
from genenv_core.compare.results import Played, Point
from genenv_core.config.comparison import Budget, Comparison, Measure
from genenv_core.errors import ConfigError

SIGNS = {Decision.BETTER: ">", Decision.WORSE: "<"}


@dataclass(frozen=True, slots=True)
class Reading:
    """One run after an epoch: at the budget of a pair, or at its end."""

    arm: str
    seed: int
    run_id: str
    epoch: int
    epochs: int
    spent: dict[Budget, int]
    gains: dict[Measure, float]
    values: dict[Measure, float]
    by_domain: dict[str, dict[Measure, float]]


@dataclass(frozen=True, slots=True)
class ArmVerdict:
    """The first arm against another one, in one measure; of all test tasks, or of one domain's."""

    first: str
    other: str
    measure: Measure
    difference: Difference
    domain: str = ""

    @property
    def words(self) -> str:
        """Return the verdict in one line: `genenv > random: +3.5 points [2.6, 4.5], 10 seeds`."""
        found = self.difference
        sign = SIGNS.get(found.decision, "vs")
        points = f"{100 * found.mean:+.1f} points [{100 * found.low:.1f}, {100 * found.high:.1f}]"
        where = f" in {self.domain}" if self.domain else ""
        return f"{self.first} {sign} {self.other}{where}: {points}, {self.note}"

    @property
    def note(self) -> str:
        """Return the seeds, the exact test, and how many seeds a decision or a claim lacks."""
        found = self.difference
        parts = [f"{found.seeds} seeds"]
        if found.seeds >= FEWEST:
            parts.append(f"p {found.p_holm:.3f}")
        if found.decision in SIGNS:
            if not found.claimed:
                parts.append(f"a claim takes {CLAIM} seeds")
        else:
            few = f"too few to decide (fewer than {FEWEST})"
            parts.append(few if found.seeds < FEWEST else "not decided")
            if found.more_seeds:
                more = found.more_seeds
                parts.append(f"{more} more seed{'s' if more > 1 else ''} would decide")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """An arm against itself over disjoint seeds: the mean difference should be near 0.

    `low` and `high` are the ends of Welch's 95 % interval.
    """

    arm: str
    mean: float
    low: float
    high: float

    @property
    def holds(self) -> bool:
        """Return whether the interval holds 0, as it should."""
        return self.low <= 0 <= self.high


Pair = tuple[Reading, Reading]
"""The first arm and another one on a seed, at their budget."""


@dataclass(frozen=True, slots=True)
class JudgedComparison:
    """The results of a comparison.

    `seeds` are those that every arm has finished, `ends` their runs at the end, seed by seed.
    `pairs` are what each verdict compares, by the other arm's name. The deciding measure comes
    first. `by_domain` are verdicts on the test tasks of single domains, [] unless all runs have
    several.
    """

    measure: Measure
    measures: list[Measure]
    seeds: list[int]
    ends: list[Reading]
    pairs: dict[str, list[Pair]]
    verdicts: list[ArmVerdict]
    self_checks: list[SelfCheck]
    by_domain: list[ArmVerdict] = field(default_factory=list[ArmVerdict])

    def of(self, measure: Measure) -> list[ArmVerdict]:
        """Return the verdicts in one measure."""
        return [verdict for verdict in self.verdicts if verdict.measure is measure]

    def of_domains(self, measure: Measure) -> list[ArmVerdict]:
        """Return the verdicts on single domains in one measure: one family of comparisons."""
        return [verdict for verdict in self.by_domain if verdict.measure is measure]

    @property
    def family(self) -> str:
        """Return in words how many comparisons of single domains a measure has; '' without any."""
        if not self.by_domain:
            return ""
        count = len(self.of_domains(self.by_domain[0].measure))
        domains = len({verdict.domain for verdict in self.by_domain})
        arms = len({verdict.other for verdict in self.by_domain})
        others = f"{arms} other arms" if arms > 1 else "one other arm"
        return f"{count} comparisons ({others} in {domains} domains) are one family for Holm"


def too_few(comparison: Comparison) -> str:
    """Return in words that a comparison has too few seeds to decide anything, '' if it has enough.

    It takes the plan alone, before any run.
    """
    seeds, others = len(comparison.seeds), len(comparison.arms) - 1
    fewest = fewest_seeds(others)
    if seeds >= fewest:
        return ""
    arms = f"{others} other arms take" if others > 1 else "one other arm takes"
    return f"{arms} {fewest} seeds at least; on {seeds} nothing will be decided"


def judge(comparison: Comparison, results: Sequence[Played]) -> JudgedComparison:
    """Decide on the seeds that every arm has finished.

    Where an arm spends nothing of the budget, as `base` does of steps, it counts at its end, and
    the other arm at its own. Raises ConfigError for a measure that the runs do not have.
    """
    played = {(run.arm, run.seed): run for run in results}
    first, *others = comparison.arms
    seeds = [
        seed for seed in comparison.seeds if all((arm, seed) in played for arm in comparison.arms)
    ]
    if not seeds:
        return JudgedComparison(comparison.measure or Measure.SAMPLED, [], [], [], {}, [], [])
    ends = [
        _reading(played[arm, seed], played[arm, seed].points[-1])
        for seed in seeds
        for arm in comparison.arms
    ]
    measures = [one for one in Measure if all(one in reading.gains for reading in ends)]
    measure = comparison.measure or measures[0]
    if measure not in measures:
        raise ConfigError(
            f"measure {measure}: the runs have {', '.join(measures)}: choose one of them"
        )
    measures.sort(key=lambda one: one is not measure)
    pairs = {
        arm: [_pair(played[first, seed], played[arm, seed], comparison.budget) for seed in seeds]
        for arm in others
    }
    verdicts = _verdicts(first, pairs, measures) if len(seeds) > 1 else []
    checks = [_self_check(arm, ends, measure) for arm in comparison.arms]
    return JudgedComparison(
        measure=measure,
        measures=measures,
        seeds=seeds,
        ends=ends,
        pairs=pairs,
        verdicts=verdicts,
        self_checks=[check for check in checks if check],
        by_domain=_domain_verdicts(first, pairs, measures) if len(seeds) > 1 else [],
    )


def _pair(first: Played, other: Played, budget: Budget) -> Pair:
    spent = [run.points[-1].spent[budget] for run in (first, other)]
    limit = min((amount for amount in spent if amount), default=0)
    return _reading(first, first.at(budget, limit)), _reading(other, other.at(budget, limit))


def _reading(run: Played, point: Point) -> Reading:
    return Reading(
        arm=run.arm,
        seed=run.seed,
        run_id=run.run_id,
        epoch=point.epoch,
        epochs=run.points[-1].epoch,
        spent=point.spent,
        gains=point.gains,
        values=point.values,
        by_domain=point.by_domain,
    )


def _verdicts(
    first: str, pairs: Mapping[str, Sequence[Pair]], measures: Sequence[Measure]
) -> list[ArmVerdict]:
    found: list[ArmVerdict] = []
    for measure in measures:
        differences = compare(
            {
                arm: [own.gains[measure] - other.gains[measure] for own, other in read]
                for arm, read in pairs.items()
            }
        )
        found += [ArmVerdict(first, arm, measure, gap) for arm, gap in differences.items()]
    return found


def _domain_verdicts(
    first: str, pairs: Mapping[str, Sequence[Pair]], measures: Sequence[Measure]
) -> list[ArmVerdict]:
    """Return the verdicts on each domain that all runs have; [] for fewer than two domains."""
    readings = [one for read in pairs.values() for pair in read for one in pair]
    domains = [
        name
        for name in readings[0].by_domain
        if all(set(measures) <= one.by_domain.get(name, {}).keys() for one in readings)
    ]
    found: list[ArmVerdict] = []
    for measure in measures if len(domains) > 1 else ():
        gaps = {
            (arm, name): [
                own.by_domain[name][measure] - other.by_domain[name][measure] for own, other in read
            ]
            for name in domains
            for arm, read in pairs.items()
        }
        named = {f"{arm} in {name}": values for (arm, name), values in gaps.items()}
        for (arm, name), gap in zip(gaps, compare(named).values(), strict=True):
            found.append(ArmVerdict(first, arm, measure, gap, name))
    return found


def _self_check(arm: str, ends: Sequence[Reading], measure: Measure) -> SelfCheck | None:
    found = against_itself([end.gains[measure] for end in ends if end.arm == arm])
    return None if found is None else SelfCheck(arm, *found)
