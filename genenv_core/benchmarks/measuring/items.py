"""Turns items of a benchmark into tasks, judges attempts at them, and computes the metrics."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from random import Random
from typing import Any, cast

import polars as pl

from genenv_core.benchmarks.predictions import SHOWN, JudgedLine, Result, Results
from genenv_core.benchmarks.protocol import ItemVerdict
from genenv_core.benchmarks.summary import Metric
from genenv_core.benchmarks.training.benchmark_domain import ITEM, BenchmarkDomain
from genenv_core.config.sections.benchmark import BenchmarkConfig
from genenv_core.domains.protocol import Domain
from genenv_core.domains.steps import reason
from genenv_core.epoch.rows import data_tasks, frame
from genenv_core.errors import ConfigError, DataError, one_line
from genenv_core.types import Cause, JsonObject, Task, TaskDraft, TaskSource


def benchmark_of(domain: Domain) -> BenchmarkDomain[Any]:
    """Return the domain as a benchmark; raises ConfigError for any other."""
    if isinstance(domain, BenchmarkDomain):
        return cast("BenchmarkDomain[Any]", domain)
    raise ConfigError(f"domain.name {domain.name!r} is no benchmark: it has nothing to measure by")


def items_of(
    domain: BenchmarkDomain[Any], asked: BenchmarkConfig, seed: int, scope: str
) -> pl.DataFrame:
    """Return rows of `tasks` for the asked items, in the official order.

    With `asked.precision` they are in the random order in which the stage attempts them.

    Args:
        domain: the benchmark.
        asked: which categories; how many items of each, or of all together.
        seed: draws as many items as `asked.draw` says, and their order.
        scope: that of the ids of the tasks.
    """
    counts = Counter[str]()
    chosen = list[TaskDraft]()
    for draft in domain.attempted():
        counts[draft.family] += 1
        wanted = not asked.categories or draft.family in asked.categories
        if wanted and (asked.items is None or counts[draft.family] <= asked.items):
            chosen.append(draft)
    if asked.draw is not None or asked.precision is not None:
        most = len(chosen) if asked.draw is None else min(asked.draw, len(chosen))
        places = Random(seed).sample(range(len(chosen)), most)
        chosen = [chosen[at] for at in (places if asked.precision else sorted(places))]
    return data_tasks({TaskSource.BENCHMARK: chosen}, scope)


def check_categories(domain: BenchmarkDomain[Any], asked: Collection[str]) -> None:
    """Raise ConfigError for a category that the download lacks."""
    known = dict.fromkeys(domain.suite.items.values())
    for name in asked:
        if name not in known:
            raise ConfigError(
                f"benchmark.categories {name!r}: the download of {domain.name} has "
                f"{', '.join(known)}"
            )


def judged(
    domain: BenchmarkDomain[Any],
    tasks: Sequence[Task],
    traces: pl.DataFrame,
    tokens: pl.DataFrame,
) -> pl.DataFrame:
    """Return `benchmark_items` for attempts, in the order of `traces`.

    An attempt that broke off through the agent, as by too long a prompt, is wrong. One that its
    environment or the engine broke has no verdict.
    """
    task_of = {task.task_id: task for task in tasks}
    messages = dict(tokens.select("trace_id", "messages").iter_rows())
    rows: list[dict[str, Any]] = []
    for trace in traces.iter_rows(named=True):
        task = task_of[trace["task_id"]]
        verdict = _verdict(domain, task, messages[trace["trace_id"]])
        if trace["error"]:
            valid = False if Cause(trace["cause"]).judges else None
            verdict = ItemVerdict(valid, reason=reason(trace["error"]), parts=verdict.parts)
        rows.append(
            {
                "trace_id": trace["trace_id"],
                "task_id": trace["task_id"],
                "benchmark": domain.name,
                "item": task.draft.spec[ITEM],
                "category": task.draft.family,
                "sample_index": trace["sample_index"],
                "mode": domain.mode,
                "valid": verdict.valid,
                "score": verdict.score,
                "reason": "" if verdict.valid else verdict.reason,
                "parts": _json(verdict.parts),
            }
        )
    return frame("benchmark_items", rows)


def result_of(domain: BenchmarkDomain[Any], verdicts: pl.DataFrame) -> Result:
    """Return the result of rows of `benchmark_items`; raises DataError without rows."""
    results = Results(domain.suite)
    for line in stored_lines(verdicts, keyed=False):
        results.add(line)
    if verdicts.is_empty():
        raise DataError(f"benchmark {domain.name}: the download has no item that can be attempted")
    return results.of_keys()[0]


def stored_lines(verdicts: pl.DataFrame, *, keyed: bool) -> Iterator[JudgedLine]:
    """Yield the verdicts in `benchmark_items`, each under its sample's number where `keyed`."""
    for row in verdicts.iter_rows(named=True):
        item, parts = row["item"], json.loads(row["parts"])
        verdict = ItemVerdict(row["valid"], row["score"], row["reason"], parts)
        yield JudgedLine(0, item, row["sample_index"] if keyed else None, verdict, item)


def headline_of(domain: BenchmarkDomain[Any], result: Result) -> Metric:
    """Return the headline of a result, without a value where it has no scored item."""
    name = domain.benchmark.headline
    found = [one for one in result.metrics if one.name == name]
    return found[0] if found else Metric(name, 0, None, None, None)


def metric_rows(domain: BenchmarkDomain[Any], result: Result) -> pl.DataFrame:
    """Return `benchmark_metrics`, with a row of the headline also where it has no scored item."""
    headline, metrics = headline_of(domain, result), list(result.metrics)
    if headline not in metrics:
        metrics.append(headline)
    rows = [
        {
            "benchmark": domain.name,
            "metric": one.name,
            "headline": one.name == headline.name,
            "items": one.items,
            "not_run": sum(result.not_run.values()),
            "value": one.value,
            "low": one.low,
            "high": one.high,
            "missing": ", ".join(one.missing),
        }
        for one in metrics
    ]
    return frame("benchmark_metrics", rows)


def stored_result(facts: Mapping[str, Any], metrics: pl.DataFrame) -> Result:
    """Rebuild the result that a stage stored, from its facts and rows of `benchmark_metrics`."""
    found = [
        Metric(
            row["metric"],
            row["items"],
            row["value"],
            row["low"],
            row["high"],
            tuple(name for name in row["missing"].split(", ") if name),
        )
        for row in metrics.iter_rows(named=True)
    ]
    return Result(None, facts["attempts"], facts["items"], found, facts["not_run"])


def _verdict(domain: BenchmarkDomain[Any], task: Task, messages: str) -> ItemVerdict:
    try:
        return domain.verdict(task.draft, json.loads(messages))
    except Exception as error:  # a fault of a scorer, which must not cost the other attempts
        return ItemVerdict(None, reason=f"the scorer failed: {type(error).__name__}: {error}")


def _json(parts: JsonObject) -> str:
    """Return parts as JSON, or as text where they hold a number that JSON lacks."""
    try:
        return json.dumps(parts, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        return json.dumps({"parts": one_line(repr(parts), SHOWN)})
