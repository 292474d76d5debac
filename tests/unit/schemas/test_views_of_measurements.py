"""The view on how far measurements are, and what the lists of runs say of it.

Invariants: a run that trains has no row; a measurement counts items with a verdict and those that
there are, not epochs; a certified set counts its tasks; before the first result nothing is known.
"""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from flows.view.pages.runs import line_of
from genenv_core.report.outcome import how_far
from tests.mutations import mutation
from tests.unit.builders_tables import world
from tests.unit.schemas.test_views import Tables, ask

VIEW = "schemas/views/measured.sql"


def measuring(benchmark: dict[str, str] | None, result: str) -> Tables:
    """Return the tables of a run with this section `benchmark`, and with results of one table."""
    tables = world()
    config = json.dumps({"benchmark": benchmark or {}})
    tables["runs"] = tables["runs"].with_columns(config=pl.lit(config))
    for name in ("benchmark_metrics", "certified_sets"):
        if name != result:
            tables[name] = tables[name].clear()
    return tables


@mutation(
    "a run that trains measures a model", VIEW, "IS NOT NULL\n", "IS NOT NULL OR true\n",
)  # fmt: skip
@mutation(
    "items without a verdict are left out of all", VIEW, "items + not_run AS", "items AS",
)  # fmt: skip
@mutation(
    "every metric of a benchmark counts its items", VIEW, "    WHERE headline\n", "",
)  # fmt: skip
def test_a_measurement_counts_items_with_a_verdict(tmp_path: Path) -> None:
    (metric,) = world()["benchmark_metrics"].filter("headline").to_dicts()
    for model in ({"model": "run:a"}, {"url": "http://x/v1"}):
        tables = measuring(model, "benchmark_metrics")
        whole = tables["benchmark_metrics"].with_columns(
            items=pl.when("headline").then("items").otherwise(999), not_run=pl.lit(5, pl.Int64)
        )
        found = ask(tmp_path, tables | {"benchmark_metrics": whole}, "FROM measured")
        assert found.rows() == [("run-a", "genenv", metric["items"], metric["items"] + 5)]
    trains = measuring(None, "benchmark_metrics")
    assert ask(tmp_path, trains, "FROM measured").is_empty()


def test_a_certified_set_counts_its_tasks(tmp_path: Path) -> None:
    tables = measuring({"model": "run:a"}, "certified_sets")
    rows = tables["certified_sets"]
    all_flaws = rows.head(1).with_columns(name=pl.lit("any_flaw"), n=pl.lit(7, pl.Int64))
    tables["certified_sets"] = pl.concat([rows.filter(pl.col("name") != "any_flaw"), all_flaws])
    assert ask(tmp_path, tables, "FROM measured").rows() == [("run-a", "genenv", 7, 7)]
    waits = ask(tmp_path, measuring({"model": "run:a"}, "nothing"), "FROM measured")
    assert waits.rows() == [("run-a", "genenv", 0, None)]


@mutation(
    "a measurement has none of one epoch", "genenv_core/report/outcome.py",
    'if row.get("items") is not None:', "if False:",
)  # fmt: skip
@pytest.mark.parametrize(
    ("items", "of_items", "said"),
    [(30, 125, "30 of 125 items"), (0, None, "no item yet"), (None, None, "0 of 1")],
)
def test_the_lists_say_how_far_a_measurement_is(
    items: int | None, of_items: int | None, said: str
) -> None:
    row = {"epochs": 0, "planned": 1, "items": items, "of_items": of_items}
    assert how_far(row) == line_of(row)["epochs"] == said
