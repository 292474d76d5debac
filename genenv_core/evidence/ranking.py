"""Finding 6 (GenEnv, arXiv 2512.19682, theorem 1): R_env ranks task families, surer by n."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise

import numpy as np

from genenv_core.algorithm.reward import r_env
from genenv_core.algorithm.stats import mean
from genenv_core.compare.charts import Spot
from genenv_core.evidence.finding import Finding, all_hold, line_chart

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
"""The numbers of attempts n that rankings use."""

DRAWS = 4000
"""Draws of n attempts at each family."""

OUTCOMES = """
SELECT family, list(success ORDER BY task_id, sample_index) AS outcomes FROM evaluations
WHERE epoch = 0 AND split = 'test' AND mode = 'sampled' AND family IS NOT NULL
GROUP BY family ORDER BY family
"""
"""Whether the first agent succeeded on test tasks, family by family."""


def error_rates(
    outcomes: Mapping[str, Sequence[bool]], *, alpha: float, beta: float, seed: int
) -> dict[int, tuple[float, float]]:
    """Return the error rate of the ranking by n, and its bound, as means over pairs of families.

    The function draws n attempts at each family from its outcomes, with replacement. A pair is an
    error where R_env of the drawn attempts does not rank it as R_env of all outcomes does; a tie is
    one too. The bound is Hoeffding's: with d the difference of the two distances to alpha, an error
    needs one of the two rates to be off by d / 2, so its probability is at most 4 exp(-n d^2 / 2).
    """
    rng = np.random.default_rng(seed)
    names = list(outcomes)
    rates = {name: mean([float(one) for one in outcomes[name]]) for name in names}
    pairs = [
        (a, b) if abs(rates[a] - alpha) < abs(rates[b] - alpha) else (b, a)
        for a, b in combinations(names, 2)
        if abs(abs(rates[a] - alpha) - abs(rates[b] - alpha)) > 1e-9
    ]
    found: dict[int, tuple[float, float]] = {}
    for n in SIZES:
        reward = {
            name: np.array([r_env(float(k) / n, alpha=alpha, beta=beta)
                            for k in rng.binomial(n, rates[name], DRAWS)])
            for name in names
        }  # fmt: skip
        wrong = [float(np.mean(reward[near] <= reward[far] + 1e-12)) for near, far in pairs]
        bounds = [
            min(
                1.0,
                4 * math.exp(-n * (abs(rates[far] - alpha) - abs(rates[near] - alpha)) ** 2 / 2),
            )
            for near, far in pairs
        ]
        found[n] = (mean(wrong), mean(bounds))
    return found


def theorem_1(
    found: Mapping[str, Mapping[int, tuple[float, float]]], families: Mapping[str, str]
) -> Finding:
    """Return finding 6 from the error rates on each domain; `families` has their success."""
    rows: list[list[str]] = []
    holds: list[bool | None] = []
    lines: dict[str, list[list[Spot]]] = {}
    words: list[str] = []
    for domain, by_n in found.items():
        errors = [error for error, _ in by_n.values()]
        falls = all(later <= earlier for earlier, later in pairwise(errors))
        holds.append(falls and all(error <= bound for error, bound in by_n.values()))
        rows += [[domain, str(n), f"{error:.3f}", f"{bound:.3f}"]
                 for n, (error, bound) in by_n.items()]  # fmt: skip
        lines[f"{domain}, seen"] = [[(math.log2(n), error) for n, (error, _) in by_n.items()]]
        lines[f"{domain}, bound"] = [[(math.log2(n), bound) for n, (_, bound) in by_n.items()]]
        words.append(f"{domain} {by_n[8][0]:.2f} at n 8 and {errors[-1]:.2f} at n {SIZES[-1]}")
    successes = "; ".join(f"{domain}: {text}" for domain, text in families.items())
    return Finding(
        6,
        "R_env ranks task families (theorem 1)",
        "The rate of wrong rankings falls with the number of attempts, below the theory's curve.",
        all_hold(holds),
        f"Wrong pairs: {'; '.join(words)}. Success of the first agent by family: {successes}.",
        ["domain", "attempts n", "wrong pairs", "bound"],
        rows,
        [line_chart("Wrong rankings by attempts", "Share of pairs of families; the bound is "
                    "Hoeffding's, no more than 1.", "log2 n", lines, share=True)],
    )  # fmt: skip
