"""The Engine protocol: token-id prompts in, token ids and logprobs out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from genenv_core.types import Completion, SampleRequest, SamplingParams


class Engine(Protocol):
    """Samples completions from one checkpoint.

    The caller may rely on: answers come in request order; a completion depends on its own prompt,
    seed and the parameters (up to the rounding of batched arithmetic, so equal batches give equal
    bits); text is never re-tokenised. Raises `EngineError` when sampling is impossible; a single
    request that fails is a completion with finish_reason `error`.

    `thread_safe` says whether `sample` may be called from several threads at once; a driver of
    multi-turn episodes then lets each episode advance on its own instead of in waves.
    """

    thread_safe: bool

    def sample(self, requests: Sequence[SampleRequest], params: SamplingParams) -> list[Completion]:
        """Return one completion a request, in order."""
        ...

    def close(self) -> None:
        """Give back memory and processes; later calls of `sample` are errors."""
        ...
