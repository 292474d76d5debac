"""Numbers in texts.

Invariants: the usual spellings are read exactly; what could be read in two ways is no number; a
number in a word is told apart; units are whole words of the author's own table; no text raises or
takes long.
"""

from __future__ import annotations

import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genenv_core.domains.kit.texts.numbers import LONGEST, exactly, last_quantity, quantities
from tests.mutations import mutation

NUMBERS = "genenv_core/domains/kit/texts/numbers.py"


@mutation("a decimal comma is read as two numbers", NUMBERS, "(?<![\\w.,'’/])", "(?<![\\w.])")
@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("3.5 km", ["3.5"]),
        ("-3, +4 and −5", ["-3", "4", "-5"]),
        (".5 and 0.", ["0.5", "0"]),
        ("1,234,567.89", ["1234567.89"]),
        ("1 234 567", ["1", "234", "567"]),
        ("1\u202f234 or 1\u00a0234 or 1'234", ["1234", "1234", "1234"]),
        ("1.5e3 2E-2", ["1500", "0.02"]),
        ("1.5 × 10^3, 2*10**-2, 3x10^{2}, 4·10⁻¹", ["1500", "0.02", "300", "0.4"]),
        ("3/4 and 1 1/2, -1 1/2", ["3/4", "3/2", "-3/2"]),
        (r"$\frac{3}{4}$ and 1.5 \times 10^{3} and 1{,}000\,\text{m}", ["3/4", "1500", "1000"]),
        ("x=-3; 10-12; 5 - 3; (-2)", ["-3", "10", "12", "5", "3", "-2"]),
        ("the end is 7.", ["7"]),
        ("7, 8, and 9", ["7", "8", "9"]),
        ("1/0 1/0.0", []),
        ("1,5 and 1.2.3 and 3/4/2020 and 1,23,4", []),
        ("12½ 10² 1" + "0" * 80, []),
        ("x2 v1_3", []),
        ("none", []),
    ],
)
def test_numbers_are_read_exactly(text: str, values: list[str]) -> None:
    assert [found.value for found in quantities(text)] == [Fraction(value) for value in values]


@pytest.mark.parametrize("text", ["5f1e7c", "5th", "3_a", "2x"])
def test_a_number_in_a_word_is_told_apart(text: str) -> None:
    found = last_quantity(text)
    assert found is None or found.is_part_of_a_word


@mutation(
    "metres a second are metres", NUMBERS,
    'if first in ("/", "·", "*") and second.isalnum():', "if False:",
)  # fmt: skip
@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("3 m", "m"),
        ("3m.", "m"),
        ("**3** `km`", "km"),
        ("3 km/h", "km/h"),
        ("3 m/s", None),
        ("3 mm", None),
        ("3 m2", None),
        ("3 m²", None),
        ("3 M", None),
        ("3", None),
        ("3\nm", None),
        ("50 %", "%"),
        (r"\boxed{50\%}", "%"),
        ("$3", "$"),
        ("US$ 3", "$"),
        ("-$3", None),
        ("m 3", None),
        ("5% 3", None),
    ],
)
def test_a_unit_is_a_whole_word_of_the_table(text: str, unit: str | None) -> None:
    found = last_quantity(text)
    assert found is not None and found.unit(["m", "km", "km/h", "%", "$"]) == unit


def test_floats_are_the_decimals_that_they_are_written_as() -> None:
    assert exactly(0.1) == Fraction(1, 10) and exactly(3) == 3 and exactly(1e-7) * 10**7 == 1
    with pytest.raises(ValueError):
        exactly(float("nan"))


@given(st.text() | st.text("0123456789.,'/ -+eE×x*^10{}\\fractimes", max_size=300))
def test_no_text_raises(text: str) -> None:
    assert all(isinstance(found.value, Fraction) for found in quantities(text))


@pytest.mark.parametrize(
    "piece", ["1", "1,111", "1 1/", "1/", "1e", "1 × 10^", "\\frac{", "\u00a0111", "-", "1."]
)
def test_no_text_takes_long(piece: str) -> None:
    begun = time.process_time()
    last_quantity(piece * (2 * LONGEST // len(piece)))
    assert time.process_time() - begun < 2
