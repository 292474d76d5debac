"""Finds whether a training task repeats an item of a benchmark.

A task repeats an item when it shares `WORDS` words in a row with it, says the whole of a shorter
item, or has the same calls as the item's right answer. The comparison takes words in lower case and
without punctuation, and calls as `_spelled` writes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

from genenv_core.types import Call

WORDS = 13
"""The length of a run of words that counts as repeated, as in GPT-3's check (arXiv 2005.14165,
appendix C). An item with fewer words counts as one run."""

LEAST = 5
"""An item with fewer words is compared by its calls alone: too many other texts say the same."""

_WORD = re.compile(r"\w+")


class KnownItems:
    """The items of a benchmark: (id, text, calls of the right answer).

    `form` may hold other texts of the same origin. Then a run of words that one of them has, or
    that two items share, identifies no item: it belongs to the form of the texts.
    """

    def __init__(
        self,
        items: Iterable[tuple[str, str, Sequence[Call]]],
        form: Iterable[str] | None = None,
    ) -> None:
        """Index the items by their runs of words and by their calls."""
        self._runs: dict[int, dict[str, str]] = {}
        self._calls: dict[tuple[str, ...], str] = {}
        shared = set[str]()
        for item, text, calls in items:
            words = _words(text)
            if len(words) >= LEAST:
                length = min(WORDS, len(words))
                runs = self._runs.setdefault(length, {})
                for run in _runs(words, length):
                    if runs.setdefault(run, item) != item:
                        shared.add(run)
            if calls and any(call.arguments for call in calls):
                self._calls.setdefault(_spelled(calls), item)
        if form is not None:
            self._leave_out(form, shared)

    def _leave_out(self, form: Iterable[str], shared: set[str]) -> None:
        """Forget the runs of words in `shared`, and those that a text of `form` has."""
        texts = [_words(text) for text in form]
        for length, runs in self._runs.items():
            said = (run for words in texts for run in _runs(words, length))
            for run in shared.union(said) & runs.keys():
                del runs[run]

    def repeated(self, text: str, calls: Sequence[Call]) -> str:
        """Return which item a task repeats, and how; '' where it repeats no item."""
        words = _words(text)
        for length, runs in sorted(self._runs.items(), reverse=True):
            for run in _runs(words, length):
                if run in runs:
                    return f"{length} words in a row are those of item {runs[run]}"
        item = self._calls.get(_spelled(calls))
        return f"the calls are those of item {item}" if item else ""


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _runs(words: Sequence[str], length: int) -> Iterator[str]:
    for start in range(len(words) - length + 1):
        yield " ".join(words[start : start + length])


def _spelled(calls: Sequence[Call]) -> tuple[str, ...]:
    """Return calls in a form that ignores order, case, punctuation, and 2 against 2.0."""
    return tuple(sorted(json.dumps(_plain([call.name, call.arguments])) for call in calls))


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return "".join(_words(value.replace("_", " ")))
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return sorted(([_plain(name), _plain(one)] for name, one in fields.items()), key=json.dumps)
    if isinstance(value, list | tuple):
        return [_plain(one) for one in cast("Sequence[Any]", value)]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
