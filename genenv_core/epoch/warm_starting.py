"""Stage `warm_start`: teaches a given model before the game, and measures how far it has come.

pi_agent answers fresh examples greedily: an answer counts when it is the example's, word for word.
pi_env answers the prompts of the game. Its texts count as `generate_tasks` would count them, except
that one may repeat another: a small domain has few tasks.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Protocol

import polars as pl

from genenv_core.config.sections.curriculum import GenerationConfig
from genenv_core.config.sections.warm_start import WarmStartConfig
from genenv_core.domains.protocol import Domain, SeedData, SeedExample, ToolsByTask
from genenv_core.engines.protocol import Engine
from genenv_core.epoch.reached import warm_start_line
from genenv_core.epoch.rows import SeedFor, of_source, to_tasks
from genenv_core.epoch.trouble import SHORT
from genenv_core.epoch.writing.contexts import make_contexts
from genenv_core.epoch.writing.generation import GrammarOf
from genenv_core.epoch.writing.intake import Intake, drafts_of, sampled_text
from genenv_core.ids import seed_from
from genenv_core.play.asked import env_prompt
from genenv_core.play.chat import ChatFormat
from genenv_core.types import (
    AgentHistory,
    FinishReason,
    JsonObject,
    Policy,
    SampleRequest,
    SamplingParams,
    TaskSource,
)
from schemas.registry import empty

HELD_OUT = 4
"""`FileLessons` keeps one in so many examples of a file or a run for the looks."""


class Lessons(Protocol):
    """Where the examples come from. Equal arguments give equal examples."""

    def taught(self, policy: Policy, first: int, count: int) -> list[SeedExample]:
        """Return the examples to train on from the `first`-th on."""
        ...

    def asked(self, number: int, count: int) -> list[SeedExample]:
        """Return at most `count` untaught examples for pi_agent's look of this number."""
        ...

    def to_measure(self, policy: Policy, most: int) -> list[SeedExample]:
        """Return examples to measure lengths by: all of a file or run, else the first `most`."""
        ...


class OwnLessons:
    """The examples that the domain makes itself, other ones for each part."""

    def __init__(self, domain: SeedData, seed: int, easy_skew: float) -> None:
        """`easy_skew` says how easy those of pi_env are."""
        self._domain, self._seed, self._skew = domain, seed, easy_skew

    def taught(self, policy: Policy, first: int, count: int) -> list[SeedExample]:
        seed = seed_from("taught", policy, first, self._seed)
        if policy is Policy.AGENT:
            return self._domain.agent_examples(seed, count)
        return self._domain.env_examples(seed, count, self._skew)

    def asked(self, number: int, count: int) -> list[SeedExample]:
        return self._domain.agent_examples(seed_from("asked", number, self._seed), count)

    def to_measure(self, policy: Policy, most: int) -> list[SeedExample]:
        return self.taught(policy, 0, most)


