"""Attempts at tasks for the stages that make them: engines opened, tools chosen, groups out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from genenv_core.attempts import Bounds, Play, SeedOf
from genenv_core.chat import ChatFormat
from genenv_core.episodes import Simulation, Tools, run_episodes
from genenv_core.rollout import run_rollouts
from genenv_core.simulation import Simulator
from genenv_core.types import Rollout, SamplingParams, TaskDraft
from tasks.engine import engine_of
from tasks.progress import check
from tasks.stage import StageContext


class Weights(NamedTuple):
    """A checkpoint laid out in a folder, and its digest, by which servers call it."""

    folder: Path
    digest: str


def weights_of(context: StageContext, name: str) -> Weights:
    """Return a checkpoint that is an input of the stage."""
    return Weights(context.checkpoint(name), context.checkpoint_ref(name).digest)


class Sampler:
    """A checkpoint of pi_agent that attempts tasks; `sampler` opens and closes it.

    `simulator` is a checkpoint of pi_env that plays the tools, None has them executed.
    """

    def __init__(
        self, context: StageContext, agent: Weights, simulator: Weights | None, stack: ExitStack
    ) -> None:
        config = context.config
        self._context = context
        kind = config.compute.engine
        self.chat = ChatFormat.load(agent.folder)
        self._engine = engine_of(context, *agent, top_p=config.rollout.top_p)
        stack.callback(self._engine.close)
        self._domain = context.domain()
        self._tools: Tools | Simulation | None = None
        if simulator is not None:
            engine = engine_of(context, *simulator, top_p=1.0)
            stack.callback(engine.close)
            self._tools = Simulation(
                engine,
                SamplingParams(config.tools.max_tokens, config.tools.temperature),
                Simulator(
                    self._domain,
                    ChatFormat.load(simulator.folder),
                    max_length=config.rollout.max_length,
                ),
                structured=kind == "vllm",
            )
        elif config.tools.execution != "inline":
            self._tools = Tools(context.execution.tool_workers, config.tools.timeout_s)

    def groups(
        self,
        tasks: Sequence[tuple[str, TaskDraft]],
        *,
        batch: int,
        n: int,
        params: SamplingParams,
        seed_of: SeedOf,
    ) -> Iterator[tuple[int, list[Rollout]]]:
        """Yield (index of a task, its n rollouts) as they are finished.

        Attempts that are answered at once are made in batches of this many tasks, in order; others
        each on its own.
        """
        config = self._context.config
        bounds = Bounds(
            n=n,
            max_turns=config.rollout.max_turns,
            max_length=config.rollout.max_length,
            max_errors=config.tools.max_errors,
        )
        play = Play(self._domain, self._engine, self.chat, bounds, params, seed_of)
        if self._tools is not None:
            yield from run_episodes(
                tasks,
                play,
                tools=self._tools,
                open_attempts=self._context.execution.open_attempts,
                check=check,
            )
            return
        for start in range(0, len(tasks), batch):
            check()
            made = run_rollouts(tasks[start : start + batch], play)
            for offset in range(0, len(made), n):
                yield start + offset // n, made[offset : offset + n]


@contextmanager
def sampler(
    context: StageContext, agent: Weights, simulator: Weights | None = None
) -> Iterator[Sampler]:
    """Open a sampler; its engines are closed at the end."""
    with ExitStack() as stack:
        yield Sampler(context, agent, simulator, stack)
