"""Sums up the runs of a co-evolution, and checks what one should do by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from genenv_core.algorithm.stats import mean

LAST = 3
"""Last epochs whose p_hat counts."""

SETTLED = 6
"""The epoch from which on p_hat should be alpha."""

ROWS = """
    SELECT v.*, e.mean_response_tokens AS tokens, e.p_hat_written,
        g.gain AS greedy_gain
    FROM evidence AS v JOIN epochs AS e USING (run_id, epoch)
    JOIN test_gains AS g ON g.epoch = v.epoch AND g.measure = 'greedy' ORDER BY v.epoch
"""
"""The epochs of one run, in order, as `summary` takes them."""

HEADER = (
    " seed    gain  greedy  p_hat  written  alpha in  tokens         signal  weights, ESS"
    "     rollouts  steps"
)
"""The head of a table of `RunSummary.line`."""


@dataclass(frozen=True)
class RunSummary:
    """The summary of one run: gains at its end, and means over its epochs.

    `last_p_hat` and `last_written` are means over the last `LAST` epochs. `alpha_inside` counts
    those of the `settled` epochs whose interval of p_hat has alpha in it. `tokens` are the mean
    tokens of an attempt in the first and the last epoch. `weights` are the least and the greatest
    weight of a row of pi_env's update, and the mean share of rows that count (the effective sample
    size by the rows); zeros in a run that never updated pi_env.
    """

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

    @property
    def line(self) -> str:
        """Return the run as a line of a table under `HEADER`."""
        low, high, effective = self.weights
        weights = f"{low:.2f}-{high:4.2f} {effective:3.0%}" if high else "-"
        return (
            f"{self.seed:5d}  {self.gain:+.3f}  {self.greedy_gain:+.3f}   {self.last_p_hat:.2f}"
            f"    {self.last_written:.2f}     {self.alpha_inside} of {self.settled}"
            f"   {self.tokens[0]:4.1f} -> {self.tokens[1]:4.1f}   {self.share_signal:.2f}"
            f"    {weights:14s}  {self.rollouts:8d}  {self.steps:5d}"
        )


def summary(seed: int, rows: Sequence[Mapping[str, Any]], spent: Mapping[str, int]) -> RunSummary:
    """Return the summary of a run from its epochs, rows of `ROWS`, and its spending.

    `spent` has its `rollouts` and its optimizer `steps`.
    """
    settled = [row for row in rows if row["epoch"] >= SETTLED]
    weighed = [row for row in rows if row["effective_rows"]]
    return RunSummary(
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


def expectations(results: Sequence[RunSummary]) -> dict[str, bool]:
    """Return what a co-evolution should do by itself, in words, and whether these runs did."""
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
