"""Judges a file of predictions line by line, and adds up the verdicts.

A line is `{"id": ..., "key": ..., "prediction": ...}`. The key separates several answers to one
item: a model's name, a sample's number. Verdicts repeat it, and each key has its own result. No
line stops the others: one that cannot be scored has `valid` None and a reason.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

from genenv_core.benchmarks.lines import read_line
from genenv_core.benchmarks.protocol import ItemVerdict, Suite
from genenv_core.benchmarks.summary import Metric, Tally
from genenv_core.errors import one_line
from genenv_core.types import JsonObject

SHOWN = 120
"""Characters of a value that a reason shows."""


@dataclass(frozen=True, slots=True)
class JudgedLine:
    """The verdict on one line; `id` and `key` are the line's own, None where it has none.

    `failed` says that the scorer itself raised an error, which is a fault of genenv. `unread` says
    that the line lacks an id of the data or a prediction.
    """

    line: int
    id: Any
    key: Any
    verdict: ItemVerdict
    item: str | None = None
    failed: bool = False
    unread: bool = False

    def row(self) -> str:
        """Return the line of a file of verdicts, as JSON."""
        verdict = self.verdict
        row = {"id": self.id, "key": self.key, "valid": verdict.valid, "score": verdict.score}
        row |= {"reason": verdict.reason} if verdict.reason else {}
        row |= {"parts": verdict.parts}
        return f"{{{', '.join(f'{json.dumps(name)}: {_dumped(row[name])}' for name in row)}}}"


def _dumped(value: Any) -> str:
    """Return a value as JSON, or as short text where it holds NaN or infinity, which JSON lacks."""
    try:
        return json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return json.dumps(one_line(repr(value), SHOWN))


@dataclass(frozen=True, slots=True)
class Result:
    """The sum of the predictions of one key.

    `items` are those with a scored prediction; `not_run` counts the others by group.
    """

    key: Any
    predictions: int
    items: int
    metrics: list[Metric]
    not_run: dict[str, int]


def judge_lines(lines: Iterable[bytes], suite: Suite, mode: str) -> Iterator[JudgedLine]:
    """Yield the verdict on each line of a file of predictions; skip blank lines."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _judged(number, line, suite, mode)


class Results:
    """Adds up verdicts, key by key; memory grows with the items, not with the lines."""

    def __init__(self, suite: Suite) -> None:
        self._suite = suite
        self._keys: dict[str, Any] = {}
        self._tallies: dict[str, Tally] = defaultdict(Tally)
        self._counts: Counter[str] = Counter()
        self._run: dict[str, set[str]] = defaultdict(set)
        self._groups = Counter(suite.items.values())

    def add(self, judged: JudgedLine) -> None:
        """Add a verdict; ignore one without an item of the data."""
        if judged.item is None:
            return
        name = repr(judged.key)
        self._keys.setdefault(name, judged.key)
        self._counts[name] += 1
        if judged.verdict.valid is not None:
            measures = self._suite.measures(judged.item, judged.verdict)
            self._tallies[name].add(judged.item, measures)
            self._run[name].add(judged.item)

    def of_keys(self) -> list[Result]:
        """Return the result of each key, in the order of their first lines."""
        return [
            Result(
                key,
                self._counts[name],
                len(self._run[name]),
                self._tallies[name].metrics(self._suite.composites),
                self._not_run(self._run[name]),
            )
            for name, key in self._keys.items()
        ]

    def _not_run(self, run: set[str]) -> dict[str, int]:
        done = Counter(self._suite.items[item] for item in run)
        left = {group: count - done[group] for group, count in self._groups.items()}
        return {group: count for group, count in left.items() if count}


def as_json(result: Result) -> JsonObject:
    """Return a result as plain JSON."""
    key: Any = json.loads(_dumped(result.key))
    # Field by field: a file may have a key for each line, and `asdict` copies each name.
    return {
        "key": key,
        "predictions": result.predictions,
        "items": result.items,
        "metrics": [
            {
                "name": one.name,
                "items": one.items,
                "value": one.value,
                "low": one.low,
                "high": one.high,
                "missing": list(one.missing),
            }
            for one in result.metrics
        ],
        "not_run": result.not_run,
    }


def _judged(number: int, line: bytes, suite: Suite, mode: str) -> JudgedLine:
    try:
        read = read_line(line)
    except ValueError as error:
        return _unread(number, f"is no JSON: {error}")
    if not isinstance(read, dict):
        return _unread(number, f"is no object: {one_line(repr(read), SHOWN)}")
    values = cast("JsonObject", read)
    ident, key = values.get("id"), values.get("key")
    item = str(ident) if isinstance(ident, int | str) and not isinstance(ident, bool) else None
    if item is None or item not in suite.items:
        return _unread(
            number, f"names no item of the data: {one_line(repr(ident), SHOWN)}", ident, key
        )
    if "prediction" not in values:
        return _unread(number, "has no field prediction", ident, key, item)
    try:
        verdict = suite.judge(item, values["prediction"], mode)
    except Exception as error:  # `judge` promises not to raise; if it does, only this line fails
        why = _unscored(f"line {number}: the scorer failed: {type(error).__name__}: {error}")
        return JudgedLine(number, ident, key, why, item, failed=True)
    return JudgedLine(number, ident, key, verdict, item)


def _unread(
    number: int, why: str, ident: Any = None, key: Any = None, item: str | None = None
) -> JudgedLine:
    verdict = _unscored(f"line {number} {why}")
    return JudgedLine(number, ident, key, verdict, item, unread=True)


def _unscored(reason: str) -> ItemVerdict:
    return ItemVerdict(None, reason=one_line(reason, 2 * SHOWN))
