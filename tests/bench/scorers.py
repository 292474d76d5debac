"""How fast predictions are scored, beside only reading their lines as JSON.

Gold predictions of the official data go through what `genenv eval` does with each line. Wanted: all
of BFCL's single-turn calls in less than 10 s of CPU.

Run `python -m tests.bench scorers`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from genenv_core.benchmarks.bamboogle.suite import Bamboogle
from genenv_core.benchmarks.bamboogle.suite import load as load_bamboogle
from genenv_core.benchmarks.bfcl.rows import Row
from genenv_core.benchmarks.bfcl.suite import Bfcl
from genenv_core.benchmarks.bfcl.suite import load as load_bfcl
from genenv_core.benchmarks.predictions import Results, judge_lines
from genenv_core.benchmarks.protocol import Suite
from genenv_core.benchmarks.travelplanner.suite import load as load_trips
from tests.unit.benchmarks.bfcl.bfcl_gold import gold_prediction
from tests.unit.benchmarks.data import SHARED

REPETITIONS = 3
Value = TypeVar("Value")


def main() -> None:
    """Print CPU seconds for each benchmark, and the ratio to reading JSON alone."""
    print("\npredictions scored, CPU seconds (least of three)")
    print(
        f"{'benchmark':15s} {'loading':>8s} {'lines':>6s} {'scored':>8s} {'JSON':>8s} {'ratio':>6s}"
    )
    for name, suite, loading, lines in _cases():
        scored = _least(lambda lines=lines, suite=suite: _score(lines, suite))
        read = _least(lambda lines=lines: [json.loads(line) for line in lines])
        print(
            f"{name:15s}{loading:9.2f}{len(lines):9d}{scored:9.3f}{read:9.3f}{scored / read:9.1f}"
        )


def _cases() -> Iterable[tuple[str, Suite, float, list[bytes]]]:
    if not SHARED.is_dir():
        print(f"skipped: no official data in {SHARED}")
        return
    bfcl, loading = _timed(lambda: load_bfcl(SHARED / "bfcl"))
    assert isinstance(bfcl, Bfcl)
    calls = [
        _line(row.id, gold_prediction(row))
        for row in bfcl.rows.values()
        if isinstance(row, Row) and row.gold
    ]
    yield "bfcl", bfcl, loading, calls
    short, loading = _timed(lambda: load_bamboogle(SHARED / "bamboogle"))
    assert isinstance(short, Bamboogle)
    yield "bamboogle", short, loading, [_line(item, gold) for item, gold in short.gold.items()]
    trips, loading = _timed(lambda: load_trips(SHARED / "travelplanner"))
    with (SHARED / "travelplanner" / "train_gold.jsonl").open(encoding="utf-8") as file:
        gold = [json.loads(line) for line in file]
    plans = [_line(f"train/{one['idx']}", one["plan"]) for one in gold]
    yield "travelplanner", trips, loading, plans


def _line(item: str, prediction: object) -> bytes:
    return json.dumps({"id": item, "key": "gold", "prediction": prediction}).encode()


def _score(lines: list[bytes], suite: Suite) -> None:
    results = Results(suite)
    for judged in judge_lines(lines, suite, "official"):
        results.add(judged)


def _timed(work: Callable[[], Value]) -> tuple[Value, float]:
    before = time.process_time()
    return work(), time.process_time() - before


def _least(work: Callable[[], object]) -> float:
    return min(_timed(work)[1] for _ in range(REPETITIONS))
