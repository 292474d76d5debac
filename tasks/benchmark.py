"""Stage `benchmark`: attempts of a model at the items of a benchmark, and the benchmark's verdicts.

Finished attempts are kept one by one on this machine, and in shards in the store, so the stage
continues at the item that was cut off.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import polars as pl

from genenv_core.benchmarks.measuring.items import (
    benchmark_of,
    headline_of,
    items_of,
    judged,
    metric_rows,
    result_of,
)
from genenv_core.benchmarks.measuring.journal import Journaled
from genenv_core.benchmarks.measuring.precision import next_round
from genenv_core.benchmarks.predictions import Result
from genenv_core.benchmarks.training.domain import BenchmarkDomain
from genenv_core.config.sections.rollout import RolloutConfig
from genenv_core.epoch.attempts import attempt
from genenv_core.epoch.rows import to_tasks
from genenv_core.epoch.trouble import endless_attempts
from genenv_core.play.attempt import Player
from genenv_core.storage.records.manifest import CheckpointRef, EndpointRef, Weights
from genenv_core.types import JsonObject, Policy, Task
from schemas.registry import empty
from tasks.policies.engine import SAMPLING_FIELDS, retries_of
from tasks.policies.sampler import agents_chat, bounds_of, sampler
from tasks.stage import Stage, StageContext
from tasks.stage.progress import check
from tasks.stage.shards import Shards
from tasks.stage.task import StageTask

STAGE = Stage(
    "benchmark",
    ("tasks.benchmark",),
    (
        "domain",
        "benchmark.items",
        "benchmark.categories",
        "benchmark.draw",
        "benchmark.precision",
        "benchmark.temperature",
        "benchmark.attempt_seconds",
        "models.agent_chat_template_kwargs",
        "models.env_chat_template_kwargs",
        "rollout",
        "tools",
        *SAMPLING_FIELDS,
    ),
    ("torch", "transformers"),
)

Decode = Callable[[Sequence[int]], str]


@dataclass(frozen=True, slots=True)
class BenchmarkInputs:
    """The model, as weights or behind an endpoint; `simulator` is the pi_env that plays tools."""

    model: Weights | None
    endpoint: EndpointRef | None = None
    simulator: Weights | None = None


def compute(context: StageContext[BenchmarkInputs]) -> dict[str, Any]:
    """Attempt every item; judge the attempts; add the verdicts up."""
    config, domain = context.config, benchmark_of(context.domain())
    items = items_of(domain, config.benchmark, context.seed_for("items"), context.scope)
    shards, verdicts, result = _attempted(context, domain, to_tasks(items))
    traces = shards.rows("traces", shards.numbers)
    context.out.table("tasks", items.head(shards.places))
    shards.adopt()
    errors, reasons = traces["error"], traces["finish_reason"].to_list()
    context.out.table("benchmark_metrics", metric_rows(domain, result))
    return {
        "benchmark": domain.name,
        "mode": domain.mode,
        "protocol": domain.protocol() | _told_of(context),
        "data": domain.suite.digest,
        "attempts": verdicts.height,
        "items": result.items,
        "not_run": result.not_run,
        "not_scored": int(verdicts["valid"].is_null().sum()),
        "broken": int((errors != "").sum()),
        "broken_first": next((error for error in errors if error), ""),
        "metrics": {one.name: one.value for one in result.metrics},
    } | endless_attempts(reasons, domain.name, config.rollout)


def _attempted(
    context: StageContext[BenchmarkInputs], domain: BenchmarkDomain[Any], tasks: Sequence[Task]
) -> tuple[Shards, pl.DataFrame, Result]:
    """Attempt the items, all of them or as many as the precision takes, in order.

    Returns their shards, the rows of `benchmark_items` and what these add up to. Raises DataError
    where there is no item.
    """
    asked, settings = context.config.benchmark, context.config.rollout
    shards = Shards(context, 0, settings.shard_groups)
    kept, told = context.durable() / "attempts.jsonl", _Told(context, len(tasks))
    verdicts, result, opened = empty("benchmark_items"), None, None
    with ExitStack() as stack:
        while more := next_round(
            result and headline_of(domain, result), shards.places, len(tasks), asked.precision
        ):
            shards.extend(more)
            told.finished(shards.tasks_done)
            if missing := shards.missing:
                if opened is None:
                    answered = shards.tasks_done > 0 or kept.exists()
                    opened = stack.enter_context(_opened(context, answered=answered))
                player, decode = opened
                wanted = {tasks[place].task_id for shard in missing.values() for place in shard}
                for number, tables in attempt(
                    Journaled(player, kept, wanted, told.one_more),
                    tasks,
                    missing,
                    _sampling(settings, asked.temperature),
                    epoch=context.epoch,
                    scope=context.scope,
                    policy_version=_version(context.inputs),
                    decode=decode,
                    seed_for=context.seed_for,
                ):
                    rows = judged(domain, tasks, tables["traces"], tables["trace_tokens"])
                    shards.finish(number, {**tables, "benchmark_items": rows})
            verdicts = shards.rows("benchmark_items", shards.numbers)
            result = result_of(domain, verdicts)
    return shards, verdicts, result or result_of(domain, verdicts)  # which refuses no items


def _told_of(context: StageContext[BenchmarkInputs]) -> JsonObject:
    """Return what of the model's chat template a result must say; an endpoint has its own."""
    model = context.inputs.model
    return {} if model is None else agents_chat(context, model).probe(Policy.AGENT).protocol


@contextmanager
def _opened(
    context: StageContext[BenchmarkInputs], *, answered: bool
) -> Generator[tuple[Player, Decode]]:
    """Open the model as a player; close its engine at the end.

    `answered` says that an earlier attempt at the stage had answers.
    """
    inputs = context.inputs
    if inputs.endpoint is None:
        assert inputs.model is not None
        with sampler(context, inputs.model, inputs.simulator) as sampling:
            yield sampling, sampling.chat.decode
        return
    from genenv_core.exchange.chat_client import Endpoint  # loads aiohttp
    from genenv_core.exchange.chat_player import ChatPlayer

    endpoint = Endpoint(
        "benchmark",
        STAGE.name,
        inputs.endpoint.url,
        inputs.endpoint.model_name,
        inputs.endpoint.request,
        context.execution.benchmark,
        check,
    )
    bounds = bounds_of(context.config, 1)
    longest = context.config.benchmark.attempt_seconds
    player = ChatPlayer(
        endpoint,
        context.domain(),
        bounds,
        seconds=longest,
        retries=retries_of(context),
        answered=answered,
    )
    yield player, lambda _: ""


class _Told:
    """Reports how many items are done."""

    def __init__(self, context: StageContext[BenchmarkInputs], total: int) -> None:
        self._context, self._done, self._total = context, 0, total

    def finished(self, done: int) -> None:
        """So many are done, of this attempt at the stage and of earlier ones."""
        self._done = done
        self._say()

    def one_more(self) -> None:
        self._done += 1
        self._say()

    def _say(self) -> None:
        self._context.progress(self._done, self._total, "items")


def _sampling(settings: RolloutConfig, temperature: float) -> RolloutConfig:
    """Return the settings of the attempts; only here may the temperature be 0."""
    return settings.model_copy(update={"temperature": temperature})


def _version(inputs: BenchmarkInputs) -> int:
    return inputs.model.policy_version if isinstance(inputs.model, CheckpointRef) else 0


benchmark = StageTask(STAGE, BenchmarkInputs, compute)
