"""Which of the written tasks are attempted.

Invariants: as many as wanted, or all there are; without attempts to learn from, or without
candidates, the choice is by lot; else those predicted nearest to alpha, from both of its sides
within the band, beside a share by lot that is drawn among all; only valid tasks have a choice;
predictions stand beside tasks that were not chosen too; what was not chosen is not attempted, and a
teacher's tasks all are; a reserve is the rest in the order in which the same choice goes on, and it
changes no choice; the success rate of what was written is of attempted tasks their share, of
others their prediction; what earlier predictions missed moves the next ones, once.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import polars as pl
import pytest

from genenv_core.algorithm.success.model import Attempts, log_odds
from genenv_core.config.sections.curriculum import CurriculumConfig, GenerationConfig
from genenv_core.epoch.attempting.choosing import (
    choose,
    chosen_tasks,
    features,
    rated_attempts,
    reserve_tasks,
    written_p_hat,
    written_skill,
)
from genenv_core.epoch.rows import frame
from genenv_core.types import TaskChoice
from tests.mutations import mutation
from tests.unit.epoch.builders_epoch import generated

CHOOSING = "genenv_core/epoch/attempting/choosing.py"

EASY, EVEN, HARD = "ee", "mmmm", "hhhhhhhh"  # a word's family is its length


def written(easy: int = 10, even: int = 10, hard: int = 10) -> pl.DataFrame:
    """Return tasks of three families in turn, and a rejected one."""
    words = [EASY] * easy + [EVEN] * even + [HARD] * hard
    rows = [generated(f"t{place:02d}", word) for place, word in enumerate(words)]
    return frame("tasks", [*rows, generated("t99", "x", rejection="duplicate")])


def known(**families: float) -> list[Attempts]:
    """Return attempts at 20 tasks of each family with a share of successes."""
    shares = families or {EASY: 1.0, EVEN: 0.5, HARD: 0.0}
    return [
        Attempts(features(generated("t", word)), round(share * 8), 8)
        for word, share in shares.items()
        for _ in range(20)
    ]


def chosen(
    tasks: pl.DataFrame,
    rows: list[Attempts],
    /,
    *,
    seed: int = 0,
    alpha: float = 0.5,
    reserve: bool = False,
    **settings: Any,
) -> pl.DataFrame:
    given: dict[str, Any] = {"tasks": 10, "candidates": 3, "random_share": 0.2} | settings
    config = GenerationConfig(**given)
    curriculum = CurriculumConfig(alpha=alpha, k_min=0.4)
    made = choose(tasks, rows, settings=config, curriculum=curriculum, seed=seed, reserve=reserve)
    assert made.columns == tasks.columns and made["task_id"].equals(tasks["task_id"])
    return made


def words_of(made: pl.DataFrame, choice: TaskChoice) -> list[str]:
    return made.filter(pl.col("choice") == choice.value)["program"].to_list()


@mutation(
    "nothing is drawn by lot once there are predictions", CHOOSING,
    "by_lot = round(settings.random_share * count) if predicted else count",
    "by_lot = 0 if predicted else count",
)  # fmt: skip
def test_those_predicted_near_alpha_are_chosen_beside_a_share_by_lot() -> None:
    made = chosen(written(), known())
    assert words_of(made, TaskChoice.PREDICTED) == [EVEN] * 8
    assert len(words_of(made, TaskChoice.RANDOM)) == 2
    assert len(words_of(made, TaskChoice.NOT_CHOSEN)) == 20


@pytest.mark.parametrize(("alpha", "word"), [(0.95, EASY), (0.05, HARD)])
def test_another_alpha_chooses_others(alpha: float, word: str) -> None:
    words = words_of(
        chosen(written(), known(), alpha=alpha, random_share=0.0), TaskChoice.PREDICTED
    )
    assert words.count(word) > 5


@mutation(
    "the nearest to alpha are chosen, whatever they average to", CHOOSING,
    "too_easy = total > alpha * (len(lot) + len(near))", "too_easy = bool(below) and not above",
)  # fmt: skip
def test_they_average_to_alpha_where_most_are_too_easy() -> None:
    rates = known(**{EASY: 0.75, HARD: 0.25})
    made = chosen(written(24, 0, 6), rates, random_share=0.0)
    words = words_of(made, TaskChoice.PREDICTED)
    assert (words.count(EASY), words.count(HARD)) == (5, 5)
    few = words_of(chosen(written(29, 0, 1), rates, random_share=0.0), TaskChoice.PREDICTED)
    assert (few.count(EASY), few.count(HARD)) == (9, 1)


@mutation(
    "tasks that hardly teach balance the others", CHOOSING,
    "band = [place for place in order if in_band(rates[place], alpha=alpha, k_min=k_min)]",
    "band = order",
)  # fmt: skip
def test_what_hardly_teaches_balances_nothing() -> None:
    rates = known(**{EASY: 0.75, HARD: 0.0})
    made = chosen(written(24, 0, 6), rates, random_share=0.0)
    assert words_of(made, TaskChoice.PREDICTED) == [EASY] * 10
    made = chosen(written(7, 0, 23), rates, random_share=0.0)
    assert sorted(words_of(made, TaskChoice.PREDICTED)) == [EASY] * 7 + [HARD] * 3


@mutation("families never take turns", CHOOSING, 'settings.choose_by == "family"', "False")
@mutation(
    "families outside of the band take turns too", CHOOSING,
    "band = _in_turn(band, families)", "band = _in_turn(order, families)",
)  # fmt: skip
def test_families_take_turns_within_the_band() -> None:
    rates = known(**{EASY: 0.75, EVEN: 0.5, HARD: 0.25})
    tasks = written(5, 20, 5)
    near = words_of(chosen(tasks, rates, random_share=0.0), TaskChoice.PREDICTED)
    assert near.count(EVEN) >= 9
    turns = words_of(
        chosen(tasks, rates, random_share=0.0, choose_by="family"), TaskChoice.PREDICTED
    )
    counts = Counter(turns)
    assert len(turns) == 10 and {counts[EASY], counts[EVEN], counts[HARD]} == {3, 4}
    too_hard = known(**{EASY: 0.75, EVEN: 0.5, HARD: 0.0})
    kept = words_of(
        chosen(tasks, too_hard, random_share=0.0, choose_by="family"), TaskChoice.PREDICTED
    )
    assert len(kept) == 10 and HARD not in kept
    # A family that has no more leaves its turns to the others.
    few = words_of(
        chosen(written(1, 28, 1), rates, random_share=0.0, choose_by="family"),
        TaskChoice.PREDICTED,
    )
    assert Counter(few) == {EASY: 1, EVEN: 8, HARD: 1}


def test_the_lot_is_drawn_among_all_that_was_written() -> None:
    drawn = {
        word
        for seed in range(40)
        for word in words_of(chosen(written(), known(), seed=seed), TaskChoice.RANDOM)
    }
    assert drawn == {EASY, EVEN, HARD}


def test_every_written_task_has_its_prediction() -> None:
    made = chosen(written(), known()).filter("valid")
    means = dict(made.group_by("program").agg(pl.mean("predicted_p")).iter_rows())
    assert means[EASY] > 0.9 and means[HARD] < 0.1 and abs(means[EVEN] - 0.5) < 0.1
    assert made["predicted_sd"].min() > 0  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]


def test_without_attempts_the_choice_is_by_lot() -> None:
    made = chosen(written(), [])
    assert len(words_of(made, TaskChoice.RANDOM)) == 10
    assert len(words_of(made, TaskChoice.NOT_CHOSEN)) == 20
    assert set(words_of(made, TaskChoice.RANDOM)) != {EVEN}
    assert made["predicted_p"].null_count() == made.height
    other = chosen(written(), [], seed=1)
    assert not made["choice"].equals(other["choice"])


def test_without_candidates_all_are_attempted() -> None:
    made = chosen(written(4, 3, 3), known(), candidates=1)
    assert words_of(made, TaskChoice.RANDOM) == [EASY] * 4 + [EVEN] * 3 + [HARD] * 3


@pytest.mark.parametrize("rows", [[], known()])
def test_fewer_than_wanted_are_all_attempted(rows: list[Attempts]) -> None:
    made = chosen(written(2, 2, 2), rows)
    assert not words_of(made, TaskChoice.NOT_CHOSEN)
    assert chosen_tasks(made).height == 6
    none = chosen(written(0, 0, 0), rows)
    assert none["choice"].null_count() == none.height == 1


def test_a_rejected_text_has_no_choice() -> None:
    row = chosen(written(), known()).filter(~pl.col("valid")).row(0, named=True)
    assert (row["choice"], row["predicted_p"], row["predicted_sd"]) == (None, None, None)


@mutation(
    "what was not chosen is attempted", CHOOSING,
    '~pl.col("choice").fill_null("").is_in(left)', "True",
)  # fmt: skip
def test_what_is_not_chosen_is_not_attempted_and_what_a_teacher_wrote_is() -> None:
    teacher = frame("tasks", [generated("t90", "tt", source="teacher", choice=None)])
    made = pl.concat([chosen(written(), known()), teacher])
    ids = chosen_tasks(made)["task_id"].to_list()
    assert len(ids) == 11 and "t90" in ids and "t99" not in ids


def test_attempts_are_those_at_tasks_of_pi_env() -> None:
    tasks = frame(
        "tasks",
        [
            generated("t1", EASY),
            generated("t2", EVEN),
            generated("t3", HARD, source="teacher", choice=None),
        ],
    )
    scores = frame(
        "task_scores",
        [{"task_id": name, "successes": k, "n": 8} for name, k in (("t1", 7), ("t3", 2))],
    )
    assert rated_attempts(tasks, scores) == [Attempts(features(generated("t", EASY)), 7, 8)]


@mutation(
    "what predictions missed is left out of the next ones", CHOOSING,
    "for place in places], drift=missed)", "for place in places])",
)  # fmt: skip
def test_what_earlier_predictions_missed_moves_the_next_ones() -> None:
    """The agent has improved: tasks predicted at .25 came out at .5."""
    missed = [
        Attempts(row.features, row.successes, row.n, log_odds(0.25))
        for row in known(**{EASY: 0.5, EVEN: 0.5})
    ]
    still, moved = chosen(written(), known(**{EASY: 0.5})), chosen(written(), missed)
    assert set(still.filter("valid")["predicted_drift"]) == {0.0}
    (drift,) = set(moved.filter("valid")["predicted_drift"])
    assert drift == pytest.approx(log_odds(0.5) - log_odds(0.25), abs=1e-6)
    of_even = moved.filter(program=EVEN)["predicted_p"][0]
    assert of_even == pytest.approx(0.75, abs=0.02)


@mutation(
    "a drift that is in a prediction is counted again", CHOOSING,
    'log_odds(rate) - task["predicted_drift"]', "log_odds(rate)",
)  # fmt: skip
def test_a_drift_that_is_in_a_prediction_is_not_counted_again() -> None:
    row = generated("t1", EASY, predicted_p=0.75, predicted_drift=log_odds(0.75))
    scores = frame("task_scores", [{"task_id": "t1", "successes": 6, "n": 8}])
    (attempts,) = rated_attempts(frame("tasks", [row]), scores)
    assert attempts.predicted == pytest.approx(0)


@mutation(
    "what was written is judged by what was attempted", CHOOSING,
    'rate=pl.coalesce("seen", "predicted_p")', 'rate=pl.col("seen")',
)  # fmt: skip
def test_the_success_rate_of_what_was_written() -> None:
    tasks = frame(
        "tasks",
        [
            generated("t1", predicted_p=0.9),
            generated("t2", choice="not_chosen", predicted_p=0.8),
            generated("t3", source="teacher", choice=None),
            generated("t4", rejection="duplicate"),
        ],
    )
    scores = frame("task_scores", [{"task_id": "t1", "p_hat": 0.25}, {"task_id": "t3", "p_hat": 0}])
    assert written_p_hat(tasks, scores) == pytest.approx((0.25 + 0.8) / 2)
    unpredicted = tasks.with_columns(predicted_p=pl.lit(None, pl.Float64))
    assert written_p_hat(unpredicted, scores) == 0.25
    assert written_p_hat(tasks.clear(), scores) is None


@mutation(
    "what a guess may solve is chosen by its success", CHOOSING,
    "else above_chance(rate, chance)", "else rate",
)  # fmt: skip
def test_what_half_are_solved_of_is_far_from_alpha_where_a_coin_solves_it() -> None:
    tasks = written(easy=0, even=20, hard=0).with_columns(
        chance=pl.when(pl.col("task_id") < "t10").then(0.5).otherwise(None)
    )
    near = chosen(tasks, known(), random_share=0.0).filter(choice="predicted")
    assert near["task_id"].min() == "t10" and near.height == 10


@mutation(
    "the target follows guesses", CHOOSING,
    "above_chance(mean(written[\"rate\"].to_list()), mean(_chances(written)))",
    "mean(written[\"rate\"].to_list())",
)  # fmt: skip
def test_the_skill_of_what_was_written_is_its_mean_rate_above_its_mean_chance() -> None:
    rows = [generated("t1", chance=0.5), generated("t2", choice="not_chosen", predicted_p=0.5)]
    scores = frame("task_scores", [{"task_id": "t1", "p_hat": 0.75}])
    tasks = frame("tasks", rows)
    assert written_skill(tasks, scores) == pytest.approx((0.625 - 0.25) / 0.75)
    alone = tasks.with_columns(chance=pl.lit(None, pl.Float64))
    assert written_skill(alone, scores) == written_p_hat(alone, scores) == 0.625
    assert written_skill(tasks.clear(), scores) is None


@mutation(
    "what is in the reserve is attempted at once", CHOOSING,
    "left = [TaskChoice.NOT_CHOSEN.value, TaskChoice.RESERVE.value]",
    "left = [TaskChoice.NOT_CHOSEN.value]",
)  # fmt: skip
@mutation("the rest is a reserve in every run", CHOOSING, "if reserve else", "if True else")
@pytest.mark.parametrize("rows", [[], known()])
def test_a_reserve_holds_what_was_not_chosen_and_changes_no_choice(rows: list[Attempts]) -> None:
    without, made = chosen(written(), rows), chosen(written(), rows, reserve=True)
    assert reserve_tasks(without).is_empty() and without["reserve_place"].null_count() == 31
    assert reserve_tasks(made)["reserve_place"].to_list() == list(range(20))
    assert chosen_tasks(made)["task_id"].equals(chosen_tasks(without)["task_id"])
    again = made.with_columns(pl.col("choice").replace("reserve", "not_chosen"))
    assert again.drop("reserve_place").equals(without.drop("reserve_place"))


@mutation(
    "a reserve is in the order of writing", CHOOSING,
    "return lot, others[:near], others[near:]", "return lot, others[:near], sorted(others[near:])",
)  # fmt: skip
@pytest.mark.parametrize("choose_by", ["task", "family"])
@pytest.mark.parametrize("more", [1, 7])
def test_a_reserve_goes_on_where_the_choice_ended(choose_by: str, more: int) -> None:
    """Who had been allowed `more` tasks would have chosen those that come first in the reserve."""
    settings: dict[str, Any] = {"random_share": 0.0, "choose_by": choose_by}
    rates = known(**{EASY: 0.75, EVEN: 0.5, HARD: 0.25})
    few = chosen(written(), rates, reserve=True, **settings)
    many = chosen(written(), rates, tasks=10 + more, **settings)
    first = reserve_tasks(few).head(more)
    assert {*first["task_id"]} == {*chosen_tasks(many)["task_id"]} - {*chosen_tasks(few)["task_id"]}


def test_without_attempts_the_reserve_is_by_lot_too() -> None:
    made = chosen(written(), [], reserve=True)
    order = reserve_tasks(made)["task_id"].to_list()
    assert order != sorted(order)
    assert order != reserve_tasks(chosen(written(), [], reserve=True, seed=1))["task_id"].to_list()