class FileLessons:
    """The examples of a file or a run, in a new order whenever all of them have had their turn."""

    def __init__(self, examples: Mapping[Policy, Sequence[SeedExample]], seed: int) -> None:
        """`seed` orders them, and chooses the examples of pi_agent for the looks."""
        self._seed, self._taught = seed, dict(examples)
        agents = self._ordered(Policy.AGENT, 0)
        held = len(agents) // HELD_OUT
        self._asked, self._taught[Policy.AGENT] = agents[:held], agents[held:]

    def taught(self, policy: Policy, first: int, count: int) -> list[SeedExample]:
        size = len(self._taught[policy])
        found = [
            example
            for turn in range(first // size, (first + count - 1) // size + 1)
            for example in self._ordered(policy, turn)
        ]
        return found[first % size :][:count]

    def asked(self, number: int, count: int) -> list[SeedExample]:
        return self._asked[:count]

    def to_measure(self, policy: Policy, most: int) -> list[SeedExample]:
        return [*self._taught[policy], *(self._asked if policy is Policy.AGENT else ())]

    def _ordered(self, policy: Policy, turn: int) -> list[SeedExample]:
        examples = self._taught[policy]
        rng = random.Random(seed_from("ordered", policy, turn, self._seed))
        return rng.sample(examples, len(examples))


def lessons_of(
    domain: Domain,
    examples: Mapping[Policy, Sequence[SeedExample]] | None,
    easy_skew: float,
    seed: int,
) -> Lessons | None:
    """Return where a warm start has its examples from, None where it has none.

    Args:
        domain: of the run.
        examples: those of `warm_start.examples`, None where that is not set.
        easy_skew: how easy the domain's own examples of pi_env are.
        seed: chooses and orders examples.
    """
    if examples is not None:
        return FileLessons(examples, seed)
    return OwnLessons(domain, seed, easy_skew) if isinstance(domain, SeedData) else None


def tools_of(domain: Domain, policy: Policy) -> Sequence[JsonObject]:
    """Return the tools that a policy has in every example: an example names no task."""
    return () if policy is Policy.ENV or isinstance(domain, ToolsByTask) else domain.tools


def lesson_rows(
    chat: ChatFormat, examples: Sequence[SeedExample], tools: Sequence[JsonObject]
) -> pl.DataFrame:
    """Return the rows of a round: prompts as the game renders them, answers with their end token.

    Columns: row_id, prompt_ids, completion_ids. `tools` are those that pi_agent has.
    """
    return pl.DataFrame(
        {
            "row_id": [f"e{index:06d}" for index in range(len(examples))],
            "prompt_ids": [list(chat.first_prompt(messages, tools)) for messages, _ in examples],
            "completion_ids": [list(chat.completion(answer)) for _, answer in examples],
        },
        schema={
            "row_id": pl.String,
            "prompt_ids": pl.List(pl.Int32),
            "completion_ids": pl.List(pl.Int32),
        },
    )


def right_answers(
    engine: Engine,
    chat: ChatFormat,
    examples: Sequence[SeedExample],
    tools: Sequence[JsonObject],
    *,
    max_tokens: int,
) -> int:
    """Return how many examples greedy decoding answers word for word."""
    params = SamplingParams(max_tokens, 0.0, 1.0, chat.stop_token_ids)
    requests = [SampleRequest(chat.first_prompt(messages, tools), 0) for messages, _ in examples]
    done = engine.sample(requests, params)
    return sum(
        one.finish_reason is FinishReason.STOP
        and chat.said(one.token_ids, tools).strip() == answer.strip()
        for one, (_, answer) in zip(done, examples, strict=True)
    )


def valid_texts(
    engine: Engine,
    chat: ChatFormat,
    domain: Domain,
    settings: GenerationConfig,
    grammar: GrammarOf,
    *,
    data: pl.DataFrame,
    count: int,
    seed_for: SeedFor,
) -> int:
    """Return how many of `count` texts hold a task; `data` are the run's base and held-out tasks.

    pi_env reads prompts as in epoch 1: with base tasks, and without a history of the agent.
    """
    base = to_tasks(of_source(data, TaskSource.BASE))
    asked = make_contexts(
        domain,
        base,
        AgentHistory(),
        count=count,
        seed=seed_for("contexts"),
        epoch=0,
        shots=settings.shots,
    )
    params = SamplingParams(
        settings.max_tokens, settings.temperature, settings.top_p, chat.stop_token_ids
    )
    requests = [
        SampleRequest(
            chat.first_prompt(env_prompt(domain, context)),
            seed_for("text", index),
            grammar(context),
        )
        for index, context in enumerate(asked)
    ]
    valid = 0
    for request, done in zip(requests, engine.sample(requests, params), strict=True):
        # A new intake for each text, so that one may repeat another.
        intake = Intake(domain, data, empty("tasks"), guard=settings.guard, epoch=0, scope="")
        for item in drafts_of(domain, sampled_text(chat, request, done)):
            intake.add(item)
        valid += bool(intake.valid)
    return valid


def reached(
    policy: Policy,
    settings: WarmStartConfig,
    metrics: Mapping[str, float],
    *,
    steps: int,
    right: int,
    of: int,
) -> dict[str, float]:
    """Return how far a given model is after `steps`, for the fact `WARM_STARTS`.

    `reached` is right / of: the share of a look's examples that pi_agent answers, or of pi_env's
    texts that are valid. `metrics` are those of the last round, {} before the first.
    """
    target = settings.agent_target if policy is Policy.AGENT else settings.env_target
    return {
        **metrics,
        "steps": steps,
        "steps_planned": settings.steps,
        "right": right,
        "of": of,
        "reached": right / of,
        "target": target,
    }


def short_of(warm_starts: Mapping[str, Mapping[str, float]]) -> dict[str, str]:
    """Return the fact that a given model ended below its target, with a remedy; else {}."""
    short = [
        warm_start_line(policy, told)
        for policy, told in warm_starts.items()
        if "right" in told and told["reached"] < told["target"]
    ]
    if not short:
        return {}
    return {
        SHORT: f"{'; '.join(short)}: raise warm_start.steps, make the domain easier "
        "(domain.options) or give a larger model"
    }
