"""The views on the domains of a run.

Invariants: in a run of one domain every task is of it, and the numbers are those of the whole run;
in a run of several each number is of one domain alone, computed here without the views' SQL; a
rejected text is of the domain that it was asked for.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from genenv_core.algorithm.chance import skill_of
from tests.mutations import mutation
from tests.unit.builders_tables import world
from tests.unit.schemas.test_views import Tables, ask

DOMAINS = "schemas/views/domains.sql"


def of_two() -> Tables:
    """Return the tables of a run of the domains a and b: every second task is of b."""
    tables = world(6)
    even = pl.col("generation_index") % 2 == 0
    family = pl.when(even).then(pl.lit("a/k1")).otherwise(pl.lit("b/k/2"))
    tasks = tables["tasks"].with_columns(
        family=pl.when(pl.col("valid")).then(family).otherwise(None)
    )
    b = tasks.filter(family="b/k/2", source="base").head(1)
    assert b.is_empty()  # the only base task is of a
    tasks = tasks.with_columns(chance=pl.col("generation_index") / 16)
    runs = tables["runs"].with_columns(domain=pl.lit("several"))
    return tables | {"tasks": tasks, "runs": runs}


def names(tables: Tables) -> pl.DataFrame:
    return tables["tasks"].select(
        "task_id", domain=pl.col("family").str.split("/").list.first().fill_null("a")
    )


@mutation(
    "a rejected text is of no domain", "schemas/views/task_domains.sql",
    "split_part(coalesce(t.family, b.family), '/', 1)", "split_part(t.family, '/', 1)",
)  # fmt: skip
def test_a_task_is_of_the_domain_before_its_family(tmp_path: Path) -> None:
    tables = of_two()
    found = ask(tmp_path, tables, "SELECT task_id, domain FROM task_domains ORDER BY task_id")
    assert not tables["tasks"].filter(~pl.col("valid")).is_empty()
    assert found.equals(names(tables).sort("task_id"))


@mutation(
    "base tasks count among the new ones", DOMAINS,
    "count(*) FILTER (WHERE g.source <> 'base') AS tasks", "count(*) AS tasks",
)  # fmt: skip
@mutation(
    "the skill of a domain counts guesses", DOMAINS,
    "greatest(0, (a.p_hat - a.chance) / (1 - a.chance))", "a.p_hat",
)  # fmt: skip
@mutation(
    "the band of a domain has no edge", DOMAINS, "x.distance <= s.k_min + 1e-9", "x.distance < 1",
)  # fmt: skip
def test_each_number_is_of_one_domain(tmp_path: Path) -> None:
    tables = of_two()
    found = ask(tmp_path, tables, "SELECT * FROM domains ORDER BY epoch, domain")
    assert found.select("epoch", "domain").rows() == [(e, d) for e in range(3) for d in "ab"]
    named = names(tables)
    scores = tables["task_scores"].join(named, on="task_id")
    band = tables["selections"].filter(update="env").select("group_id", "distance")
    scores = scores.join(band, on="group_id", how="left")
    wrote = tables["tasks"].filter(source="generated").join(named, on="task_id")
    shown = tables["evaluations"].join(named, on="task_id")
    for row in found.iter_rows(named=True):
        own = {"epoch": row["epoch"], "domain": row["domain"]}
        new = scores.filter(pl.col("source") == "generated", **own)
        test = shown.filter(split="test", **own)
        sampled, greedy = test.filter(mode="sampled"), test.filter(mode="greedy")
        assert row["test_tasks"] == test["task_id"].n_unique()
        assert row["sampled"] == pytest.approx(sampled["success"].mean())
        assert row["greedy"] == (pytest.approx(greedy["success"].mean()) if len(greedy) else None)
        assert row["answer_probability"] == pytest.approx(sampled["answer_probability"].mean())
        if not row["epoch"]:
            assert row["written"] is None and row["tasks"] is None
            continue
        texts = wrote.filter(**own)
        assert (row["written"], row["valid"]) == (len(texts), texts["valid"].sum())
        base = scores.filter(source="base", **own)
        if new.is_empty() and base.is_empty():
            assert row["tasks"] is None
            continue
        assert (row["tasks"], row["base_tasks"]) == (len(new), len(base))
        assert row["attempts"] == new["n"].sum()
        assert row["p_hat"] == pytest.approx(new["successes"].sum() / new["n"].sum())
        assert row["skill"] == pytest.approx(skill_of(new, tables["tasks"]))
        assert row["share_signal"] == pytest.approx(1 - new["zero_signal"].mean())  # type: ignore[operator]
        within = new.filter(pl.col("distance") <= 0.25 + 1e-9)
        assert row["share_in_band"] == pytest.approx(len(within) / len(new))


def test_a_run_of_one_domain_has_one_row_an_epoch(tmp_path: Path) -> None:
    tables = world()
    found = ask(tmp_path, tables, "SELECT * FROM domains ORDER BY epoch")
    assert found.select("epoch", "domain").rows() == [(epoch, "desk") for epoch in range(3)]
    whole = ask(tmp_path, tables, "SELECT * FROM curriculum ORDER BY epoch")
    same = ["tasks", "attempts", "p_hat", "share_in_band", "difficulty"]
    assert found.filter(pl.col("epoch") > 0).select(same).equals(whole.select(same))


@mutation(
    "equal tasks of a fixed set count twice", "schemas/views/fixed_sets.sql",
    "count(DISTINCT t.fingerprint)", "count(t.fingerprint)",
)  # fmt: skip
@mutation(
    "a fixed set that nobody played is left out", "schemas/views/fixed_sets.sql",
    "LEFT JOIN attempted", "INNER JOIN attempted",
)  # fmt: skip
def test_fixed_sets_count_different_tasks_that_were_attempted(tmp_path: Path) -> None:
    tables = of_two()
    attempted = tables["task_scores"].select("task_id")
    twice = attempted.join(names(tables).filter(domain="b"), on="task_id")["task_id"].head(2)
    assert len(twice) == 2
    prints = pl.when(pl.col("task_id").is_in(twice.implode())).then(pl.lit("same"))
    tasks = tables["tasks"].with_columns(fingerprint=prints.otherwise(pl.col("fingerprint")))
    runs = tables["runs"].with_columns(fixed_tasks=pl.lit('{"b":40,"c":7}'))
    found = ask(tmp_path, tables | {"tasks": tasks, "runs": runs}, "SELECT * FROM fixed_sets")
    played = attempted.join(tasks, on="task_id").join(
        names(tables).filter(domain="b"), on="task_id", how="semi"
    )
    assert found.sort("domain").rows() == [
        ("run-a", "genenv", "b", 40, played["fingerprint"].n_unique()),
        ("run-a", "genenv", "c", 7, 0),
    ]
    written = tables["runs"].with_columns(fixed_tasks=pl.lit(None, pl.String))
    assert ask(tmp_path, tables | {"runs": written}, "SELECT * FROM fixed_sets").is_empty()
