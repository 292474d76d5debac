"""Judges of answers, and how an answer is found in a text.

Invariants: a right answer in another spelling succeeds and earns 1; a wrong one fails and says why;
a list of guesses is no answer; only digits that are the same number are the same; what agents write
raises nothing, and rewards stay in [0, 1].
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genenv_core.domains.kit import answers
from genenv_core.domains.kit.judges import (
    chance,
    choice,
    exact,
    hardened,
    items,
    number,
    softened,
    token_f1,
)
from genenv_core.types import Verdict
from tests.mutations import mutation

KIT_JUDGES = "genenv_core/domains/kit/judges.py"

RIGHT = Verdict(1.0, True)
METRES = {"m": 1, "km": 1000, "ft": 0.3048}
LENGTH = partial(number, wanted=3500, unit="m", units=METRES)
LETTERS = {"A": "Oslo", "B": "Bern", "I": "Lima"}


def wrong(failure: str, reward: float = 0.0) -> Verdict:
    return Verdict(reward, False, failure)


@mutation(
    "3.5 is 35 to exact", KIT_JUDGES, 'return folded.strip(_QUOTES).rstrip(".!?").strip(_QUOTES)',
    'return folded.strip(_QUOTES).replace(".", "").strip(_QUOTES)',
)  # fmt: skip
@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ("oslo", RIGHT),
        (' "Oslo". ', RIGHT),
        ("**Oslo!**", RIGHT),
        ("3.5", RIGHT),
        ("35", wrong("wrong_answer")),
        ("Oslo, Bern", wrong("wrong_answer")),
        (" .", wrong("no_answer")),
    ],
)
def test_exact(answer: str, verdict: Verdict) -> None:
    assert exact(answer, "Oslo", "3.5") == verdict


@mutation(
    "a number without its unit is right", KIT_JUDGES, "if known and said is None:", "if False:"
)
@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ("3500 m", RIGHT),
        ("3.5 km", RIGHT),
        ("it is 3,500m.", RIGHT),
        (r"\boxed{3.5\text{ km}}", RIGHT),
        ("3.5e3 m", RIGHT),
        ("7000/2 m", RIGHT),
        ("3500", wrong("unit_missing")),
        ("3500 mm", wrong("wrong_unit")),
        ("3500 M", wrong("wrong_unit")),
        ("-3500 m", wrong("wrong_number")),
        ("3501 m", wrong("wrong_number")),
        ("3500 m or 3600 m", wrong("wrong_number")),
        ("3500f1e7c", wrong("no_number")),
        ("m", wrong("no_number")),
        ("", wrong("no_number")),
    ],
)
def test_number_with_units(answer: str, verdict: Verdict) -> None:
    assert LENGTH(answer) == verdict


def test_the_only_unit_is_the_wanted_one_without_a_table() -> None:
    assert number("3500 m", 3500, unit="m").success
    assert not number("3.5 km", 3500, unit="m").success
    assert number("3500 of them", 3500).success and not number("3500th", 3500).success
    assert number("3.5 km", 3500.0, units={"": 1, **METRES}).success


def test_a_number_is_as_near_as_the_author_says() -> None:
    assert number("0.3", 0.1 + 0.2).success and not number("0.30000001", 0.3).success
    assert not number("123456789013", 123456789012).success  # 8e-12 of it
    assert number("101", 100, rel_tol=0.01).success
    assert not number("101.01", 100, rel_tol=0.01).success
    assert number("0.02 km", 0, unit="m", units=METRES, abs_tol=20).success
    assert not number("0.021 km", 0, unit="m", units=METRES, abs_tol=20).success
    assert number("1/3", Fraction(1, 3)).success and not number("0.333", Fraction(1, 3)).success


def test_what_an_author_gets_wrong_raises() -> None:
    with pytest.raises(ValueError, match="unit 'yd' is none of m, km, ft: add it"):
        number("1 yd", 1, unit="yd", units=METRES)
    with pytest.raises(ValueError, match="'C' is none of the options A, B, I"):
        choice("C", "C", LETTERS)


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ("nuts, bolts", RIGHT),
        ("Bolts and nuts.", RIGHT),
        ("- nuts\n- bolts\n- nuts", RIGHT),
        ("1. nuts\n2) bolts", RIGHT),
        ('["bolts", "nuts"]', RIGHT),
        ("{nuts; bolts}", RIGHT),
        ("nuts", wrong("wrong_items", 2 / 3)),
        ("nuts, bolts, gears, lamps", wrong("wrong_items", 2 / 3)),
        ("gears", wrong("wrong_items")),
        ("", wrong("no_answer")),
        ("nuts," * 2000, wrong("too_many_items")),
    ],
)
def test_a_set(answer: str, verdict: Verdict) -> None:
    assert items(answer, ["nuts", "Bolts"]) == verdict


def test_duplicates_and_order_count_where_the_author_says() -> None:
    bag = partial(items, wanted=["a", "b", "b"], duplicates=True)
    assert bag("b, a, b").success and bag("a, b") == wrong("wrong_items", 0.8)
    row = partial(items, wanted=["a", "b", "c"], ordered=True)
    assert row("a, b, c") == RIGHT and row("a, c, b") == wrong("wrong_items", 2 / 3)
    assert not row("a, b, c, c").success
    assert items("[]", []) == RIGHT and not items("a", []).success


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ("the town of sven is oslo", RIGHT),
        ("Town of Sven: Oslo", Verdict(8 / 9, True)),
        ("the town of sven is bern", wrong("wrong_words", 0.8)),
        ("bern", wrong("wrong_words")),
        ("", wrong("no_answer")),
    ],
)
def test_token_f1(answer: str, verdict: Verdict) -> None:
    assert token_f1(answer, "oslo", "the town of sven is oslo") == verdict


@mutation(
    "token F1 drops the point of a number", KIT_JUDGES,
    "best_token_f1(numbers_as_words(answer), [numbers_as_words(one) for one in references])",
    "best_token_f1(answer, list(references))",
)  # fmt: skip
@mutation(
    "words with another number are a success", KIT_JUDGES,
    "same = any(_numbers(answer) == _numbers(one) for one in references)", "same = True",
)  # fmt: skip
def test_words_with_other_numbers_are_no_success() -> None:
    """The similarity alone drops the point of 3.5, and the sign of -3."""
    assert token_f1("35 m", "3.5 m") == wrong("wrong_words", 0.5)
    assert token_f1("-3 m", "3 m") == wrong("wrong_words", 0.5)
    assert token_f1("1,000.50 m, or so", "1000.5m, or so") == RIGHT
    assert token_f1("a b c d e f g 2", "a b c d e f g 1", success=0.8).failure == "wrong_number"


@mutation(
    "who names both choices is right", KIT_JUDGES, 'return Verdict(0.0, False, "several_choices")',
    'return _all_or_nothing(wanted in named, "several_choices")',
)  # fmt: skip
@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ("B", RIGHT),
        ("(b)", RIGHT),
        ("B) Bern", RIGHT),
        ("bern", RIGHT),
        ("I think it is Bern", wrong("several_choices")),
        ("the answer is **B**.", RIGHT),
        ("it is a town in b", wrong("no_choice")),
        ("A", wrong("wrong_choice")),
        ("A or B", wrong("several_choices")),
        ("Oslo, Bern", wrong("several_choices")),
        ("none", wrong("no_choice")),
        ("", wrong("no_choice")),
    ],
)
def test_a_choice(answer: str, verdict: Verdict) -> None:
    assert choice(answer, "B", LETTERS) == verdict


@mutation("a choice is never guessed", KIT_JUDGES, "return 1 / len(set(options))", "return 0.0")
def test_the_chance_of_a_choice_is_one_of_its_options() -> None:
    assert chance(("yes", "no")) == 0.5 and chance(LETTERS) == 1 / len(LETTERS)
    with pytest.raises(ValueError, match="two options or more, not 1"):
        chance(("yes", "yes"))


def test_yes_or_no() -> None:
    said = partial(choice, wanted="no", options=("yes", "no"))
    assert said("No, it cannot.") == RIGHT and said("No.") == RIGHT
    assert said("Nothing") == wrong("no_choice") and said("yes and no") == wrong("several_choices")


@mutation(
    "a wrong answer earns as much as a right one", KIT_JUDGES, "most * soft.reward", "soft.reward"
)
@mutation(
    "no answer earns a part", KIT_JUDGES,
    'if strict.success or strict.failure.startswith("no_"):', "if strict.success:",
)  # fmt: skip
def test_a_wrong_answer_earns_a_part_and_no_answer_nothing() -> None:
    assert softened(RIGHT, Verdict(0.2, False, "x")) == RIGHT
    assert softened(wrong("wrong_number"), Verdict(0.5, True)) == wrong("wrong_number", 0.45)
    assert softened(wrong("wrong_number"), RIGHT).reward < 1
    assert softened(wrong("no_number"), Verdict(0.5, True)) == wrong("no_number")
    assert hardened(wrong("wrong_words", 0.8)) == wrong("wrong_words")
    assert hardened(Verdict(0.9, True)) == RIGHT


JUDGES: list[Callable[[str], Verdict]] = [
    lambda text: exact(text, "a"),
    LENGTH,
    lambda text: items(text, ["a", "b"]),
    lambda text: items(text, ["a", "b"], ordered=True),
    lambda text: token_f1(text, "a b 1"),
    lambda text: choice(text, "B", LETTERS),
]


@given(st.text() | st.text('[{"ab1.,;\n-*()}', max_size=200))
def test_no_answer_raises_and_rewards_are_shares(text: str) -> None:
    for judge in JUDGES:
        verdict = judge(text)
        assert 0 <= verdict.reward <= 1 and bool(verdict.failure) != verdict.success
    for extract in (answers.marked_answer, answers.last_line, answers.last_number):
        assert isinstance(extract(text), str)


@pytest.mark.parametrize(
    ("text", "marked", "line", "last"),
    [
        ("so\nFinal answer: 3 km\n", "3 km", "3 km", "3 km"),
        (r"\boxed{\frac{1}{2}} of 3", r"\frac{1}{2}", r"\frac{1}{2}", "1/2"),
        ("<answer>a 1 b</answer>", "a 1 b", "a 1 b", "1 b"),
        ("<think>Final answer: 9</think>1 or\n2 km \n", "1 or\n2 km", "2 km", "2 km"),
        ("Final answer: 9</think> 7", "7", "7", "7"),
        ("<think>Final answer: 9", "", "", ""),
        ("it is <think>1</think> 7", "it is <think>1</think> 7", "it is <think>1</think> 7", "7"),
        ("", "", "", ""),
    ],
)
def test_where_the_answer_is(text: str, marked: str, line: str, last: str) -> None:
    assert answers.marked_answer(text) == marked
    assert answers.last_line(text) == line
    assert answers.last_number(text) == last
