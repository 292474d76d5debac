"""The transformers engine's session: rows join the running batch as soon as they are asked for.

The session keeps the keys and values of a conversation when its completion ends. The next prompt
begins with the same ids, so the session computes only its new part, the observation. It computes
equal prompts that come together once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from genenv_core.engines.prefixes import common_tokens
from genenv_core.engines.transformers.grammars import Held, hold
from genenv_core.engines.transformers.kv_cache import PREFILL_TOKENS
from genenv_core.engines.transformers.sampling import choose_tokens, uniform_streams
from genenv_core.engines.transformers.slots import Kept, Slots
from genenv_core.errors import EngineError
from genenv_core.types import Completion, FinishReason, Grammar, SampleRequest, SamplingParams

JOIN_SHARE = 1 / 8
"""Requests join once they are this share of the running rows: each join is a forward pass."""

JOIN_STEPS = 6
"""Steps after which requests join in any case."""

KEPT_TOKENS = 2**18
"""Tokens whose keys and values a session keeps for conversations; the oldest go first."""


@dataclass(slots=True)
class _Row:
    """One request being continued; `count` tokens are sampled."""

    tag: int
    prompt: tuple[int, ...]
    seed: int
    budget: int
    held: Held | None = None
    count: int = 0


class ContinuousSession:
    """See `genenv_core.engines.protocol.Session`.

    Args:
        model: a causal language model that `supports_padding`.
        params: shared by all requests; `max_tokens` is the largest bound of any.
        max_rows: rows decoded side by side; further ones wait.
        problem: returns why a prompt cannot be continued, or ''.
        begin: returns the state that holds a completion to its grammar, or None.
        positions: the longest sequence that the model can hold.
        computing: returns the context in which it computes.
    """

    def __init__(
        self,
        model: Any,
        params: SamplingParams,
        *,
        max_rows: int,
        problem: Callable[[tuple[int, ...]], str],
        begin: Callable[[Grammar | None], Held | None],
        positions: int,
        computing: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._params, self._max_rows = params, max_rows
        self._problem, self._positions, self._computing = problem, positions, computing
        self._begin = begin
        self._slots = Slots(model, max_rows)
        self._waiting: list[_Row] = []
        self._waited = 0
        self._rows: list[_Row] = []
        self._ended: list[tuple[int, Completion]] = []
        self._kept: dict[int, tuple[tuple[int, ...], Kept]] = {}
        self._kept_tokens = 0
        self._logits = torch.empty(0)
        self._stops = np.array(params.stop_token_ids, dtype=np.int64)
        shape = (max_rows, params.max_tokens)
        self._tokens = np.zeros(shape, dtype=np.int64)
        self._logprobs = np.zeros(shape, dtype=np.float32)
        self._uniforms = np.zeros(shape, dtype=np.float64)
        self.computed_tokens = 0
        """Prompt tokens computed so far; those kept or shared are not among them."""

    @property
    def computes(self) -> bool:
        """Return whether any row is being continued or waits."""
        return bool(self._rows or self._waiting or self._ended)

    def submit(self, tag: int, request: SampleRequest, max_tokens: int) -> None:
        """Add a request; it joins at one of the next steps."""
        wrong = self._problem(request.prompt_ids)
        if not 1 <= max_tokens <= self._params.max_tokens:
            wrong = f"max_tokens is {max_tokens}, outside of 1 to {self._params.max_tokens}"
        if wrong:
            refused = Completion((), (), FinishReason.ERROR, wrong, lasting=True)
            self._ended.append((tag, refused))
            return
        budget = min(max_tokens, self._positions - len(request.prompt_ids))
        held = self._begin(request.grammar)
        self._waiting.append(_Row(tag, request.prompt_ids, request.seed, budget, held))

    def advance(self) -> list[tuple[int, Completion]]:
        """Let rows join, and sample one token of each.

        Raises EngineError for logits that are NaN or infinite, and where torch fails.
        """
        with self._computing(), torch.inference_mode():
            try:
                self._join()
                if self._rows:
                    self._step()
            except RuntimeError as error:
                raise EngineError(
                    f"engine transformers: {len(self._rows)} rows of up to "
                    f"{int(self._slots.lengths.max())} tokens failed: {error}; if memory ran out, "
                    f"lower max_batch_rows (now {self._max_rows}) or max_tokens"
                ) from error
        ended, self._ended = self._ended, []
        return ended

    def forget(self, tag: int) -> None:
        """Drop what is kept for a conversation that will not continue."""
        self._kept_tokens -= len(self._kept.pop(tag, ((), None))[0])

    def close(self) -> None:
        """Drop everything."""
        self._waiting.clear()
        self._rows.clear()
        self._kept.clear()
        self._kept_tokens = self._slots.count = 0

    def _join(self) -> None:
        """Turn waiting requests into rows, as many as there is room for."""
        free = self._max_rows - len(self._rows)
        if not self._waiting or not free:
            return
        self._waited += 1
        few = len(self._waiting) < min(free, JOIN_SHARE * len(self._rows))
        if few and self._waited <= JOIN_STEPS:
            return
        self._waited = 0
        joining, self._waiting = self._waiting[:free], self._waiting[free:]
        copies: list[tuple[_Row, _Row]] = []
        first_of: dict[tuple[int, ...], _Row] = {}
        fresh: list[tuple[int, _Row, Kept | None]] = []
        for row in joining:
            kept = self._known(row)
            known = kept[0][0].shape[1] if kept else 0
            if not known and row.prompt in first_of:
                copies.append((row, first_of[row.prompt]))
                continue
            first_of.setdefault(row.prompt, row)
            fresh.append((len(row.prompt) - known, row, kept))
        # By the number of new tokens, so that little is padding.
        fresh.sort(key=lambda item: (item[0], item[1].tag))
        for chunk in _chunks(fresh):
            self.computed_tokens += sum(new for new, _, _ in chunk)
            rows = [row for _, row, _ in chunk]
            self._add(rows, self._slots.join([row.prompt for row in rows], [k for *_, k in chunk]))
        if copies:
            place = {row.tag: index for index, row in enumerate(self._rows)}
            sources = [place[source.tag] for _, source in copies]
            self._slots.double(sources, [len(row.prompt) for row, _ in copies])
            index = torch.as_tensor(sources, device=self._logits.device)
            self._add([row for row, _ in copies], self._logits[index])

    def _known(self, row: _Row) -> Kept | None:
        """Return the kept keys and values of a prompt's beginning, cut to their common ids."""
        ids, kept = self._kept.get(row.tag, ((), None))
        if kept is None:
            return None
        self.forget(row.tag)
        same = min(common_tokens([ids, row.prompt]), len(row.prompt) - 1)
        if not same:
            return None
        return [(keys[:, :same], values[:, :same]) for keys, values in kept]

    def _add(self, rows: list[_Row], logits: torch.Tensor) -> None:
        first = len(self._rows)
        self._rows += rows
        self._logits = torch.cat([self._logits, logits]) if first else logits
        if self._params.temperature > 0:
            longest = max(row.budget for row in rows)
            self._uniforms[first : len(self._rows), :longest] = uniform_streams(
                [row.seed for row in rows], longest
            )

    def _step(self) -> None:
        """Sample one token of each row, take out the ended rows, and continue the rest."""
        rows, index = self._rows, np.arange(len(self._rows))
        counts = np.array([row.count for row in rows])
        uniforms = None
        if self._params.temperature > 0:
            uniforms = torch.as_tensor(self._uniforms[index, counts]).to(self._logits.device)
        holding = {place: row.held for place, row in enumerate(rows) if row.held}
        logits = hold(self._logits, holding)
        chosen, chosen_logprobs = choose_tokens(logits, uniforms, self._params)
        tokens, logprobs = chosen.cpu().numpy(), chosen_logprobs.cpu().numpy()
        broken = np.flatnonzero(~np.isfinite(logprobs))
        if len(broken):
            row = rows[int(broken[0])]
            raise EngineError(
                f"engine transformers: request {row.tag} has logits that are NaN or infinite at "
                f"completion token {row.count}: the checkpoint is damaged or its training diverged"
            )
        self._tokens[index, counts], self._logprobs[index, counts] = tokens, logprobs
        stopped = np.isin(tokens, self._stops)
        alive = np.ones(len(rows), dtype=np.bool_)
        for place, row in enumerate(rows):
            row.count += 1
            if row.held:
                row.held.take(int(tokens[place]))
            if stopped[place] or row.count == row.budget:
                alive[place] = False
                self._finish(place, row, bool(stopped[place]))
        if not alive.all():
            order = closing_holes(alive)
            self._slots.keep(order)
            self._rows = [rows[place] for place in order]
            for array in (self._tokens, self._logprobs, self._uniforms):
                moved = np.flatnonzero(order != np.arange(len(order)))
                array[moved] = array[order[moved]]
            chosen = chosen[torch.as_tensor(order, device=chosen.device)]
        if self._rows:
            self._logits = self._slots.step(chosen)

    def _finish(self, place: int, row: _Row, stopped: bool) -> None:
        ids = tuple(self._tokens[place, : row.count].tolist())
        reason = FinishReason.STOP if stopped else FinishReason.LENGTH
        logprobs = tuple(self._logprobs[place, : row.count].tolist())
        self._ended.append((row.tag, Completion(ids, logprobs, reason)))
        if stopped:
            # The last token was sampled and never read.
            known = row.prompt + ids[:-1]
            self._kept[row.tag] = (known, self._slots.take_out(place, len(known)))
            self._kept_tokens += len(known)
            while self._kept_tokens > KEPT_TOKENS:
                self.forget(next(iter(self._kept)))


def closing_holes(alive: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the living rows, the last ones moved into the holes before them.

    Most rows stay in place, so few are copied.
    """
    count = int(alive.sum())
    order = np.arange(count)
    order[~alive[:count]] = count + np.flatnonzero(alive[count:])
    return order


def _chunks(
    fresh: list[tuple[int, _Row, Kept | None]],
) -> list[list[tuple[int, _Row, Kept | None]]]:
    """Return the joining rows, sorted by new tokens, in pieces of at most PREFILL_TOKENS padded."""
    pieces: list[list[tuple[int, _Row, Kept | None]]] = []
    for item in fresh:
        if not pieces or (len(pieces[-1]) + 1) * item[0] > PREFILL_TOKENS:
            pieces.append([])
        pieces[-1].append(item)
    return pieces
