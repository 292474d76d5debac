"""Stage `rwr_update`: samples a new pi_env, to measure its KL to the first one, and its truth.

The update's own rows say too little: the update fitted pi_env to them, and after some steps pi_env
writes other texts. So the new pi_env answers the epoch's prompts again. Summed over the tokens of a
generation, the KL of each token's whole distribution has the mean KL(pi_env || pi_env^0), nats a
sequence. It is the conditional mean of log pi - log pi0 of the sampled tokens, so it has a smaller
variance (Rao-Blackwell).

The KL takes both policies at temperature 1, without nucleus or grammar, as the update does. The
engine samples the generations as configured: with another temperature, a nucleus or a grammar, the
number is the KL along what pi_env writes under them.

Where pi_env plays the tools, the new one also answers again what the last one answered in this
epoch, and the probe compares it with the domain's own code (`genenv_core.play.fidelity`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

import polars as pl

from genenv_core.algorithm.spread import evenly
from genenv_core.algorithm.stats import mean, sample_std
from genenv_core.domains.protocol import Domain
from genenv_core.engines.protocol import Engine
from genenv_core.epoch.observing import EpisodeSeed, replayed
from genenv_core.epoch.rows import SeedFor
from genenv_core.errors import EngineError
from genenv_core.play.fidelity import Answered, Fidelity, fidelity
from genenv_core.play.simulator import Simulator
from genenv_core.types import (
    Completion,
    FinishReason,
    Grammar,
    Observation,
    SampleRequest,
    SamplingParams,
    Task,
    TaskDraft,
)


def fresh_generations(
    engine: Engine,
    generations: pl.DataFrame,
    params: SamplingParams,
    *,
    count: int,
    seed_for: SeedFor,
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return (prompt ids, token ids) of `count` new generations, without failed ones.

    Args:
        engine: the new pi_env.
        generations: the epoch's; the new ones answer their prompts, under their grammars.
        params: how to sample.
        count: number of generations to ask for; prompts repeat when there are fewer.
        seed_for: the seed of a generation.

    Raises EngineError when fewer than two succeed: one alone has no standard error.
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


def asked_before(
    observations: pl.DataFrame,
    traces: pl.DataFrame,
    tasks: Mapping[str, Task],
    domain: Domain,
    seed_of: EpisodeSeed,
    *,
    count: int,
) -> list[tuple[TaskDraft, Answered]]:
    """Return `count` turns at which pi_env answered, evenly spread over `observations`.

    Turns repeat when there are fewer; the list is empty without any. `traces` are the epoch's, with
    their `messages`; `seed_of` gives the seed of an episode.
    """
    if observations.is_empty():
        return []
    chosen = observations[evenly(observations.height, count)].select("trace_id", "turn").rows()
    wanted = {trace for trace, _ in chosen}
    rows = traces.iter_rows(named=True)
    found = {
        (trace["trace_id"], one.turn): (draft, one)
        for trace, draft, one in replayed(rows, tasks, domain, seed_of, only=wanted)
    }
    return [found[place] for place in chosen]


def fresh_answers(
    engine: Engine,
    simulator: Simulator,
    asked: Sequence[tuple[TaskDraft, Answered]],
    params: SamplingParams,
    *,
    structured: bool,
    seed_for: SeedFor,
) -> list[Fidelity]:
    """Return how true the new pi_env is at each of these turns, without failed answers.

    Args:
        engine: the new pi_env.
        simulator: makes its prompts, and reads its answers.
        asked: the stored turns, each with its task.
        params: how to sample the tools' answers.
        structured: whether the engine holds answers to the domain's schema.
        seed_for: the seed of an answer.

    Raises EngineError when the engine fails at all of them.
    """
    grammar = simulator.grammar() if structured else None
    prompts = [simulator.prompt(draft, one.before) for draft, one in asked]
    said = {place: given for place, given in enumerate(prompts) if isinstance(given, Observation)}
    requests = {
        place: SampleRequest(given, seed_for("fidelity", place), grammar)
        for place, given in enumerate(prompts)
        if not isinstance(given, Observation)
    }
    answers = engine.sample(list(requests.values()), params) if requests else []
    for place, done in zip(requests, answers, strict=True):
        if done.finish_reason is not FinishReason.ERROR:
            said[place] = simulator.read(done)
    if asked and not said:
        raise EngineError(
            f"the fidelity of pi_env cannot be measured: all {len(asked)} answers of the new "
            f"checkpoint failed, the last one with: {answers[-1].error}"
        )
    return [fidelity(said[place], asked[place][1].truth) for place in sorted(said)]


def fidelity_metrics(answers: Sequence[Fidelity]) -> dict[str, float]:
    """Return `fidelity`, the mean over the answers, and its standard error; {} without any."""
    if not answers:
        return {}
    return _measured("fidelity", [answer.value for answer in answers])


def kl_metrics(values: Sequence[float]) -> dict[str, float]:
    """Return `kl_env`, the mean of the KL along each generation, and its standard error."""
    return _measured("kl_env", values)


def _measured(name: str, values: Sequence[float]) -> dict[str, float]:
    return {name: mean(values), f"{name}_se": sample_std(values) / math.sqrt(len(values))}
