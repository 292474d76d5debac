"""The in-process engine: its own decode loop over a Hugging Face causal language model.

Why not `model.generate`: it keeps computing rows that have ended, prefills a prompt once for every
sample of it, copies the whole cache at each token, and draws from one generator for the whole
batch, so that a request's tokens depend on its neighbours. Here rows that ended leave the batch, a
prompt is prefilled once, a step writes one cache column, and each request owns its randomness.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from genenv_core.config.sections.compute import Device
from genenv_core.engines.protocol import EngineSetup, Session, TokenSequence
from genenv_core.engines.sessions import BatchSession
from genenv_core.engines.transformers.continuous import ContinuousSession, closing_holes
from genenv_core.engines.transformers.grammars import Grammars, Held, hold
from genenv_core.engines.transformers.kv_cache import (
    PREFILL_TOKENS,
    AlignedState,
    DecodeState,
    PaddedState,
    check_continues,
    supports_padding,
)
from genenv_core.engines.transformers.loading import give_back, load_model, torch_threads
from genenv_core.engines.transformers.sampling import check_params, choose_tokens, uniform_streams
from genenv_core.engines.transformers.token_logprobs import score_tokens
from genenv_core.engines.transformers.unloaded import steady_positions
from genenv_core.errors import EngineError
from genenv_core.types import Completion, FinishReason, Grammar, SampleRequest, SamplingParams

DROP_SHARE = 1 / 16
"""Ended rows leave once they are this share of the batch, because each removal copies some rows."""


def open_engine(setup: EngineSetup) -> TransformersEngine:
    """Return the engine on a checkpoint; raises as `TransformersEngine.load` does."""
    compute = setup.compute
    return TransformersEngine.load(setup.checkpoint, threads=compute.threads, device=compute.device)


class TransformersEngine:
    """Samples from one model in this process. See `Engine` for its guarantees.

    Args:
        model: any causal language model that takes a standard `past_key_values` cache.
        threads: torch CPU threads while sampling; they change rounding, so they are part of keys.
        max_batch_rows: sequences decoded side by side; bounds the memory of the cache.
        checkpoint: folder of the model's tokenizer, which a request with a grammar needs.

    Raises EngineError where `threads` or `max_batch_rows` is below 1, and for calls after `close`.
    """

    def __init__(
        self,
        model: Any,
        *,
        threads: int,
        max_batch_rows: int = 512,
        checkpoint: Path | None = None,
    ) -> None:
        if threads < 1 or max_batch_rows < 1:
            raise EngineError(
                f"engine transformers: threads is {threads} and max_batch_rows {max_batch_rows}; "
                "both must be at least 1"
            )
        self._model: Any = model.eval()
        self._checkpoint, self._grammars = checkpoint, None
        self._threads = threads
        self._max_batch_rows = max_batch_rows
        self._padded = supports_padding(model)
        config = model.config.get_text_config()
        self._vocab_size = int(model.get_input_embeddings().weight.shape[0])
        # Architectures without position limits (ALiBi, recurrent ones) do not have the setting.
        most = int(getattr(config, "max_position_embeddings", None) or 2**31)
        self._max_positions = min(most, steady_positions(config) or most)

    @classmethod
    def load(cls, checkpoint: Path, *, threads: int, device: Device = "cpu") -> TransformersEngine:
        """Return an engine on the checkpoint in a directory of config.json and safetensors.

        Raises `EngineError` where `device` is cuda and torch finds no GPU, and for a model that
        cannot be continued from a cache.
        """
        if device == "cuda" and not torch.cuda.is_available():
            raise EngineError(
                "compute.device is cuda and torch finds no GPU here: run the stage where there is "
                "one (section placement), or set compute.device=cpu"
            )
        model = load_model(checkpoint, dtype=torch.float32).to(device).eval()
        with torch_threads(threads), torch.inference_mode():
            check_continues(model, checkpoint)
        return cls(model, threads=threads, checkpoint=checkpoint)

    def sample(self, requests: Sequence[SampleRequest], params: SamplingParams) -> list[Completion]:
        if self._model is None:
            raise EngineError("engine transformers: sample was called after close")
        check_params(params, self._vocab_size)
        answers: dict[int, Completion] = {}
        good: list[int] = []
        for index, request in enumerate(requests):
            problem = self._problem(request.prompt_ids)
            if problem:
                answers[index] = Completion((), (), FinishReason.ERROR, problem, lasting=True)
            else:
                good.append(index)
        with torch_threads(self._threads), torch.inference_mode():
            for batch in self._batches(requests, good):
                answers.update(self._decode(requests, batch, params))
        return [answers[index] for index in range(len(requests))]

    def open_session(self, params: SamplingParams) -> Session:
        """Return a session that rows join and leave; an architecture without padding has batches.

        Completions have the same tokens as `sample`, up to the rounding of batched arithmetic.
        """
        if self._model is None:
            raise EngineError("engine transformers: open_session was called after close")
        check_params(params, self._vocab_size)
        if not self._padded:
            return BatchSession(self, params)
        return ContinuousSession(
            self._model,
            params,
            max_rows=self._max_batch_rows,
            problem=self._problem,
            begin=partial(self._begin, stops=params.stop_token_ids),
            positions=self._max_positions,
            computing=partial(torch_threads, self._threads),
        )

    def logprobs(
        self, sequences: Sequence[TokenSequence], params: SamplingParams
    ) -> list[list[float]]:
        """Return the logprob of each token in nats, from one forward pass of each sequence."""
        if self._model is None:
            raise EngineError("engine transformers: logprobs was called after close")
        check_params(params, self._vocab_size)
        if params.temperature == 0:
            raise EngineError("engine transformers: logprobs needs a temperature above 0")
        for sequence in sequences:
            if problem := self._problem((*sequence.prompt_ids, *sequence.token_ids)):
                raise EngineError(f"engine transformers: logprobs: {problem}")
        with torch_threads(self._threads), torch.inference_mode():
            return score_tokens(self._model, sequences, params)

    def close(self) -> None:
        """Forget the model and give its memory back; later calls of `sample` are errors."""
        self._model = None
        give_back()

    def _begin(self, grammar: Grammar | None, stops: Sequence[int]) -> Held | None:
        """Return the state that holds a completion to its grammar, None without a grammar."""
        if grammar is None:
            return None
        if self._grammars is None:
            if self._checkpoint is None:
                raise EngineError("engine transformers: a grammar needs the checkpoint's tokenizer")
            self._grammars = Grammars(self._checkpoint, self._vocab_size)
        return self._grammars.begin(grammar, stops)

    def _problem(self, prompt: tuple[int, ...]) -> str:
        """Return why this prompt cannot be continued, or ''."""
        if not prompt:
            return "the prompt is empty: give at least one token id"
        if len(prompt) >= self._max_positions:
            return (
                f"the prompt has {len(prompt)} tokens and the model {self._max_positions} "
                "positions, which leaves no room for a completion: shorten the prompt"
            )
        low, high = min(prompt), max(prompt)
        if low < 0 or high >= self._vocab_size:
            return (
                f"the prompt has token id {low if low < 0 else high}, outside the model's "
                f"vocabulary of {self._vocab_size}: use the checkpoint's own tokenizer"
            )
        return ""

    def _batches(self, requests: Sequence[SampleRequest], indices: list[int]) -> list[list[int]]:
        """Return request indices in batches, equal prompts side by side, lengths rising.

        The order depends on prompts and seeds alone, so permuted requests give equal bits.
        """
        ordered = sorted(
            indices,
            key=lambda i: (len(requests[i].prompt_ids), requests[i].prompt_ids, requests[i].seed),
        )
        batches: list[list[int]] = []
        for index in ordered:
            length = len(requests[index].prompt_ids)
            limit = self._max_batch_rows
            if not self._padded:
                limit = min(limit, max(1, PREFILL_TOKENS // length))
            full = not batches or len(batches[-1]) >= limit
            if full or (not self._padded and len(requests[batches[-1][0]].prompt_ids) != length):
                batches.append([])
            batches[-1].append(index)
        return batches

    def _state(self, prompts: list[tuple[int, ...]], max_tokens: int) -> DecodeState:
        """Return the prefilled batch; `prompts` are sorted, one for each row."""
        distinct = list(dict.fromkeys(prompts))
        place = {prompt: index for index, prompt in enumerate(distinct)}
        prompt_of_row = np.array([place[prompt] for prompt in prompts], dtype=np.int64)
        if not self._padded:
            return AlignedState(self._model, distinct, prompt_of_row)
        return PaddedState(
            self._model,
            distinct,
            prompt_of_row,
            max_tokens=max_tokens,
            prefill_tokens=PREFILL_TOKENS,
        )

    def _decode(
        self, requests: Sequence[SampleRequest], batch: list[int], params: SamplingParams
    ) -> dict[int, Completion]:
        """Return the completions of one batch by request index."""
        prompts = [requests[index].prompt_ids for index in batch]
        budgets = np.array(
            [min(params.max_tokens, self._max_positions - len(prompt)) for prompt in prompts]
        )
        longest = int(budgets.max())
        try:
            tokens, logprobs, lengths = self._loop(
                self._state(prompts, longest),
                [self._begin(requests[index].grammar, params.stop_token_ids) for index in batch],
                [requests[index].seed for index in batch],
                budgets,
                params,
                batch,
            )
        except RuntimeError as error:
            raise EngineError(
                f"engine transformers: {len(batch)} rows with prompts of up to "
                f"{len(prompts[-1])} tokens failed: {error}; if memory ran out, lower "
                f"max_batch_rows (now {self._max_batch_rows}) or max_tokens"
            ) from error
        stops = set(params.stop_token_ids)
        answers: dict[int, Completion] = {}
        for row, index in enumerate(batch):
            ids = tuple(tokens[row, : lengths[row]].tolist())
            answers[index] = Completion(
                token_ids=ids,
                logprobs=tuple(logprobs[row, : lengths[row]].tolist()),
                finish_reason=FinishReason.STOP if ids[-1] in stops else FinishReason.LENGTH,
            )
        return answers

    def _loop(
        self,
        state: DecodeState,
        held: list[Held | None],
        seeds: list[int],
        budgets: NDArray[np.int64],
        params: SamplingParams,
        batch: list[int],
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]:
        """Return token ids and logprobs, `(rows, longest)`, and how many are valid, `(rows,)`.

        Row i of the state writes row `slots[i]` of the answer. Ended rows are no longer `alive`;
        they are still computed until enough of them can leave.
        """
        rows, longest = len(seeds), int(budgets.max())
        tokens = np.zeros((rows, longest), dtype=np.int64)
        logprobs = np.zeros((rows, longest), dtype=np.float32)
        lengths = np.zeros(rows, dtype=np.int64)
        is_stop = np.zeros(state.logits.shape[-1], dtype=np.bool_)
        is_stop[list(params.stop_token_ids)] = True
        streams = uniform_streams(seeds, longest) if params.temperature > 0 else None
        slots, alive = np.arange(rows), np.ones(rows, dtype=np.bool_)
        holds = {slot: one for slot, one in enumerate(held) if one}
        for step in range(longest):
            uniforms = None
            if streams is not None:
                uniforms = torch.as_tensor(streams[slots, step]).to(state.logits.device)
            living = np.flatnonzero(alive).tolist() if holds else []
            holding = {row: holds[slots[row]] for row in living if slots[row] in holds}
            chosen, chosen_logprobs = choose_tokens(hold(state.logits, holding), uniforms, params)
            step_tokens = chosen.cpu().numpy()
            step_logprobs = chosen_logprobs.cpu().numpy()
            broken = alive & ~np.isfinite(step_logprobs)
            if broken.any():
                raise EngineError(
                    f"engine transformers: request {batch[slots[broken][0]]} has logits that are "
                    f"NaN or infinite at completion token {step}: the checkpoint is damaged or its "
                    "training diverged"
                )
            for row, one in holding.items():
                one.take(int(step_tokens[row]))
            tokens[slots, step], logprobs[slots, step] = step_tokens, step_logprobs
            ended = is_stop[step_tokens] | (budgets[slots] == step + 1)
            lengths[slots[alive & ended]] = step + 1
            alive &= ~ended
            remaining = int(alive.sum())
            if not remaining:
                break
            if len(alive) - remaining >= DROP_SHARE * len(alive):
                order = closing_holes(alive)
                state.keep(order)
                slots, alive = slots[order], alive[order]
                chosen = chosen[torch.as_tensor(order).to(chosen.device)]
            state.step(chosen)
        return tokens, logprobs, lengths
