"""Chooses who answers the agent: the domain's tools, inline or in workers, or pi_env."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial

from genenv_core.domains.protocol import repeatable
from genenv_core.domains.steps import EPISODE_TURN, stepped
from genenv_core.engines.protocol import Engine
from genenv_core.engines.retries import LOOK_S
from genenv_core.engines.sessions import Mailbox, open_session
from genenv_core.play.attempt import Attempt, Play, with_stops
from genenv_core.play.simulator import SIMULATED_TURN, Simulator
from genenv_core.play.tool_workers import ToolWorkers
from genenv_core.types import Observation, SampleRequest, SamplingParams


@dataclass(frozen=True, slots=True)
class ToolExecution:
    """How the driver runs the domain's tools.

    Args:
        workers: steps that run side by side.
        timeout_s: longest step, in seconds; the driver gives up a longer one, which becomes a
            failed observation.
    """

    workers: int
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Simulation:
    """pi_env in the place of the tools: its engine, its sampling, and its prompts.

    With `structured` the engine holds pi_env's text to the domain's schema.
    """

    engine: Engine
    params: SamplingParams
    simulator: Simulator
    structured: bool = False


class Answering(ABC):
    """Answers the agent, at once or later."""

    @abstractmethod
    def open(self, tag: int, attempt: Attempt) -> Observation | None:
        """Open an attempt's episode and return the outcome; None where `advance` will return it."""

    @abstractmethod
    def ask(self, tag: int, attempt: Attempt, action: str) -> Observation | None:
        """Return the environment's answer; None where `advance` will return it."""

    @property
    def computes(self) -> bool:
        """Return whether `advance` has work to do in this thread."""
        return False

    def advance(self) -> list[tuple[int, Observation]]:
        """Return the answers that have come since the last call, each with its attempt's tag."""
        return []

    def patience(self) -> float:
        """Return the seconds after which `advance` may have an answer even without mail."""
        return LOOK_S

    def forget(self, tag: int) -> None:  # noqa: B027  # most keep nothing
        """Drop what is stored for an attempt that has ended."""

    def close(self) -> None:  # noqa: B027
        """Ask nothing more, and do not wait for answers."""


class _Step:
    """One step of one attempt, which any thread may take."""

    def __init__(self, play: Play, attempt: Attempt) -> None:
        self.attempt, self.episode = attempt, attempt.episode
        self._domain, self._draft, self._done = play.domain, attempt.draft, tuple(attempt.actions)
        self._seed = play.seed_of(attempt.task_id, attempt.sample_index, EPISODE_TURN)

    def open(self) -> Observation:
        """Open the episode, before the first turn."""
        self.episode = self._domain.episode(self._draft, self._seed)
        return Observation(done=False)

    def take(self, action: str) -> Observation:
        """Return the environment's answer; make a lost episode anew first, and repeat its steps."""
        if self.episode is None:
            again = self._domain.episode(self._draft, self._seed)
            for done in self._done:
                again.step(done)
            self.episode = again
        return self.episode.step(action)


class Inline(Answering):
    """Runs the domain's own code inline, in the driver's thread."""

    def __init__(self, play: Play) -> None:
        self._play = play

    def open(self, tag: int, attempt: Attempt) -> Observation:
        step = _Step(self._play, attempt)
        observation = stepped(step.open)
        attempt.episode = step.episode
        return observation

    def ask(self, tag: int, attempt: Attempt, action: str) -> Observation:
        assert attempt.episode is not None
        return stepped(attempt.episode.step, action)


class ByWorkers(Answering):
    """Runs the domain's own code in workers."""

    def __init__(self, play: Play, tools: ToolExecution, mailbox: Mailbox) -> None:
        self._play, self._repeatable = play, repeatable(play.domain)
        self._workers = ToolWorkers(tools.workers, tools.timeout_s, mailbox)
        self._asked: dict[int, _Step] = {}

    def open(self, tag: int, attempt: Attempt) -> None:
        self._asked[tag] = step = _Step(self._play, attempt)
        self._workers.submit(tag, partial(stepped, step.open))

    def ask(self, tag: int, attempt: Attempt, action: str) -> None:
        self._asked[tag] = step = _Step(self._play, attempt)
        self._workers.submit(tag, partial(stepped, step.take, action))

    def advance(self) -> list[tuple[int, Observation]]:
        """Return the answers that have come, and a failure for each step over its time limit."""
        answers = self._workers.collect()
        for answer in answers:
            step = self._asked.pop(answer.tag)
            # The worker that is stuck in a lost step still holds its episode.
            step.attempt.episode = None if answer.lost else step.episode
            step.attempt.stranded = answer.lost and not self._repeatable
        return [(answer.tag, answer.observation) for answer in answers]

    def patience(self) -> float:
        return self._workers.patience()

    def close(self) -> None:
        self._workers.close()


class Simulated(Answering):
    """Asks pi_env for each observation."""

    def __init__(self, play: Play, simulation: Simulation, mailbox: Mailbox) -> None:
        self._simulator, self._seed_of = simulation.simulator, play.seed_of
        self._grammar = simulation.simulator.grammar() if simulation.structured else None
        self._params = with_stops(simulation.params, simulation.simulator.chat)
        self._session = open_session(simulation.engine, self._params, mailbox)

    @property
    def computes(self) -> bool:
        return self._session.computes

    def open(self, tag: int, attempt: Attempt) -> Observation:
        return Observation(done=False)  # there is nothing to open

    def ask(self, tag: int, attempt: Attempt, action: str) -> Observation | None:
        prompt = self._simulator.prompt(attempt.draft, attempt.messages)
        if isinstance(prompt, Observation):
            return prompt
        turn = SIMULATED_TURN - (attempt.turns - 1)
        seed = self._seed_of(attempt.task_id, attempt.sample_index, turn)
        request = SampleRequest(prompt, seed, self._grammar)
        self._session.submit(tag, request, self._params.max_tokens)
        return None

    def advance(self) -> list[tuple[int, Observation]]:
        return [(tag, self._simulator.read(done)) for tag, done in self._session.advance()]

    def forget(self, tag: int) -> None:
        self._session.forget(tag)

    def close(self) -> None:
        self._session.close()
