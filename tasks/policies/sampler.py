"""Attempts at tasks: opens the engines, chooses the tools, yields the groups."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from genenv_core.config.schema import RunConfig
from genenv_core.play.answer import answer_probabilities
from genenv_core.play.answering import Simulation, ToolExecution
from genenv_core.play.attempt import AttemptBounds, Play, SeedOf
from genenv_core.play.chat import ChatFormat
from genenv_core.play.driver import run_episodes
from genenv_core.play.simulator import Simulator
from genenv_core.storage.records.manifest import FileRef, Weights
from genenv_core.types import Rollout, SamplingParams, TaskDraft
from tasks.policies.engine import engine_of, retries_of
from tasks.stage import StageContext
from tasks.stage.progress import check


class Sampler:
    """A checkpoint of pi_agent that attempts tasks; `sampler` opens and closes it.

    `simulator` is a checkpoint of pi_env that plays the tools; with None the tools run.
    """

    def __init__(
        self,
        context: StageContext[Any],
        agent: Weights,
        simulator: Weights | None,
        stack: ExitStack,
    ) -> None:
        config = context.config
        self._context = context
        folder, digest = _found(context, agent)
        self.chat = agents_chat(context, agent)
        self._engine = engine_of(context, folder, digest, top_p=config.rollout.top_p)
        stack.callback(self._engine.close)
        self._domain = context.domain()
        self._tools: ToolExecution | Simulation | None = None
        if simulator is not None:
            folder, digest = _found(context, simulator)
            engine = engine_of(context, folder, digest, top_p=1.0)
            stack.callback(engine.close)
            self._tools = Simulation(
                engine,
                SamplingParams(config.tools.max_tokens, config.tools.temperature),
                Simulator(
                    self._domain,
                    ChatFormat.load(folder, config.models.env_chat_template_kwargs),
                    max_length=config.rollout.max_length,
                ),
                structured=config.compute.engine == "vllm",
            )
        elif config.tools.execution != "inline":
            self._tools = ToolExecution(context.execution.tool_workers, config.tools.timeout_s)

    def groups(
        self,
        batches: Sequence[Sequence[tuple[str, TaskDraft]]],
        *,
        n: int,
        params: SamplingParams,
        seed_of: SeedOf,
    ) -> Iterator[tuple[int, list[Rollout]]]:
        """Yield (index of a task among those of all batches, its n rollouts) as they finish.

        With inline tools it attempts the batches one after the other. Otherwise the attempts of all
        batches run together.
        """
        play = self._play(n, params, seed_of)
        most = None
        if self._tools is not None:
            batches = [[task for batch in batches for task in batch]]
            most = self._context.execution.open_attempts
        first = 0
        for batch in batches:
            for place, rollouts in run_episodes(
                batch,
                play,
                tools=self._tools,
                open_attempts=most,
                retries=retries_of(self._context),
                check=check,
            ):
                yield first + place, rollouts
            first += len(batch)

    def answer_probabilities(
        self, tasks: Sequence[tuple[str, TaskDraft]], *, params: SamplingParams, seed_of: SeedOf
    ) -> list[float] | None:
        """Return how probable each task's reference answer is; see `genenv_core.play.answer`."""
        return answer_probabilities(tasks, self._play(1, params, seed_of))

    def _play(self, n: int, params: SamplingParams, seed_of: SeedOf) -> Play:
        bounds = bounds_of(self._context.config, n)
        return Play(self._domain, self._engine, self.chat, bounds, params, seed_of)


def bounds_of(config: RunConfig, n: int) -> AttemptBounds:
    """Return the bounds of each of n attempts at a task."""
    return AttemptBounds(
        n=n,
        max_turns=config.rollout.max_turns,
        max_length=config.rollout.max_length,
        max_errors=config.tools.max_errors,
    )


def agents_chat(context: StageContext[Any], agent: Weights) -> ChatFormat:
    """Return the chat format of a checkpoint of pi_agent."""
    variables = context.config.models.agent_chat_template_kwargs
    return ChatFormat.load(_found(context, agent)[0], variables)


def _found(context: StageContext[Any], model: Weights) -> tuple[Path, str]:
    """Return the folder of a checkpoint, and its digest."""
    if isinstance(model, FileRef):
        return Path(model.path), model.sha256
    return context.checkpoint(model), model.digest


@contextmanager
def sampler(
    context: StageContext[Any], agent: Weights, simulator: Weights | None = None
) -> Generator[Sampler]:
    """Open a sampler; close its engines at the end."""
    with ExitStack() as stack:
        yield Sampler(context, agent, simulator, stack)
