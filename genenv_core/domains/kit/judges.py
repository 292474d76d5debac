"""Judges an answer: exact text, numbers with units, sets and lists, words, a choice.

A judge takes the agent's answer and the right one. It returns a verdict: a reward in [0, 1],
whether that is a success, and a few words on a failure. No judge raises on anything that an agent
says. Each reads one answer: the last of several numbers. A text that names several choices has no
answer.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from fractions import Fraction
from typing import cast

from genenv_core.domains.kit.texts.numbers import (
    LONGEST,
    exactly,
    last_quantity,
    numbers_as_words,
    quantities,
)
from genenv_core.domains.kit.texts.similarity import best_token_f1
from genenv_core.types import Verdict

SIMILAR = 0.85
"""Least token F1 of a success: one wrong word of five gives .8, one word too many .91."""

CLOSE = 1e-9
"""Relative error up to which a number is equal to a right answer that is a float."""

MOST_ITEMS = 1000

_QUOTES = "\"'`*_“”‘’«»()[]{}<>$ \t\n"
_BETWEEN = re.compile(r"\s*(?:[,;\n]|\s(?:and|&)\s)\s*")
_BULLET = re.compile(r"^(?:[-*•]|[0-9]{1,3}[.)])\s+")
_CORRECT, _EMPTY = "", "no_answer"


def plain(text: str) -> str:
    """Return a text in the form that `exact` compares.

    Unicode form NFKC, lower case, one blank between words, no quotes, brackets or full stop around.
    Signs inside the text stay: 3.5 is not 35.
    """
    folded = " ".join(unicodedata.normalize("NFKC", text[-LONGEST:]).casefold().split())
    return folded.strip(_QUOTES).rstrip(".!?").strip(_QUOTES)


def exact(answer: str, *accepted: str) -> Verdict:
    """Return whether an answer equals one of `accepted` after `plain`."""
    said = plain(answer)
    if not said:
        return Verdict(0.0, False, _EMPTY)
    return _all_or_nothing(said in {plain(one) for one in accepted}, "wrong_answer")


def number(
    answer: str,
    wanted: int | float | Fraction,
    *,
    unit: str = "",
    units: Mapping[str, int | float | Fraction] | None = None,
    rel_tol: float | None = None,
    abs_tol: float = 0.0,
) -> Verdict:
    """Return whether the last number of an answer is the wanted one.

    Args:
        answer: the agent's text.
        wanted: the right number.
        unit: the unit of `wanted`; '' for a number without one.
        units: how much of a common base each unit is, such as {"m": 1, "km": 1000}; then 3.5 km
            is 3500 m. Without it the answer must have `unit` itself.
        rel_tol: the allowed error, as a share of `wanted`; None: 1e-9 for a float, 0 for the
            others.
        abs_tol: the allowed error, in `unit`; the larger of the two counts.

    Raises:
        ValueError: `units` does not have `unit`, or a number is not finite.
    """
    known = units if units is not None else ({unit: 1} if unit else {})
    if unit and unit not in known:
        raise ValueError(f"unit {unit!r} is none of {', '.join(known)}: add it to units")
    found = last_quantity(answer)
    if found is None:
        return Verdict(0.0, False, "no_number")
    said = found.unit(known) if known else None
    if found.is_part_of_a_word and said is None:
        return Verdict(0.0, False, "no_number")
    if known and said is None:
        bare = not found.after.strip(_QUOTES + ".")
        return Verdict(0.0, False, "unit_missing" if bare else "wrong_unit")
    scale = exactly(known[unit]) if unit else Fraction(1)
    value = found.value * (exactly(known[said]) if said else 1)
    right = exactly(wanted) * scale
    share = (CLOSE if isinstance(wanted, float) else 0.0) if rel_tol is None else rel_tol
    allowed = max(exactly(share) * abs(right), exactly(abs_tol) * scale)
    return _all_or_nothing(abs(value - right) <= allowed, "wrong_number")


def items(
    answer: str, wanted: Sequence[str], *, ordered: bool = False, duplicates: bool = False
) -> Verdict:
    """Return how much of a list an answer has: F1 over its items; all and no others is a success.

    `plain` comes before the comparison. In a list that is `ordered`, the reward is
    `difflib.SequenceMatcher.ratio`, 2M / T with M items in common order and T in both lists, and
    duplicates count. In any other list they count where `duplicates` says so.
    """
    said, right = split_items(answer), [plain(one) for one in wanted]
    if not said:
        return Verdict(float(not right), not right, "" if not right else _EMPTY)
    if len(said) > MOST_ITEMS:
        return Verdict(0.0, False, "too_many_items")
    if ordered:
        near = SequenceMatcher(None, said, right, autojunk=False).ratio()
        return Verdict(near, said == right, _CORRECT if said == right else "wrong_items")
    left, other = Counter(said), Counter(right)
    if not duplicates:
        left, other = Counter(left.keys()), Counter(other.keys())
    near = 2 * (left & other).total() / (left.total() + other.total())
    return Verdict(near, left == other, _CORRECT if left == other else "wrong_items")


def split_items(text: str) -> list[str]:
    """Return the items of an answer: a JSON list, or texts between commas, lines or "and"."""
    text = text[-LONGEST:].strip()
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, list):
        found = [str(one) for one in cast("list[object]", value)]
    else:
        lines = [_BULLET.sub("", line.strip()) for line in text.strip("[]{}()").splitlines()]
        found = _BETWEEN.split("\n".join(lines))
    return [one for one in (plain(item.removeprefix("and ")) for item in found) if one]


def token_f1(answer: str, *references: str, success: float = SIMILAR) -> Verdict:
    """Return the similarity to the closest reference; from `success` on it is a success.

    The similarity is SQuAD's F1 over words (`genenv_core.domains.kit.texts.similarity`). It drops
    punctuation, so this judge compares numbers by value, and a success has all numbers of a
    reference and no other.
    """
    near = best_token_f1(numbers_as_words(answer), [numbers_as_words(one) for one in references])
    if not near:
        return Verdict(0.0, False, _EMPTY if not plain(answer) else "wrong_words")
    if near < success:
        return Verdict(near, False, "wrong_words")
    same = any(_numbers(answer) == _numbers(one) for one in references)
    return Verdict(near, same, _CORRECT if same else "wrong_number")


def choice(answer: str, wanted: str, options: Sequence[str] | Mapping[str, str]) -> Verdict:
    """Return whether an answer names the wanted option, and no other.

    Options are words, such as yes and no, or labels with their texts, such as {"A": "Oslo"}; then
    an answer may give the text in place of the label. In a sentence, a label of one letter counts
    only as a capital. Raises ValueError when `wanted` is no option.
    """
    texts = options if isinstance(options, Mapping) else dict.fromkeys(options, "")
    if wanted not in texts:
        raise ValueError(f"{wanted!r} is none of the options {', '.join(texts)}")
    said = answer[-LONGEST:].strip()
    whole = plain(said)
    if not whole:
        return Verdict(0.0, False, "no_choice")
    alone = {label for label, text in texts.items() if whole in (plain(label), plain(text))}
    named = alone or {
        label
        for label, text in texts.items()
        if _names(said, label) or (text and _names(said, text))
    }
    if not named:
        return Verdict(0.0, False, "no_choice")
    if len(named) > 1:
        return Verdict(0.0, False, "several_choices")
    return _all_or_nothing(named == {wanted}, "wrong_choice")


def chance(options: Sequence[str] | Mapping[str, str]) -> float:
    """Return the probability that a guess at one of these options is right: 1 / their number.

    As the `chance` of a task it keeps success by guessing from counting as skill. Raises ValueError
    for fewer than two options, where there is nothing to choose.
    """
    if len(set(options)) < 2:
        raise ValueError(f"a choice needs two options or more, not {len(set(options))}")
    return 1 / len(set(options))


def softened(strict: Verdict, soft: Verdict, *, most: float = 0.9) -> Verdict:
    """Return the strict verdict, with a share of the soft reward for a wrong answer.

    The share is `most`, so a wrong answer earns less than a right one. A text without an answer (a
    failure that begins with no_) earns nothing.
    """
    if strict.success or strict.failure.startswith("no_"):
        return strict
    return replace(strict, reward=max(strict.reward, most * soft.reward))


def hardened(verdict: Verdict) -> Verdict:
    """Return a verdict whose reward is 1 for a success and 0 for a failure."""
    return replace(verdict, reward=float(verdict.success))


def _all_or_nothing(right: bool, failure: str) -> Verdict:
    return Verdict(float(right), right, _CORRECT if right else failure)


def _numbers(text: str) -> Counter[Fraction]:
    return Counter(found.value for found in quantities(text))


def _names(text: str, option: str) -> bool:
    flags = 0 if len(option) == 1 else re.IGNORECASE
    return bool(re.search(rf"(?<!\w){re.escape(option)}(?!\w)", text, flags))
