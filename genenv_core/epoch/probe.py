"""Stage `rwr_update`: the KL of a new pi_env to its initial, along generations made to measure it.

The rows that an update was computed on say too little: pi_env was fitted to them, and after some
steps it writes other ones. So the new pi_env answers the epoch's prompts again. Summed over the
tokens of a generation, the KL of each token's whole distribution has the mean KL(pi_env ||
pi_env^0), nats a sequence. Its variance is below that of log pi - log pi0 of the sampled tokens,
which it is the conditional mean of (Rao-Blackwell).

Both policies are taken at temperature 1, without nucleus or grammar, as the update takes them. The
generations are sampled as configured: with another temperature, a nucleus or a grammar, the number
is the KL along what pi_env writes under them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import polars as pl

from genenv_core.algorithm.spread import evenly
from genenv_core.algorithm.stats import mean, sample_std
from genenv_core.engines.protocol import Engine
from genenv_core.epoch.rows import SeedFor
from genenv_core.errors import EngineError
from genenv_core.types import Completion, FinishReason, Grammar, SampleRequest, SamplingParams


def fresh_generations(
    engine: Engine,
    generations: pl.DataFrame,
    params: SamplingParams,
    *,
    count: int,
    seed_for: SeedFor,
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return (prompt ids, token ids) of `count` new generations, without those that failed.

    Args:
        engine: the new pi_env.
        generations: the epoch's; the new ones answer their prompts, under their grammars.
        params: how to sample.
        count: number of generations to ask for; prompts repeat when there are fewer.
        seed_for: the seed of a generation.

    Raises EngineError when fewer than two succeed: these would have no standard error.
    """
    asked = generations[evenly(generations.height, count)].select("prompt_ids", "grammar")
    requests = [
        SampleRequest(
            tuple(prompt), seed_for("probe", index), Grammar(**json.loads(given)) if given else None
        )
        for index, (prompt, given) in enumerate(asked.iter_rows())
    ]
    answers = engine.sample(requests, params)
    fresh = [
        (request.prompt_ids, done.token_ids)
        for request, done in zip(requests, answers, strict=True)
        if done.finish_reason is not FinishReason.ERROR
    ]
    if len(fresh) < 2:
        raise EngineError(
            f"the KL of pi_env cannot be measured: {_failed(answers)} of {count} generations of "
            "the new checkpoint failed, the last one with: "
            f"{next(done.error for done in reversed(answers) if done.error)}"
        )
    return fresh


def _failed(answers: Sequence[Completion]) -> int:
    return sum(done.finish_reason is FinishReason.ERROR for done in answers)


def kl_metrics(values: Sequence[float]) -> dict[str, float]:
    """Return `kl_env`, the mean of the KL along each generation, and its standard error."""
    return {"kl_env": mean(values), "kl_env_se": sample_std(values) / math.sqrt(len(values))}
