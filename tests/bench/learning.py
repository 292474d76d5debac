"""`make verify-learning`: does co-evolution pay? `genenv compare` on the quickstart, and more.

The comparison decides which arm is better; what is read here of the first arm's runs says whether
the curriculum did what it is for. What is not met makes the command fail.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genenv_core.algorithm.paired import Decision
from genenv_core.algorithm.stats import mean
from genenv_core.compare.claim import CLAIM, FIGURE
from genenv_core.storage.sql.catalog import query
from genenv_core.storage.sql.sources import open_tables
from genenv_core.storage.store.local import LocalStore
from tests.bench.comparing import compared

LAST, SETTLED = 3, 6
"""Epochs at the end that p_hat is read from, and the epoch from which alpha should be met."""

_ROWS = """
    SELECT v.*, e.mean_response_tokens AS tokens, e.p_hat_written,
        g.gain AS greedy_gain
    FROM evidence AS v JOIN epochs AS e USING (run_id, epoch)
    JOIN test_gains AS g ON g.epoch = v.epoch AND g.measure = 'greedy' ORDER BY v.epoch
"""


@dataclass(frozen=True)
class Result:
    """What one run came to; means are over epochs, tokens those of the first and last epoch."""

    seed: int
    gain: float
    greedy_gain: float
    last_p_hat: float
    last_written: float
    alpha_inside: int
    settled: int
    tokens: tuple[float, float]
    share_signal: float
    weights: tuple[float, float, float]
    rollouts: int
    steps: int


def read_result(root: Path, run: Mapping[str, Any]) -> Result:
    """Return the summary of a run of a comparison."""
    with open_tables(LocalStore(root), [run["run_id"]]) as connection:
        rows = query(connection, _ROWS).to_dicts()
    return summary(run["seed"], rows, run["spent"])


def summary(seed: int, rows: list[dict[str, Any]], spent: Mapping[str, int]) -> Result:
    """Return the summary of a run's epochs, which come in order."""
    settled = [row for row in rows if row["epoch"] >= SETTLED]
    weighed = [row for row in rows if row["effective_rows"]]
    return Result(
        seed=seed,
        gain=rows[-1]["gain"],
        greedy_gain=rows[-1]["greedy_gain"],
        last_p_hat=mean([row["p_hat"] for row in rows[-LAST:]]),
        last_written=mean([row["p_hat_written"] for row in rows[-LAST:]]),
        alpha_inside=sum(bool(row["alpha_inside"]) for row in settled),
        settled=len(settled),
        tokens=(rows[0]["tokens"], rows[-1]["tokens"]),
        share_signal=mean([row["share_signal"] for row in rows]),
        weights=(
            min((row["weight_low"] for row in weighed), default=0.0),
            max((row["weight_high"] for row in weighed), default=0.0),
            mean([row["effective_rows"] / row["env_rows"] for row in weighed]) if weighed else 0.0,
        ),
        rollouts=spent["rollouts"],
        steps=spent["steps"],
    )


def shown(result: Result) -> str:
    """Return the line of a run."""
    low, high, effective = result.weights
    weights = f"{low:.2f}-{high:4.2f} {effective:3.0%}" if high else "-"
    return (
        f"{result.seed:5d}  {result.gain:+.3f}  {result.greedy_gain:+.3f}   {result.last_p_hat:.2f}"
        f"    {result.last_written:.2f}     {result.alpha_inside} of {result.settled}"
        f"   {result.tokens[0]:4.1f} -> {result.tokens[1]:4.1f}   {result.share_signal:.2f}"
        f"    {weights:14s}  {result.rollouts:8d}  {result.steps:5d}"
    )


HEADER = (
    " seed    gain  greedy  p_hat  written  alpha in  tokens         signal  weights, ESS"
    "     rollouts  steps"
)


def expectations(results: Sequence[Result]) -> dict[str, bool]:
    """Return what a co-evolution should do by itself, and whether it did."""
    within = sum(0.4 <= one.last_p_hat <= 0.6 for one in results)
    met = sum(one.alpha_inside for one in results) / sum(one.settled for one in results)
    longer = sum(one.tokens[1] >= 1.4 * one.tokens[0] for one in results)
    signal = mean([one.share_signal for one in results])
    count = len(results)
    return {
        f"p_hat of the last {LAST} epochs in .4 to .6 on {within} of {count} seeds (wanted: nine "
        "of ten)": within >= 0.9 * count,
        f"alpha inside of the interval in {met:.0%} of the epochs from {SETTLED} on (wanted: half)":
            met >= 0.5,
        f"response tokens up by 40 % on {longer} of {count} seeds (wanted: all)": longer == count,
        f"groups with signal: {signal:.2f} on average (wanted: .5)": signal >= 0.5,
    }  # fmt: skip


def main() -> None:
    """Compare the arms, and print the runs and what was met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="100-109")
    parser.add_argument("--arms", default="genenv,random,static")
    parser.add_argument("--root", type=Path, default=Path("genenv-data/verify-learning"))
    parser.add_argument("--jobs", default="2")
    parser.add_argument("--readme", type=Path, help="put the claim and its figure in here")
    options = parser.parse_args()
    if options.readme:
        claimed(options.readme, "")  # fails now rather than after an hour
    values = compared(
        ["quickstart", "--arms", options.arms, "--seeds", options.seeds,
         "--set", "tracking.enabled=false"],
        root=options.root, pages=options.root / "page", jobs=options.jobs,
    )  # fmt: skip
    if options.readme:
        publish(options.root / "page", options.readme)
    results: dict[str, list[Result]] = {}
    for run in values["runs"]:
        results.setdefault(run["arm"], []).append(read_result(options.root, run))
    for arm, found in results.items():
        print(f"\n{arm}\n{HEADER}")
        for result in found:
            print(shown(result))
    sys.exit(1 if judge(values, next(iter(results.values()))) else 0)


BEGIN, END = "<!-- claim: written by `make claim` -->", "<!-- end of the claim -->"


def publish(pages: Path, readme: Path) -> None:
    """Put the claim of a comparison into a README, and its figure into docs/ beside that."""
    place = Path("docs") / FIGURE
    text = (pages / CLAIM).read_text(encoding="utf-8").replace(f"({FIGURE})", f"({place})")
    readme.write_text(claimed(readme, text), encoding="utf-8")
    (readme.parent / place).write_bytes((pages / FIGURE).read_bytes())


def claimed(readme: Path, claim: str) -> str:
    """Return a README's text with this claim between its marks; raises ValueError without them."""
    before, begin, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{readme}: a line {BEGIN} and a line {END} say where the claim goes")
    return f"{before}{BEGIN}\n{claim}{END}{after}"


def judge(values: Mapping[str, Any], own: Sequence[Result]) -> int:
    """Print what was met; `own` are the first arm's runs. Returns how many checks failed."""
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
