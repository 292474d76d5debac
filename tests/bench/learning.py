"""`make verify-learning`: does co-evolution pay? The quickstart on several seeds, arm against arm.

Seeds are the unit. The first method is compared with each other one by the paired difference of
their gains on the test tasks, measured without sampling: the gain is that of P(answer), the
probability of the one accepted answer. `genenv_core.algorithm.paired` says what is decided. All
methods attempt the same number of tasks. What is not met makes the command fail. A method is an
arm, with settings where wanted: `genenv:rwr.lambda=0,curriculum.track=0`.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genenv_core.algorithm.paired import Decision, Difference, compare
from genenv_core.algorithm.stats import mean
from genenv_core.storage.canonical import digest
from genenv_core.storage.sql.catalog import query
from genenv_core.storage.sql.sources import open_tables
from genenv_core.storage.store.local import LocalStore

LAST, SETTLED = 3, 6
"""Epochs at the end that p_hat is read from, and the epoch from which alpha should be met."""

_ROWS = """
    SELECT v.*, e.mean_response_tokens AS tokens, e.grpo_steps, e.p_hat_written,
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
    seconds: float


def run_seed(seed: int, root: Path, method: str) -> Result:
    """Return what a run of a method came to, played by the command that users type."""
    arm, _, settings = method.partition(":")
    sets = [f"arm={arm}", "tracking.enabled=false", *(settings.split(",") if settings else [])]
    run_id = f"verify-{arm}{'-' + digest(settings)[:6] if settings else ''}-s{seed}"
    started = time.perf_counter()
    subprocess.run(
        [
            *(sys.executable, "-m", "flows.cli.app", "run", "quickstart", "--seed", str(seed)),
            *("--root", str(root), "--run-id", run_id, "--json"),
            *itertools.chain.from_iterable(("--set", text) for text in sets),
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    with open_tables(LocalStore(root), [run_id]) as connection:
        rows = query(connection, _ROWS).to_dicts()
        rollouts = int(query(connection, "SELECT count(*) AS n FROM traces")["n"].item())
    return summary(seed, rows, rollouts, time.perf_counter() - started)


def summary(seed: int, rows: list[dict[str, Any]], rollouts: int, seconds: float) -> Result:
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
        rollouts=rollouts,
        steps=sum(row["grpo_steps"] for row in rows),
        seconds=seconds,
    )


def shown(result: Result) -> str:
    """Return the line of a run."""
    low, high, effective = result.weights
    weights = f"{low:.2f}-{high:4.2f} {effective:3.0%}" if high else "-"
    return (
        f"{result.seed:5d}  {result.gain:+.3f}  {result.greedy_gain:+.3f}   {result.last_p_hat:.2f}"
        f"    {result.last_written:.2f}     {result.alpha_inside} of {result.settled}"
        f"   {result.tokens[0]:4.1f} -> {result.tokens[1]:4.1f}   {result.share_signal:.2f}"
        f"    {weights:14s}  {result.rollouts:8d}  {result.steps:5d}  {result.seconds:4.0f}"
    )


HEADER = (
    " seed    gain  greedy  p_hat  written  alpha in  tokens         signal  weights, ESS"
    "     rollouts  steps     s"
)


def told(difference: Difference) -> str:
    """Return a difference with its interval, and what the exact test says."""
    found = difference
    more = ""
    if found.more_seeds:
        more = f"; {found.more_seeds} more seeds would decide"
    return (
        f"{found.mean:+.4f} [{found.low:+.4f}, {found.high:+.4f}], {found.seeds} seeds, "
        f"p {found.p_holm:.3f} after Holm: {found.decision}{more}"
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
    """Run every method on every seed, and print the runs, the comparisons and what was met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(100, 110)))
    parser.add_argument("--methods", nargs="+", default=["genenv", "random", "static"])
    parser.add_argument("--root", type=Path, default=Path("genenv-data/verify-learning"))
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    results: dict[str, list[Result]] = {}
    with ThreadPoolExecutor(options.jobs) as threads:
        waiting = {
            method: [threads.submit(run_seed, seed, options.root, method) for seed in options.seeds]
            for method in options.methods
        }
        for method, runs in waiting.items():
            print(f"\n{method}\n{HEADER}", flush=True)
            results[method] = []
            for run in runs:
                results[method].append(run.result())
                print(shown(results[method][-1]), flush=True)
    sys.exit(1 if judge(results) else 0)


def judge(results: dict[str, list[Result]]) -> int:
    """Print the comparisons of the first method with the others; return how many checks failed."""
    (first, own), *others = results.items()
    checks: dict[str, bool] = {}
    print()
    for measure in ("gain", "greedy_gain") if len(own) > 1 else ():
        found = compare(
            [getattr(one, measure) for one in own],
            {name: [getattr(one, measure) for one in other] for name, other in others},
        )
        for name, difference in found.items():
            text = f"{first} - {name}, {measure}: {told(difference)}"
            if measure == "gain":
                checks[f"{text} (wanted: better)"] = difference.decision is Decision.BETTER
            else:
                print(f"      {text}")
    checks |= expectations(own)
    for text, met in checks.items():
        print(f"{'met' if met else 'NOT':5s} {text}")
    return sum(not met for met in checks.values())


if __name__ == "__main__":
    main()
