"""What a comparison decides, on simulated runs whose effects are known.

Invariants: both arms of a pair are read where they have spent no more than the lesser of what the
two spent, whatever a third one spends; one that spends nothing is no limit; a seed counts when
every arm has finished it; effects are found and absent ones are not claimed; few seeds decide
nothing; words and numbers say the same. Coverage and false alarms over 1,000 pages are tested in
tests/unit/algorithm/test_paired.py.
"""

from __future__ import annotations

import pytest

from genenv_core.algorithm.paired import Decision
from genenv_core.compare.judging import judge, too_few
from genenv_core.config.comparison import Budget, Comparison, Measure
from genenv_core.errors import ConfigError
from tests.mutations import mutation
from tests.unit.compare.builders_compare import comparison, even, played, simulated

JUDGING = "genenv_core/compare/judging.py"


def test_effects_are_found_and_absent_ones_are_not_claimed() -> None:
    effects = {"genenv": 0.1, "random": 0.07, "static": 0.1, "base": 0.15}
    judged = judge(comparison(list(effects), range(12)), simulated(effects, 12))
    found = {verdict.other: verdict for verdict in judged.of(judged.measure)}
    assert [found[arm].difference.decision for arm in ("random", "static", "base")] == [
        Decision.BETTER,
        Decision.TIE,
        Decision.WORSE,
    ]
    assert found["random"].words.startswith("genenv > random: +")
    assert found["base"].words.startswith("genenv < base: -")
    assert found["static"].words.startswith("genenv vs static: ")
    assert "not decided" in found["static"].words
    for verdict in found.values():
        difference = verdict.difference
        assert f"{100 * difference.mean:+.1f} points" in verdict.words
        assert difference.low <= effects["genenv"] - effects[verdict.other] <= difference.high
        assert "12 seeds" in verdict.words


@mutation(
    "fewer than six seeds decide", "genenv_core/algorithm/paired.py",
    "Decision.FEW if len(gaps) < FEWEST else Decision.TIE", "Decision.TIE",
)  # fmt: skip
def test_few_seeds_decide_nothing_and_a_claim_takes_ten() -> None:
    effects = {"genenv": 0.2, "random": 0.0}
    few = judge(comparison(list(effects), range(4)), simulated(effects, 4))
    assert few.verdicts[0].difference.decision is Decision.FEW
    assert "too few to decide" in few.verdicts[0].words
    assert "2 more seeds would decide" in few.verdicts[0].words
    six = judge(comparison(list(effects), range(7)), simulated(effects, 7))
    assert six.verdicts[0].difference.decision is Decision.BETTER
    assert "a claim takes 10 seeds" in six.verdicts[0].words
    ten = judge(comparison(list(effects), range(10)), simulated(effects, 10))
    assert "claim" not in ten.verdicts[0].words
    one = judge(comparison(list(effects), range(1)), simulated(effects, 1))
    assert (one.verdicts, one.self_checks, one.seeds) == ([], [], [0])


@mutation(
    "pairs are read at their ends, whatever they spent", "genenv_core/compare/results.py",
    "if point.spent[budget] <= limit][-1]", "if point.spent is not None][-1]",
)  # fmt: skip
@pytest.mark.parametrize("budget", list(Budget))
def test_a_pair_is_read_at_the_lesser_of_what_they_spent(budget: Budget) -> None:
    cheap, dear = even(3, each=10), even(3, each=10) | {budget: [16, 31, 60]}
    runs = [
        played("genenv", 0, [0.1, 0.2, 0.3], dear),
        played("random", 0, [0.05, 0.06, 0.07], cheap),
        played("static", 0, [0.01, 0.02, 0.03], even(3, each=1)),  # cheaper than both
    ]
    judged = judge(comparison(["genenv", "random", "static"], [0], budget=budget), runs)
    ((genenv, random),) = judged.pairs["random"]
    assert [end.epoch for end in judged.ends] == [3, 3, 3]
    assert [one.epoch for one in judged.pairs["static"][0]] == [0, 3]
    assert (genenv.epoch, genenv.epochs, genenv.gains[Measure.SAMPLED]) == (1, 3, 0.1)
    assert (random.epoch, random.gains[Measure.SAMPLED]) == (3, 0.07)
    assert genenv.spent[budget] == 16 <= random.spent[budget] == 30


