"""The Engine protocol: token-id prompts in, token ids and logprobs out."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Protocol, runtime_checkable

from genenv_core.types import Completion, SampleRequest, SamplingParams


class Engine(Protocol):
    """Samples completions from one checkpoint.

    The caller may rely on: answers come in request order; a completion depends on its own prompt,
    seed and the parameters (up to the rounding of batched arithmetic, so equal batches give equal
    bits); text is never re-tokenised. Raises `EngineError` when sampling is impossible; a single
    request that fails is a completion with finish_reason `error`.

    `thread_safe` says whether `sample` may be called from several threads at once. Then, or when
    the engine is `Continuous` or `Submits`, episodes that wait for their tools do not hold up
    others; see `genenv_core.engines.session`.
    """

    thread_safe: bool

    def sample(self, requests: Sequence[SampleRequest], params: SamplingParams) -> list[Completion]:
        """Return one completion a request, in order."""
        ...

    def close(self) -> None:
        """Give back memory and processes; later calls of `sample` are errors."""
        ...


class Session(Protocol):
    """Sampling to which requests are added while others are under way; used by one thread.

    `tag` names a conversation: of its last completion the engine may keep what it computed, so that
    a longer prompt with the same beginning costs only what is new. The promises of `Engine` hold,
    a request that fails alone is a completion with finish_reason `error`.
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
        """Give up what is kept for a conversation that will not go on."""
        ...

    def close(self) -> None:
        """Give up everything; answers under way are dropped."""
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
