"""Writes requests to a vLLM server, and checks its answers before genenv uses a token of them.

A request names every sampling parameter, so that no default of a server or of a checkpoint takes
part. The checks refuse an answer that is of another model, echoes another prompt, or counts wrong.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from pydantic import BaseModel, ValidationError

from genenv_core.errors import EngineError
from genenv_core.types import Completion, FinishReason, Grammar, SampleRequest, SamplingParams

SEEDS = 2**63
"""vLLM takes signed 64-bit seeds; ours are taken modulo this."""

MAX_N = 64
"""Samples of one prompt in one request at most, so that a lost answer costs little."""


ABORTED = ("abort", "error")
"""Finish reasons of a request that the server gave up."""


@dataclass(frozen=True, slots=True)
class WireRequest:
    """One HTTP request: `n` samples of a prompt with the seeds `seed`, `seed` + 1, ..."""

    prompt_ids: tuple[int, ...]
    seed: int
    n: int
    grammar: Grammar | None = None


class _Logprobs(BaseModel):
    token_logprobs: list[float]


class _Choice(BaseModel):
    index: int
    finish_reason: str | None
    token_ids: list[int]
    prompt_token_ids: list[int]
    logprobs: _Logprobs


class _End(BaseModel):
    finish_reason: str | None = None


class _Ends(BaseModel):
    choices: list[_End]


class _Answer(BaseModel):
    model: str
    choices: list[_Choice]


class _Model(BaseModel):
    id: str
    max_model_len: int | None = None


class Models(BaseModel):
    """The answer of /v1/models."""

    data: list[_Model]

    @property
    def names(self) -> list[str]:
        """Return the names of what is served."""
        return [model.id for model in self.data]

    @property
    def longest(self) -> int | None:
        """Return the longest sequence that every served model takes, None if it is unknown."""
        known = [model.max_model_len for model in self.data if model.max_model_len]
        return min(known, default=None)


def asked(requests: Sequence[SampleRequest], most: int = MAX_N) -> list[WireRequest]:
    """Return requests as few HTTP requests, in order, each for at most `most` samples.

    Neighbours with one prompt and rising seeds share one: vLLM gives sample i of a request with
    seed s the seed s + i, the seed that it would have had alone.
    """
    groups: list[WireRequest] = []
    for request in requests:
        seed = request.seed % SEEDS
        last = groups[-1] if groups else None
        if (
            last is not None
            and last.n < min(most, MAX_N)
            and seed == last.seed + last.n
            and request.prompt_ids == last.prompt_ids
            and request.grammar == last.grammar
        ):
            groups[-1] = WireRequest(last.prompt_ids, last.seed, last.n + 1, last.grammar)
        else:
            groups.append(WireRequest(request.prompt_ids, seed, 1, request.grammar))
    return groups


def body(model: str, ask: WireRequest, params: SamplingParams, max_tokens: int) -> dict[str, Any]:
    """Return the JSON body of POST /v1/completions."""
    payload: dict[str, Any] = {
        "model": model,
        "prompt": list(ask.prompt_ids),
        "max_tokens": max_tokens,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "seed": ask.seed,
        "n": ask.n,
        "logprobs": 0,
        "return_token_ids": True,
        # Spares the server the spelling of each token.
        "return_tokens_as_token_ids": True,
        # Only the caller's stop tokens end a completion; they include the checkpoint's end token.
        "ignore_eos": True,
        "stop_token_ids": list(params.stop_token_ids),
        "add_special_tokens": False,
        "skip_special_tokens": False,
    }
    if ask.grammar is not None:
        payload["structured_outputs"] = {ask.grammar.kind: ask.grammar.text}
    return payload


def completions(
    data: bytes, ask: WireRequest, *, where: str, model: str, max_tokens: int
) -> list[Completion]:
    """Return the `n` completions of an answer.

    Raises EngineError when the answer does not fit the request, Aborted when the server gave up.
    """
    try:
        answer = _Answer.model_validate_json(data)
    except ValidationError as error:
        _raise_aborted(data)  # of which the rest may be missing
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the whole"
        raise EngineError(
            f"{where} answers without what was asked for ({place}: {first['msg']}): it has to be a "
            "vLLM server that knows return_token_ids and logprobs"
        ) from error
    if answer.model != model:
        raise wrong_model(where, wanted=model, found=answer.model)
    choices = sorted(answer.choices, key=lambda choice: choice.index)
    if [choice.index for choice in choices] != list(range(ask.n)):
        raise EngineError(f"{where} answers {len(choices)} completions, {ask.n} were asked for")
    if any(choice.finish_reason in ABORTED for choice in choices):
        _raise_aborted(data)
    return [_completion(choice, ask, where, max_tokens) for choice in choices]


class Aborted(Exception):
    """The server took a request back before it answered; another try may succeed."""


def _raise_aborted(data: bytes) -> None:
    with contextlib.suppress(ValidationError):
        for choice in _Ends.model_validate_json(data).choices:
            if choice.finish_reason in ABORTED:
                raise Aborted(f"took the request back ({choice.finish_reason})")


def wrong_model(where: str, *, wanted: str, found: str) -> EngineError:
    """Return the error about a server with other weights than those asked for."""
    return EngineError(
        f"{where} answers for the model {found!r}, and {wanted!r} was asked for: nothing is "
        "sampled from other weights"
    )


def _completion(choice: _Choice, ask: WireRequest, where: str, max_tokens: int) -> Completion:
    ids, logprobs = choice.token_ids, choice.logprobs.token_logprobs
    problem = ""
    if tuple(choice.prompt_token_ids) != ask.prompt_ids:
        problem = f"for a prompt of {len(choice.prompt_token_ids)} other token ids"
    elif len(ids) != len(logprobs):
        problem = f"{len(ids)} token ids with {len(logprobs)} logprobs"
    elif not 1 <= len(ids) <= max_tokens:
        problem = f"{len(ids)} token ids, 1 to {max_tokens} were asked for"
    elif choice.finish_reason not in ("stop", "length"):
        problem = f"with the finish reason {choice.finish_reason!r}"
    elif not all(map(isfinite, logprobs)):
        problem = "with logprobs that are NaN or infinite: the checkpoint is damaged"
    if problem:
        raise EngineError(f"{where} answers {problem}")
    return Completion(tuple(ids), tuple(logprobs), FinishReason(choice.finish_reason))