def test_one_that_cannot_afford_an_epoch_is_read_before_it() -> None:
    runs = [
        played("genenv", 0, [0.1], even(1, each=100)),
        played("random", 0, [0.05], even(1, each=10)),
    ]
    judged = judge(comparison(["genenv", "random"], [0]), runs)
    ((genenv, _),) = judged.pairs["random"]
    assert (genenv.epoch, genenv.gains[Measure.SAMPLED]) == (0, 0.0)


@mutation(
    "an arm that spends nothing is the limit", JUDGING,
    "for amount in spent if amount)", "for amount in spent)",
)  # fmt: skip
def test_an_arm_that_spends_nothing_is_no_limit() -> None:
    runs = [
        played("genenv", 0, [0.1, 0.2], even(2)),
        played("base", 0, [0.0, 0.0], even(2) | {Budget.STEPS: [0, 0]}),
    ]
    judged = judge(comparison(["genenv", "base"], [0], budget="steps"), runs)
    assert [one.epoch for one in judged.pairs["base"][0]] == [2, 2]


@mutation(
    "a seed counts though an arm has not finished it", JUDGING,
    "if all((arm, seed) in played for arm in comparison.arms)",
    "if any((arm, seed) in played for arm in comparison.arms)",
)  # fmt: skip
def test_a_seed_counts_when_every_arm_has_finished_it() -> None:
    effects = {"genenv": 0.1, "random": 0.0}
    runs = [run for run in simulated(effects, 8) if (run.arm, run.seed) != ("random", 3)]
    judged = judge(comparison(list(effects), range(8)), runs)
    assert judged.seeds == [0, 1, 2, 4, 5, 6, 7]
    assert {end.seed for end in judged.ends} == set(judged.seeds)
    assert judged.verdicts[0].difference.seeds == 7
    assert judge(comparison(list(effects), range(8)), []).seeds == []


def test_the_deciding_measure_comes_first_and_must_be_there() -> None:
    effects = {"genenv": 0.1, "random": 0.0}
    asked = comparison(list(effects), range(6), measure="greedy")
    judged = judge(asked, simulated(effects, 6))
    assert judged.measure is judged.measures[0] is judged.verdicts[0].measure is Measure.GREEDY
    runs = simulated(effects, 6)
    for run in runs:
        for point in run.points:
            point.gains.pop(Measure.GREEDY, None)
    with pytest.raises(ConfigError, match="measure greedy: the runs have answer_probability"):
        judge(asked, runs)


def test_an_arm_against_itself_holds_zero() -> None:
    effects = {"genenv": 0.1, "random": 0.0}
    judged = judge(comparison(list(effects), range(10)), simulated(effects, 10))
    assert [check.arm for check in judged.self_checks] == ["genenv", "random"]
    assert all(check.holds and check.low < check.mean < check.high for check in judged.self_checks)


def test_too_few_seeds_are_known_before_any_run() -> None:
    pair = {"genenv": {}, "random": {}}
    assert too_few(Comparison(arms=pair, seeds=tuple(range(6)))) == ""
    assert "one other arm takes 6 seeds" in too_few(Comparison(arms=pair, seeds=(0, 1, 2, 3, 4)))
    many = pair | {name: {} for name in ("static", "offline", "base")}
    told = too_few(Comparison(arms=many, seeds=tuple(range(7))))
    assert told == "4 other arms take 8 seeds at least; on 7 nothing will be decided"
    assert too_few(Comparison(arms=many, seeds=tuple(range(8)))) == ""
