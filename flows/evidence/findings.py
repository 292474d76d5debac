"""`make findings`: play the comparisons, check the six findings, write a page, print the verdicts.

The root keeps every run, so the same command continues, and checks again in seconds.
"""

from __future__ import annotations

import argparse
import json
import resource
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from flows.evidence.playing import play_comparison
from flows.evidence.specs import Spec, specs
from genenv_core import __version__
from genenv_core.algorithm.stats import mean
from genenv_core.compare.results import read_results
from genenv_core.config.comparison import Budget, Measure, planned_runs, read_comparison
from genenv_core.evidence.finding import Finding
from genenv_core.evidence.gradients import Norms, norms, proposition_1
from genenv_core.evidence.page import as_values, render
from genenv_core.evidence.ranking import OUTCOMES, error_rates, theorem_1
from genenv_core.evidence.runs import Run, calibration, efficiency, emergence, superiority
from genenv_core.storage.sql.catalog import query
from genenv_core.storage.sql.sources import open_tables
from genenv_core.storage.store.local import LocalStore

GRADIENT_RUNS, GRADIENT_EPOCHS = 3, 3
"""Runs, and first epochs of each, whose groups finding 5 takes: tasks of every success rate."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Play the comparisons, check the findings and print the verdicts."""
    parser = argparse.ArgumentParser(prog="python -m flows.evidence.findings", description=__doc__)
    parser.add_argument("--root", type=Path, default=Path("genenv-data/findings"))
    parser.add_argument(
        "--seeds",
        default="100-107",
        help="a range, its first three for alphas; four arms take eight",
    )
    parser.add_argument("--epochs", default="5,5", help="of desk and of trails")
    parser.add_argument("--jobs", default="2")
    options = parser.parse_args(arguments)
    first, last = map(int, options.seeds.split("-"))
    desk, trails = map(int, options.epochs.split(","))
    root = options.root.resolve()
    root.mkdir(parents=True, exist_ok=True)
    planned = specs(root, tuple(range(first, last + 1)), (desk, trails))
    results = {
        spec.name: play_comparison([str(spec.write(root))], root=root, pages=root / spec.name,
                            jobs=options.jobs)
        for spec in planned
    }  # fmt: skip
    findings = check(results, root)
    page = _write(findings, root, planned)
    _print(findings, page)


def check(results: dict[str, dict[str, Any]], root: Path) -> list[Finding]:
    """Return the six findings from the results of the comparisons."""
    store = LocalStore(root)
    domains = {name: results[name] for name in ("desk", "trails")}
    own = [run for name in domains for run in _runs(store, name, name, results[name]["measure"])]
    alphas = _runs(store, "desk", "alphas", results["alphas"]["measure"])
    found = [emergence(own), calibration(own, alphas), superiority(domains, own), efficiency(own)]
    gradients: dict[str, Norms] = {}
    errors: dict[str, dict[int, tuple[float, float]]] = {}
    families: dict[str, str] = {}
    for name, result in domains.items():
        genenv = [one["run_id"] for one in result["runs"] if one["arm"] == "genenv"]
        gradients[name] = {}
        for run in genenv[:GRADIENT_RUNS]:
            with open_tables(store, [run]) as connection:
                for rate, more in norms(connection, store.home, GRADIENT_EPOCHS).items():
                    gradients[name].setdefault(rate, []).extend(more)
        with open_tables(store, genenv[:1]) as connection:
            outcomes = {
                row["family"]: row["outcomes"] for row in query(connection, OUTCOMES).to_dicts()
            }
        errors[name] = error_rates(outcomes, alpha=0.5, beta=8.0, seed=0)
        families[name] = ", ".join(
            f"{family} {mean([float(one) for one in tried]):.2f}"
            for family, tried in outcomes.items()
        )
    return [*found, proposition_1(gradients), theorem_1(errors, families)]


def _runs(store: LocalStore, domain: str, name: str, measure: str) -> list[Run]:
    """Read the runs of a comparison as its page does."""
    comparison = read_comparison(str(store.root / f"{name}.yaml"), {})
    found: list[Run] = []
    for run in planned_runs(comparison, store.uri):
        with open_tables(store, [run.run_id]) as connection:
            (played,) = read_results(connection, [run])
        curve = [
            (float(point.spent[Budget.ROLLOUTS]), point.gains[Measure(measure)])
            for point in played.points
        ]
        p_hat, tokens = (
            [row[column] for row in played.epochs if row[column] is not None]
            for column in ("p_hat", "response_tokens")
        )
        alpha = run.config.curriculum.alpha
        found.append(Run(domain, run.arm, run.seed, alpha, p_hat, tokens, curve))
    return found


def _write(findings: Sequence[Finding], root: Path, planned: Sequence[Spec]) -> Path:
    """Write the page and its values as JSON; return the page."""
    setting = "; ".join(
        f"{spec.name}: preset {spec.preset}, {spec.epochs} epochs, seeds {spec.seeds[0]} to "
        f"{spec.seeds[-1]}"
        for spec in planned
    )
    html = render(
        findings,
        setting=setting,
        pages=[spec.name for spec in planned],
        now=datetime.now(UTC),
        version=__version__,
    )
    (root / "index.html").write_text(html, encoding="utf-8")
    values = json.dumps(as_values(findings), indent=1, ensure_ascii=False)
    (root / "findings.json").write_text(values + "\n", encoding="utf-8")
    return root / "index.html"


def _print(findings: Sequence[Finding], page: Path) -> None:
    console = Console(width=110)
    for one in findings:
        table = Table(*one.head, title=f"{one.number}. {one.title}", title_justify="left")
        for row in one.rows:
            table.add_row(*row)
        console.print(table)
        console.print(f"{one.word}: {one.verdict}\n", markup=False, highlight=False)
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    minutes = sum(one.ru_utime + one.ru_stime for one in used) / 60
    console.print(f"{minutes:.0f} CPU minutes in this call; page: {page}", markup=False)


if __name__ == "__main__":
    main()
