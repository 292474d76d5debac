"""`make verify-learning`: does co-evolution pay? `genenv compare` on the quickstart, and more.

The comparison decides which arm is better. From the first arm's runs this command reads whether the
curriculum did what it should. It fails where a condition is not met.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flows.evidence.playing import play_comparison
from genenv_core.algorithm.paired import Decision
from genenv_core.compare.claim import CLAIM, FIGURE
from genenv_core.evidence.learning import HEADER, ROWS, RunSummary, expectations, summary
from genenv_core.storage.sql.catalog import query
from genenv_core.storage.sql.sources import open_tables
from genenv_core.storage.store.local import LocalStore

BEGIN, END = "<!-- claim: written by `make claim` -->", "<!-- end of the claim -->"
"""The lines of a README between which a claim goes."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare the arms, print the runs and each condition; exit with 1 where one is not met.

    Raises ValueError for a README without the marks, before it plays any run.
    """
    parser = argparse.ArgumentParser(prog="python -m flows.evidence.learning", description=__doc__)
    parser.add_argument("--seeds", default="100-109")
    parser.add_argument("--arms", default="genenv,random,static")
    parser.add_argument("--root", type=Path, default=Path("genenv-data/verify-learning"))
    parser.add_argument("--jobs", default="2")
    parser.add_argument("--readme", type=Path, help="put the claim and its figure in here")
    options = parser.parse_args(arguments)
    if options.readme:
        with_claim(options.readme, "")  # fails now rather than after an hour
    values = play_comparison(
        ["quickstart", "--arms", options.arms, "--seeds", options.seeds,
         "--set", "tracking.enabled=false"],
        root=options.root, pages=options.root / "page", jobs=options.jobs,
    )  # fmt: skip
    if options.readme:
        publish(options.root / "page", options.readme)
    by_arm: dict[str, list[RunSummary]] = {}
    for run in values["runs"]:
        by_arm.setdefault(run["arm"], []).append(read_summary(options.root, run))
    for arm, summaries in by_arm.items():
        print(f"\n{arm}\n{HEADER}")
        for one in summaries:
            print(one.line)
    sys.exit(1 if judge(values, next(iter(by_arm.values()))) else 0)


def read_summary(root: Path, run: Mapping[str, Any]) -> RunSummary:
    """Return the summary of a run of a comparison: one of its result's `runs`."""
    with open_tables(LocalStore(root), [run["run_id"]]) as connection:
        rows = query(connection, ROWS).to_dicts()
    return summary(run["seed"], rows, run["spent"])


def publish(pages: Path, readme: Path) -> None:
    """Put the claim of a comparison into a README, and its figure into docs/ beside that."""
    place = Path("docs") / FIGURE
    text = (pages / CLAIM).read_text(encoding="utf-8").replace(f"({FIGURE})", f"({place})")
    readme.write_text(with_claim(readme, text), encoding="utf-8")
    (readme.parent / place).write_bytes((pages / FIGURE).read_bytes())


def with_claim(readme: Path, claim: str) -> str:
    """Return a README's text with this claim between its marks; raises ValueError without them."""
    before, begin, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{readme}: a line {BEGIN} and a line {END} say where the claim goes")
    return f"{before}{BEGIN}\n{claim}{END}{after}"


def judge(values: Mapping[str, Any], own: Sequence[RunSummary]) -> int:
    """Print each condition and whether it is met; return how many are not.

    `own` are the first arm's runs.
    """
    checks = {
        f"{verdict['words']} (wanted: better)": verdict["decision"] == Decision.BETTER
        for verdict in values["verdicts"]
        if verdict["measure"] == values["measure"]
    }
    checks |= expectations(own)
    print()
    for text, met in checks.items():
        print(f"{'met' if met else 'NOT':5s} {text}")
    return sum(not met for met in checks.values())


if __name__ == "__main__":
    main()
