"""A comparison of runs of several domains, domain by domain.

Invariants: gains of a domain are over its own test tasks, read at the same epoch as those of all;
in each measure the pairs of all domains are one family for Holm's adjustment, whose size is said;
verdicts on all test tasks do not change; a comparison of one domain says nothing of domains.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from genenv_core.algorithm.paired import Decision, holm
from genenv_core.compare.claim import claim
from genenv_core.compare.judging import judge
from genenv_core.compare.page import PlayedComparison, as_values, render
from genenv_core.compare.results import Played, read_results
from genenv_core.config.comparison import Measure, planned_runs
from genenv_core.storage.sql.catalog import connect
from tests.mutations import mutation
from tests.unit.builders_tables import world
from tests.unit.compare.builders_compare import comparison, simulated
from tests.unit.compare.test_compare_page import NOW
from tests.unit.exchange.test_export import stored

JUDGING = "genenv_core/compare/judging.py"
RESULTS = "genenv_core/compare/results.py"
ARMS = {"genenv": 0.1, "random": 0.07, "base": 0.1}
SEVERAL = {"domain": {"name": "several", "options": {"parts": [{"name": "a"}, {"name": "b"}]}}}


def by_domain(seeds: int = 10) -> list[Played]:
    """Return runs in whose domain `a` the effects are, and in `b` nothing but noise."""
    found = simulated(ARMS, seeds)
    for run, other in zip(found, simulated(dict.fromkeys(ARMS, 0.0), seeds), strict=True):
        for point, flat in zip(run.points, other.points, strict=True):
            point.by_domain.update({"a": point.gains, "b": flat.gains})
    return found


def made_of(runs: list[Played], seeds: int = 10) -> PlayedComparison:
    asked = comparison(list(ARMS), range(seeds), set=SEVERAL)
    planned = planned_runs(asked, "/data")
    return PlayedComparison(asked, planned, runs, judge(asked, runs), [], "/data")


@mutation(
    "each pair in a domain is a family of its own", JUDGING,
    "zip(gaps, compare(named).values(), strict=True)",
    "zip(gaps, [compare({k: v})[k] for k, v in named.items()], strict=True)",
)  # fmt: skip
def test_each_domain_is_compared_in_one_family_a_measure() -> None:
    judged = judge(comparison(list(ARMS), range(10)), by_domain())
    found = judged.of_domains(judged.measure)
    assert [(one.other, one.domain) for one in found] == [
        ("random", "a"), ("base", "a"), ("random", "b"), ("base", "b"),
    ]  # fmt: skip
    assert [one.difference.p_holm for one in found] == holm([one.difference.p for one in found])
    assert found[0].difference.decision is Decision.BETTER
    assert found[0].words.startswith("genenv > random in a: +")
    assert found[2].difference.decision is Decision.TIE
    assert judged.family == "4 comparisons (2 other arms in 2 domains) are one family for Holm"
    assert len(judged.by_domain) == 4 * len(Measure)
    assert judged.verdicts == judge(comparison(list(ARMS), range(10)), simulated(ARMS, 10)).verdicts


@mutation(
    "a domain that some runs lack is compared", JUDGING,
    "if all(set(measures) <= one.by_domain.get(name, {}).keys() for one in readings)", "if name",
)  # fmt: skip
def test_only_domains_of_all_runs_are_compared() -> None:
    runs = by_domain()
    for point in runs[-1].points:
        del point.by_domain["b"]
    assert judge(comparison(list(ARMS), range(10)), runs).by_domain == []
    few = judge(comparison(list(ARMS), range(1)), by_domain(1))
    assert (few.by_domain, few.family) == ([], "")


@mutation(
    "the claim of a domain is that of all", "genenv_core/compare/claim.py",
    "[verdict for verdict in judged.by_domain if verdict.domain == domain]", "judged.verdicts",
)  # fmt: skip
@mutation(
    "a claim leaves domains out", "genenv_core/compare/claim.py",
    "tables += [", "_ = [",
)  # fmt: skip
def test_a_claim_has_a_table_of_all_and_one_a_domain() -> None:
    made = made_of(by_domain())
    text = claim(made, version="1")
    tables = [one.splitlines() for one in text.split("\n\n") if one.startswith("| genenv against")]
    assert [one[0].split(" | ")[0] for one in tables] == [
        "| genenv against", "| genenv against, in a", "| genenv against, in b",
    ]  # fmt: skip
    for domain, table in zip("ab", tables[1:], strict=True):
        own = [one for one in made.judged.by_domain if one.domain == domain]
        numbers = [
            f"{100 * one.difference.mean:+.1f} [{100 * one.difference.low:.1f}, "
            f"{100 * one.difference.high:.1f}]"
            for one in own
        ]
        assert len(table) == 4 and all("\n".join(table).count(one) >= 1 for one in numbers)
    assert "Of the domains, 4 comparisons (2 other arms in 2 domains) are one family" in text
    plain = comparison(list(ARMS), range(10))
    runs = simulated(ARMS, 10)
    one = replace(made, comparison=plain, results=runs, judged=judge(plain, runs))
    said = claim(one, version="1")
    assert said.count("| genenv against") == 1 and "domain" not in said


def test_page_and_values_have_them_and_those_of_one_domain_do_not() -> None:
    made = made_of(by_domain())
    values: dict[str, Any] = json.loads(json.dumps(as_values(made)))
    assert values["by_domain"]["family"] == 4
    shown = re.sub(r"<[^>]*>|\s+", " ", render(made, now=NOW, version="0"))
    assert "the 4 comparisons (2 other arms in 2 domains) are one family for Holm's" in shown
    for one in values["by_domain"]["verdicts"]:
        assert one["domain"] in ("a", "b")
        assert f"{one['p']:.3f}" in shown and f"{one['p_holm']:.3f}" in shown
    assert values["runs"][0]["by_domain"]["a"] == values["runs"][0]["gains"]
    assert "JOIN task_domains" in shown
    plain = comparison(list(ARMS), range(10))
    runs = simulated(ARMS, 10)
    one = replace(made, comparison=plain, runs=planned_runs(plain, "/data"), results=runs)
    one = replace(one, judged=judge(plain, runs))
    assert '"by_domain"' not in json.dumps(as_values(one))
    assert "domain" not in render(one, now=NOW, version="0").split('id="arms"')[0].lower()


@mutation(
    "gains of a domain are over the tasks of all", RESULTS,
    "JOIN task_domains AS d USING (run_id, task_id)\n",
    "JOIN (SELECT DISTINCT run_id, domain FROM task_domains) AS d USING (run_id)\n",
)  # fmt: skip
@mutation(
    "gains of a domain are since no epoch", RESULTS,
    "AND o.epoch = 0\n", "AND o.epoch <= n.epoch\n",
)  # fmt: skip
@pytest.mark.parametrize("name", ["several", "desk"])
def test_gains_are_over_the_test_tasks_of_the_domain(tmp_path: Path, name: str) -> None:
    tables = world(6)
    third = pl.col("task_id").rank("ordinal") % 3 == 0
    tables["tasks"] = tables["tasks"].with_columns(
        family=pl.when(third).then(pl.lit("a/x")).otherwise(pl.lit("b/x"))
    )
    tables["runs"] = tables["runs"].with_columns(domain=pl.lit(name))
    varied = pl.int_range(pl.len()) * 7 % 5 < 1 + pl.col("epoch")
    tables["evaluations"] = tables["evaluations"].with_columns(success=varied)
    config = SimpleNamespace(epochs=2, domain=SimpleNamespace(name=name))
    run: Any = SimpleNamespace(arm="genenv", seed=0, run_id="run-a", config=config)
    with connect([stored(tmp_path / "tables", tables)]) as con:
        (found,) = read_results(con, [run])
        results = con.execute("SELECT * FROM test_results").pl()
    if name != "several":
        assert all(point.by_domain == {} for point in found.points)
        return
    family = dict(tables["tasks"].select("task_id", "family").iter_rows())
    value = {(r["epoch"], r["task_id"], r["measure"]): r["value"] for r in results.to_dicts()}
    compared = 0
    for point in found.points:
        for label in ("a", "b"):
            for measure in point.gains:
                gaps = [
                    value[point.epoch, task, str(measure)] - start
                    for (epoch, task, of), start in value.items()
                    if epoch == 0 and of == measure and family[task] == f"{label}/x"
                ]
                gain = sum(gaps) / len(gaps)
                assert point.by_domain[label][measure] == pytest.approx(gain)
                compared += gain != 0
    assert compared > 2
