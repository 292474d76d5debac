"""The Engine protocol: token-id prompts in, token ids and logprobs out.

`open_engine` finds an engine's module by its kind, so a process loads only the chosen engine, and
only that engine's code counts in the keys of the stages that sample.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol, runtime_checkable

from genenv_core.config.sections.compute import EngineKind, ExecutionConfig
from genenv_core.config.sections.unions.compute import ComputeSection
from genenv_core.types import Completion, SampleRequest, SamplingParams


class Engine(Protocol):
    """Samples completions from one checkpoint.

    The caller may rely on: answers come in request order; a completion depends on its own prompt,
    seed and the parameters (up to the rounding of batched arithmetic, so equal batches give equal
    bits); text is never re-tokenised. Raises `EngineError` when sampling is impossible; a single
    request that fails is a completion with finish_reason `error`.

    Where the engine is `Continuous` or `Submits` too, episodes that wait for their tools do not
    hold up others; see `genenv_core.engines.sessions`.
    """

    def sample(self, requests: Sequence[SampleRequest], params: SamplingParams) -> list[Completion]:
        """Return one completion a request, in order."""
        ...

    def close(self) -> None:
        """Give back memory and processes; later calls of `sample` are errors."""
        ...


@dataclass(frozen=True, slots=True)
class TokenSequence:
    """Tokens that follow a prompt."""

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EngineSetup:
    """The arguments of opening an engine, of which each engine uses those that it needs.

    `digest` is the checkpoint's, `top_p` the nucleus of all later sampling; `durable` returns a
    folder that survives a crash. The engine calls `check` in every wait; what it raises ends the
    wait.
    """

    checkpoint: Path
    digest: str
    compute: ComputeSection
    execution: ExecutionConfig
    top_p: float
    durable: Callable[[], Path]
    check: Callable[[], None]


def engine_module(kind: EngineKind) -> str:
    """Return the name of an engine's module: its `open_engine` takes an `EngineSetup`."""
    return f"genenv_core.engines.{kind}.engine"


def open_engine(setup: EngineSetup) -> Engine:
    """Return the configured engine on a checkpoint; close it when done.

    Raises `ModelError` for a checkpoint it cannot use.
    """
    return import_module(engine_module(setup.compute.engine)).open_engine(setup)


@runtime_checkable
class ScoresTokens(Protocol):
    """An engine that knows how probable given tokens are, without sampling them."""

    def logprobs(
        self, sequences: Sequence[TokenSequence], params: SamplingParams
    ) -> list[list[float]]:
        """Return the logprob of each token after a sequence's prompt, at each position as sampled.

        It is that of the distribution which `sample` draws from, so -inf outside of the nucleus.
        Raises `EngineError` for ids outside of the vocabulary, too many of them, and temperature 0.
        """
        ...


class Session(Protocol):
    """Sampling to which requests are added while others are under way; used by one thread.

    `tag` names a conversation. The engine may keep what it computed for its last completion, so
    that a longer prompt with the same beginning costs only its new part. The promises of `Engine`
    hold: a single request that fails becomes a completion with finish_reason `error`.
    """

    @property
    def computes(self) -> bool:
        """Return whether `advance` has something to compute in this process."""
        ...

    def submit(self, tag: int, request: SampleRequest, max_tokens: int) -> None:
        """Add a request whose completion may have this many tokens; one at a time for each tag."""
        ...

    def advance(self) -> list[tuple[int, Completion]]:
        """Compute a little, and return what has ended since the last call; raises EngineError."""
        ...

    def forget(self, tag: int) -> None:
        """Drop what the engine keeps for a conversation that will not go on."""
        ...

    def close(self) -> None:
        """Drop everything, answers under way too."""
        ...


@runtime_checkable
class Submits(Protocol):
    """An engine elsewhere, whose answers come while this process does something else."""

    def submit(self, request: SampleRequest, params: SamplingParams) -> Future[Completion]:
        """Return the completion to come; cancelling it ends its request. From any thread."""
        ...


@runtime_checkable
class Continuous(Protocol):
    """An engine that takes new requests while others are under way."""

    def open_session(self, params: SamplingParams) -> Session:
        """Return a session; its requests share all of `params` but `max_tokens`, an upper bound."""
        ...
