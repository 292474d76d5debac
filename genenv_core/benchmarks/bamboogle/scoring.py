"""Compares short answers with a gold answer: exact match, F1, containment, and dates.

Normalisation and F1 are those of SQuAD's evaluation (Rajpurkar et al., arXiv 1606.05250): lower
case, no punctuation, no articles, one space between words. The rules for domains
(`genenv_core.domains.kit.texts.similarity`) depart from it for scripts other than English; a
benchmark must not.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from typing import Any

from dateutil import parser as dates

from genenv_core.benchmarks.protocol import ItemVerdict
from genenv_core.domains.kit.marked_answers import LONGEST, extracted

SHOWN = 1000
"""Characters of an answer that a verdict shows."""

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_SPREADSHEET = re.compile(r"\d{1,2}-[A-Z][a-z]{2}-\d{2}")


def normalized(text: str) -> str:
    """Return a text as SQuAD compares it."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def exact_match(answer: str, gold: str) -> bool:
    """Return whether both are the same after normalising."""
    return normalized(answer) == normalized(gold)


def f1(answer: str, gold: str) -> float:
    """Return the harmonic mean of precision and recall over words, in [0, 1]."""
    said, wanted = normalized(answer).split(), normalized(gold).split()
    common = (Counter(said) & Counter(wanted)).total()
    return 2 * common / (len(said) + len(wanted)) if common else 0.0


def contains(answer: str, gold: str) -> bool:
    """Return whether the gold answer's words stand in the answer, in order and side by side."""
    wanted = normalized(gold)
    return bool(wanted) and f" {wanted} " in f" {normalized(answer)} "


def is_spreadsheet_date(gold: str) -> bool:
    """Return whether a gold answer is a date such as 29-May-32, as spreadsheets write them."""
    return bool(_SPREADSHEET.fullmatch(gold))


def same_date(answer: str, gold: str) -> bool:
    """Return whether an answer says the day of a spreadsheet's date, with any century."""
    if len(answer) > LONGEST:
        return False
    wanted = dates.parse(gold)
    try:
        # Two defaults: a part that the answer lacks cannot be right with both.
        said = {
            dates.parse(answer, default=dates.parse(day), ignoretz=True)
            for day in ("1 Jan 1901", "2 Feb 02")
        }
    except Exception:  # dateutil names two errors and raises others too, such as of decimal
        return False
    return all(
        (day.day, day.month, day.year % 100) == (wanted.day, wanted.month, wanted.year % 100)
        for day in said
    )


def judged(gold: str, prediction: Any, mode: str) -> ItemVerdict:
    """Return the verdict on an answer's text; anything but text is wrong."""
    if not isinstance(prediction, str):
        kind = type(prediction).__name__
        return ItemVerdict(False, reason=f"the prediction is no text but {kind}")
    answer = prediction if mode == "strict" else extracted(prediction)
    matched = exact_match(answer, gold)
    dated = is_spreadsheet_date(gold.strip()) and same_date(answer, gold)
    valid = matched or (mode == "lenient" and dated)
    parts = {
        "answer": answer[:SHOWN],
        "exact_match": matched,
        "f1": f1(answer, gold),
        "contains": contains(answer, gold),
        "lenient": matched or dated,
    }
    return ItemVerdict(valid, float(valid), "" if valid else "not the gold answer", parts)
