"""Soft similarity of free-form answers.

Invariants: golden numbers by hand; in [0, 1]; symmetric; 1.0 against itself; blind to case,
punctuation, articles, blanks and word order; 0.0 without a shared word.
"""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from genenv_core.domains.kit.texts.similarity import best_token_f1, normalize_answer, token_f1
from tests.mutations import mutation

# The first text of a new checkout reads all of Unicode, which takes a busy machine seconds.
unhurried = settings(suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize(
    ("answer", "reference", "expected"),
    [
        ("Paris", "paris.", 1.0),
        ("the city of Paris", "Paris", 0.5),  # P 1/3, R 1/1
        ("new york city", "York New", 0.8),  # P 2/3, R 2/2
        ("a a b", "a b b", 2 / 3),  # articles go: {b} against {b, b}: P 1, R 1/2 -> 2/3
        ("red blue", "green", 0.0),
        ("", "", 1.0),
        ("the", "", 1.0),
        ("", "Paris", 0.0),
        ("Paris", " . ", 0.0),
        ("x x y", "x y y", 2 / 3),  # two shared of three each
    ],
)
def test_golden_numbers(answer: str, reference: str, expected: float) -> None:
    assert token_f1(answer, reference) == pytest.approx(expected)


@unhurried
@given(st.text(max_size=60), st.text(max_size=60))
def test_bounded_and_symmetric(left: str, right: str) -> None:
    value = token_f1(left, right)
    assert 0.0 <= value <= 1.0
    assert value == token_f1(right, left)


@unhurried
@given(st.text(max_size=60))
def test_every_answer_is_like_itself(text: str) -> None:
    assert token_f1(text, text) == 1.0


@given(st.lists(st.sampled_from(["bolts", "nuts", "seven", "9"]), min_size=1, max_size=8))
def test_case_articles_punctuation_and_order_do_not_count(words: list[str]) -> None:
    dressed = "The  " + ",\t".join(word.upper() for word in reversed(words)) + "!"
    assert token_f1(" ".join(words), dressed) == 1.0


def test_normalisation_reaches_other_scripts() -> None:
    assert normalize_answer("«Ｐaris», the 1st—") == ["paris", "1st"]


def test_best_of_several_references() -> None:
    assert best_token_f1("york", ["paris", "new york"]) == pytest.approx(2 / 3)
    assert best_token_f1("york", []) == 0.0


@mutation(
    "signs are parts of words", "genenv_core/domains/kit/texts/similarity.py",
    'unicodedata.category(chr(code))[0] in "PS"', 'unicodedata.category(chr(code))[0] in "P"',
)  # fmt: skip
def test_every_mark_and_sign_is_left_out_and_nothing_else() -> None:
    letters = [chr(code) for code in range(0x3100) if not chr(code).isspace()]
    for char in letters:
        whole = unicodedata.normalize("NFKC", f"x{char}").casefold()
        kept = "".join(one for one in whole if unicodedata.category(one)[0] not in "PS")
        assert normalize_answer(f"x{char}") == kept.split(), repr(char)
