"""Stage `benchmark`: lets a model attempt the items of a benchmark, and judges the attempts.

To certify a task set, the model attempts it in the same way; `tasks.policies.certifying` does what
comes before and after.

The stage stores finished attempts one by one on this machine, and in shards in the store, so after
an interruption it continues at the unfinished item.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
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
from genenv_core.benchmarks.summary import Metric
from genenv_core.config.sections.rollout import RolloutConfig
from genenv_core.epoch.attempts import attempt
from genenv_core.epoch.rows import to_tasks
from genenv_core.epoch.trouble import endless_attempts
from genenv_core.play.attempt import Player
from genenv_core.storage.records.manifest import CheckpointRef, EndpointRef, Weights
from genenv_core.types import JsonObject, Policy, Task
from tasks.placement.task import StageTask
from tasks.policies.engine import SAMPLING_FIELDS, retries_of
from tasks.policies.sampler import agents_chat, bounds_of, sampler
from tasks.stage import Stage, StageContext
from tasks.stage.context import FurtherWork
from tasks.stage.progress import check
from tasks.stage.shards import Shards

CERTIFYING, CERTIFIED = "tasks.policies.certifying", "benchmark.certify_base"
"""The module that certifies a task set, and the field that asks for it; `benchmark.certify_heldout`
asks for it too. The stage imports the module by name, so that no key of a benchmark depends on its
code."""

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
    (
        FurtherWork(
            "benchmark.certifies",
            (CERTIFYING,),
            (CERTIFIED, "benchmark.certify_heldout"),
        ),
    ),
)

Decode = Callable[[Sequence[int]], str]

Judge = Callable[[pl.DataFrame, pl.DataFrame], dict[str, pl.DataFrame]]
"""Returns further rows by table for rows of `traces` and of `trace_tokens`."""


@dataclass(frozen=True, slots=True)
class BenchmarkInputs:
    """The model, as weights or behind an endpoint; pi_env as `simulator` plays the tools."""

    model: Weights | None
    endpoint: EndpointRef | None = None
    simulator: Weights | None = None


def compute(context: StageContext[BenchmarkInputs]) -> dict[str, Any]:
    """Attempt every item; judge the attempts; add the verdicts up."""
    if CERTIFIED in context.stage.reads:
        return import_module(CERTIFYING).certify_attempted(context, attempted)
    config, domain = context.config, benchmark_of(context.domain())
    items = items_of(domain, context.measured, context.seed_for("items"), context.scope)
    tasks = to_tasks(items)

    def judge(traces: pl.DataFrame, tokens: pl.DataFrame) -> dict[str, pl.DataFrame]:
        return {"benchmark_items": judged(domain, tasks, traces, tokens)}

    def headline(shards: Shards) -> Metric:
        verdicts = shards.rows("benchmark_items", shards.numbers)
        return headline_of(domain, result_of(domain, verdicts))

    shards = attempted(context, tasks, judge, headline)
    verdicts = shards.rows("benchmark_items", shards.numbers)
    result = result_of(domain, verdicts)  # which refuses no items
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


def attempted(
    context: StageContext[BenchmarkInputs],
    tasks: Sequence[Task],
    judge: Judge,
    headline: Callable[[Shards], Metric] | None = None,
) -> Shards:
    """Attempt tasks in order, all of them or as many as the precision of a headline takes.

    Returns their shards; `judge` adds rows to each. Without a headline it attempts all.
    """
    asked, settings = context.measured, context.config.rollout
    shards = Shards(context, 0, settings.shard_groups)
    kept, told = context.durable() / "attempts.jsonl", _Told(context, len(tasks))
    found: Metric | None = None
    opened: tuple[Player, Decode] | None = None
    with ExitStack() as stack:
        while more := next_round(found, shards.places, len(tasks), asked.precision):
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
                    rows = judge(tables["traces"], tables["trace_tokens"])
                    shards.finish(number, {**tables, **rows})
            if asked.precision is not None and headline is not None:
                found = headline(shards)
    return shards


def _told_of(context: StageContext[BenchmarkInputs]) -> JsonObject:
    """Return what a result says about the model's chat template; {} for an endpoint."""
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
    player = ChatPlayer(
        endpoint,
        context.domain(),
        bounds,
        seconds=context.measured.attempt_seconds,
        retries=retries_of(context),
        answered=answered,
    )
    yield player, lambda _: ""


class _Told:
    """Reports how many items are done."""

    def __init__(self, context: StageContext[BenchmarkInputs], total: int) -> None:
        self._context, self._done, self._total = context, 0, total

    def finished(self, done: int) -> None:
        """Report so many items, of this attempt at the stage and of earlier ones."""
        self._done = done
        self._say()

    def one_more(self) -> None:
        self._done += 1
        self._say()

    def _say(self) -> None:
        self._context.progress(self._done, self._total, "items")


def _sampling(settings: RolloutConfig, temperature: float) -> RolloutConfig:
    """Return the settings of the attempts with this temperature, which may be 0 only here."""
    return settings.model_copy(update={"temperature": temperature})


def _version(inputs: BenchmarkInputs) -> int:
    return inputs.model.policy_version if isinstance(inputs.model, CheckpointRef) else 0


benchmark = StageTask(STAGE, BenchmarkInputs, compute)
