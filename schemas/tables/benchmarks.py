"""Tables of models that are measured: on a benchmark, or on a task set that is certified."""

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
    missing: str = fields.note("Metrics that it needs and that have no item; '' without any.")


class CertifiedSets(
    Table,
    key=("name",),
    rules={
        "low and high are both null or neither": pl.col("low").is_null()
        == pl.col("high").is_null(),
        "without an interval nobody can say": pl.col("low").is_not_null()
        | (pl.col("verdict") == "cannot say"),
    },
):
    """One row a check of a task set that a model attempted: a flaw, or what its attempts show."""

    name: str = fields.name(
        "Flaw that was looked for, any_flaw for all of them, or check of the attempts: reachable, "
        "separating, headroom, variance, signal, floor, chance."
    )
    estimate: float = fields.number(
        "Share of the tasks that have the flaw, or what the check measures; null where nothing "
        "can be known.",
        nullable=True,
    )
    low: float = fields.number("Lower end of the 95 % interval.", nullable=True)
    high: float = fields.number("Upper end of that interval.", nullable=True)
    n: int = fields.count("Tasks or groups that it is over.")
    unit: str = fields.name("What n counts.")
    wanted: float = fields.number("Limit that the estimate is compared with; 0 for a flaw.")
    at_least: bool = fields.flag("Whether that limit is the least that passes, not the most.")
    verdict: str = fields.name("pass, fail or cannot say: on which side the interval lies.")
    detail: str = fields.note("A remark, or the first flaw found; '' without either.")


class SetFlaws(
    Table,
    key=("task_id", "flaw"),
    rules={
        "detail is set exactly when the flaw was found": (pl.col("detail") == "")
        == pl.col("passed")
    },
):
    """One row a task and flaw: what playing it without a model found, in a certified task set."""

    task_id: str = fields.ident("Task that was checked.")
    set_name: str = fields.name("Its set: base, heldout, generated (a folder) or taskset.")
    flaw: str = fields.name("Flaw that was looked for.")
    passed: bool = fields.flag("Whether the flaw was not found.")
    detail: str = fields.note("What was found, for people; '' when passed.")
