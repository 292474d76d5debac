"""Reads numbers in the texts of people and models, exactly and without evaluating anything.

`-1,234.5`, `1.5e3`, `1.5 × 10^3`, `3/4`, `1 1/2`, and LaTeX's `\\frac{3}{4}` are numbers. A text
with two readings is no number: `1,5`, `1.2.3`, `3/4/2020`. A sign counts where no word or number
stands right before it, so `10-12` ends with 12. Values are fractions, so `0.1` is a tenth.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

LONGEST = 10_000
"""Characters at the end of a text to search for numbers."""

MOST_DIGITS = 60
"""Most digits of a number; a longer run of digits is no number."""

_GROUP = ",'’\u00a0\u2009\u202f"  # between thousands
_PLAIN = rf"(?:[0-9]{{1,3}}(?:[{_GROUP}][0-9]{{3}})+|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+"
_NUMBER = re.compile(
    rf"""
    (?<![\w.,'’/])
    (?P<sign>[-+−])?
    (?:(?P<whole>[0-9]+)\ (?=[0-9]+/[0-9]))?
    (?P<above>{_PLAIN})
    (?:
        [eE](?P<power>[-+−]?[0-9]{{1,3}})
        | \s?[×x*·]\s?10(?:\^|\*\*)[{{(]?(?P<raised>[-+−]?[0-9]{{1,3}})[)}}]?
        | \s?[×x*·]\s?10(?P<high>[⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹]{{1,3}})
    )?
    (?:\s?/\s?(?P<below>[0-9]+(?:\.[0-9]+)?))?
    (?![0-9⁰¹²³⁴-⁹¼-¾⅐-⅞]|[.,'’][0-9]|\s?/\s?[0-9])
    """,
    re.X,
)
_HIGH = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_LATEX = (
    (re.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}"), r"\1/\2"),
    (re.compile(r"\\(?:text|mathrm|mbox|operatorname)\s*\{([^{}]*)\}"), r"\1"),
    (re.compile(r"\\(?:times|cdot)\b\s?"), "×"),
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"\\[,;!: ]"), " "),
)
_AROUND = " \t\u00a0\u2009\u202f*_`$\\{}~"
"""Characters that may stand between a number and its unit: blanks and marks of a layout."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number in a text, the text before it, and the rest of its line."""

    value: Fraction
    before: str
    after: str
    spelled: str

    @property
    def text(self) -> str:
        """The number and the rest of its line."""
        return f"{self.spelled}{self.after}".strip()

    @property
    def is_part_of_a_word(self) -> bool:
        """Whether letters follow without a blank, as in 5th or 5f."""
        return self.after[:1].isalpha() or self.after[:1] == "_"

    def unit(self, names: Iterable[str]) -> str | None:
        """Return which of the names is the unit, None where another word or no word follows.

        Letter case counts, as mW is not MW. A currency may also stand before the number.
        """
        rest = self.after.lstrip(_AROUND)
        before = self.before.rstrip(_AROUND.replace("$", ""))
        for name in sorted(names, key=len, reverse=True):
            if rest.startswith(name) and not _goes_on(name, rest[len(name) :]):
                return name
            if _is_currency(name) and before.endswith(name):
                return None if before.removesuffix(name).rstrip()[-1:] in ("-", "−") else name
        return None


def quantities(text: str) -> Iterator[Quantity]:
    """Return the numbers of a text, in order; never raises."""
    text = _without_latex(text)
    for found in _NUMBER.finditer(text):
        value = _value(found.groupdict())
        if value is not None:
            after = text[found.end() :].partition("\n")[0]
            before = text[max(0, found.start() - 8) : found.start()]
            yield Quantity(value, before, after, found[0])


def last_quantity(text: str) -> Quantity | None:
    """Return the last number of a text, None without one."""
    return next(iter([*quantities(text)][::-1]), None)


def numbers_as_words(text: str) -> str:
    """Return a text in which each number is a word of its own, equal for equal values.

    A comparison of words that drops punctuation then takes 3.5 for 7/2, and not for 35.
    """

    def word(found: re.Match[str]) -> str:
        value = _value(found.groupdict())
        if value is None:
            return found[0]
        sign = "minus" if value < 0 else "plus"
        return f" {sign}{abs(value.numerator)}by{value.denominator} "

    return _NUMBER.sub(word, _without_latex(text))


def exactly(number: int | float | Fraction) -> Fraction:
    """Return a number as the fraction that its decimal spelling states: 0.1 is a tenth.

    Raises ValueError for NaN and infinities.
    """
    return Fraction(repr(number)) if isinstance(number, float) else Fraction(number)


def _without_latex(text: str) -> str:
    text = text[-LONGEST:]
    for pattern, plain in _LATEX:
        text = pattern.sub(plain, text)
    return text


def _value(parts: Mapping[str, str | None]) -> Fraction | None:
    """Return the value of a match of `_NUMBER`; None for too many digits or a division by zero."""
    if sum(len(part or "") for part in parts.values()) > MOST_DIGITS:
        return None
    above = parts["above"] or ""
    value = Fraction(above.translate({ord(mark): None for mark in _GROUP}))
    power = parts["power"] or parts["raised"] or (parts["high"] or "").translate(_HIGH)
    if power:
        value *= Fraction(10) ** int(power.replace("−", "-"))
    if below := parts["below"]:
        if not Fraction(below):
            return None
        value = value / Fraction(below)
    if whole := parts["whole"]:
        value += int(whole)
    return -value if parts["sign"] in ("-", "−") else value


def _goes_on(name: str, rest: str) -> bool:
    """Return whether a unit's name is only the beginning of a longer one: m of mm, m² or m/s."""
    first, second = rest[:1], rest[1:2]
    if first in ("/", "·", "*") and second.isalnum():
        return True
    return bool(first) and (first in "^²³_" or (name[-1].isalnum() and first.isalnum()))


def _is_currency(name: str) -> bool:
    return all(unicodedata.category(char) == "Sc" for char in name) and bool(name)
