"""Tables of benchmarks: the verdict on every attempt, and what the verdicts add up to."""

from __future__ import annotations

import polars as pl

from schemas.tables import fields
from schemas.tables.fields import Table


class BenchmarkItems(
    Table,
    key=("trace_id",),
    rules={
        "only a valid attempt has score 1": pl.col("valid").fill_null(False)
        | (pl.col("score") < 1),
    },
):
    """One row an attempt of a model at an item of a benchmark."""

    trace_id: str = fields.ident("The attempt; its trace is in traces.", unique=True)
    task_id: str = fields.ident("The item as a task of this run.")
    benchmark: str = fields.name("Name of the benchmark.")
    item: str = fields.name("Id of the item in the benchmark.")
    category: str = fields.name("Category, level or split of the item.")
    sample_index: int = fields.count("Index among the attempts at the item, from 0.")
    mode: str = fields.name("How it was judged.")
    valid: bool = fields.flag(
        "The benchmark's verdict; null when the attempt could not be judged.", nullable=True
    )
    score: float = fields.share("The benchmark's score of the attempt.")
    reason: str = fields.text("Why it is not valid; '' when it is.")
    parts: str = fields.json_object("How the verdict came about, JSON object.")


class BenchmarkMetrics(Table, key=("metric",)):
    """One row a metric of a benchmark, over all items attempted."""

    benchmark: str = fields.name("Name of the benchmark.")
    metric: str = fields.name("Name of the metric.")
    headline: bool = fields.flag("Whether it stands for the benchmark in a table of several.")
    items: int = fields.count("Items that it is over.")
    not_run: int = fields.count("Items of the whole benchmark that have no verdict.")
    value: float = fields.share(
        "The metric; null where it has no item, or a metric that it is a mean of.", nullable=True
    )
    low: float = fields.share("Lower end of the 95 % bootstrap interval.", nullable=True)
    high: float = fields.share("Upper end of that interval.", nullable=True)
    missing: str = fields.note("Metrics without an item that it would need; '' for none.")
