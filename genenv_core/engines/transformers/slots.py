"""Key-value caches of rows that join and leave: a row has a slot, its tokens at columns 0, 1, ...

In `PaddedState` all prompts end at one column. Here a row may have any length at any time, so
another one can join the running batch, with the keys and values of its beginning from earlier. A
step writes one cell a row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad
from transformers.cache_utils import Cache, DynamicLayer

from genenv_core.engines.transformers.kv_cache import SPARE_COLUMNS

# On a CPU, the bits of a row's result must not depend on the rows beside it. They did, measured
# with torch 2.13 on two processors with AVX-512; these numbers prevent it:
LEAST = 16
"""Rows, at least: products of fewer rows may be summed in another order. An older processor does so
below 4 rows, whatever the width; Sapphire Rapids below 3 at width 64, 7 at 160, 16 from 384 on."""

STEP = 4
"""Rows, and new tokens of rows that join, come in multiples of this: attention takes queries in
blocks of 32 and what is left."""

VECTOR = 32
"""Attention reads a multiple of this many columns, and activations hold a multiple of this many
numbers: torch computes functions in another way behind the last whole vector."""

WHOLE, BLOCK = 192, 512
"""A batch looks at up to WHOLE columns, or at a multiple of BLOCK: attention takes them in blocks,
and a product over more than WHOLE is summed in pieces that depend on their number."""

Kept = list[tuple[Tensor, Tensor]]
"""A sequence's keys and values, `(heads, tokens, dim)`, layer by layer."""


@dataclass(frozen=True, slots=True)
class ForwardPlace:
    """Where one forward pass writes and reads: rows [first, last), columns [0, used).

    `rows` and `columns`, `(batch, tokens)`, are the cells that the new tokens go to.
    """

    first: int
    last: int
    used: int
    rows: Tensor
    columns: Tensor


class SlotLayer(DynamicLayer):
    """One layer's keys and values, `(slots, heads, columns, dim)`.

    The last column belongs to no row: padding is written there and never read.
    """

    def __init__(self) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self.slabs: list[Tensor] = []
        self.place: ForwardPlace | None = None
        self.room: tuple[int, int] = (0, 0)

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write `(batch, heads, tokens, dim)` states; return all that the batch may attend to."""
        place = self.place
        assert place is not None
        states = (key_states, value_states)
        if not self.slabs:
            # Zeros, not empty memory: masked cells have weight 0, and 0 * NaN is NaN.
            rows, columns = self.room
            self.slabs = [
                one.new_zeros((rows, one.shape[1], columns, one.shape[3])) for one in states
            ]
            self.dtype, self.device, self.is_initialized = key_states.dtype, key_states.device, True
        for slab, one in zip(self.slabs, states, strict=True):
            slab[place.rows, :, place.columns] = one.transpose(1, 2)
        self.keys, self.values = (
            slab[place.first : place.last, :, : place.used] for slab in self.slabs
        )
        return self.keys, self.values


class Slots:
    """The rows of a running batch: rows [0, count) are taken, `lengths[:count]` tokens long."""

    def __init__(self, model: Any, max_rows: int) -> None:
        self._model, self._max_rows = model, max_rows
        config = model.config.get_text_config()
        sizes = math.gcd(config.hidden_size, config.intermediate_size, VECTOR)
        self._row_step = max(STEP, VECTOR // sizes)
        self._layers = [SlotLayer() for _ in range(config.num_hidden_layers)]
        self._cache = Cache(layers=[*self._layers])
        self._device = model.device
        self._room = (0, 0)
        self.count = 0
        self.lengths: NDArray[np.int64] = np.zeros(max_rows, dtype=np.int64)

    def join(self, prompts: Sequence[Sequence[int]], kept: Sequence[Kept | None]) -> Tensor:
        """Add rows behind the others; return the logits after each prompt, `(rows, vocab)`.

        `kept` holds the keys and values of the beginning of a prompt, never of all of it.
        """
        first = self.count
        starts = np.array([0 if one is None else one[0][0].shape[1] for one in kept])
        lengths = np.array([len(prompt) for prompt in prompts])
        self._make_room(first + len(prompts), int(lengths.max()))
        for row, one in enumerate(kept, start=first):
            if one is not None:
                self._restore(row, one)
        tokens = _up(int((lengths - starts).max()), STEP)
        ids = np.zeros((len(prompts), tokens), dtype=np.int64)
        for row, prompt in enumerate(prompts):
            new = prompt[starts[row] :]
            ids[row, tokens - len(new) :] = new
        self.count += len(prompts)
        self.lengths[first : self.count] = lengths
        positions = np.arange(tokens) - tokens + lengths[:, None]
        # Before a row's new tokens stands padding, at positions that the row has filled already.
        positions[positions < starts[:, None]] = -1
        return self._forward(first, ids, positions)

    def double(self, sources: Sequence[int], lengths: Sequence[int]) -> None:
        """Add a copy of each named row behind the others."""
        first, self.count = self.count, self.count + len(sources)
        self._make_room(self.count, max(lengths))
        self._copy(np.array(sources), np.arange(first, self.count))
        self.lengths[first : self.count] = lengths

    def step(self, tokens: Tensor) -> Tensor:
        """Append one token a row, `(rows,)`; return the logits that follow, `(rows, vocab)`."""
        self._make_room(self.count, int(self.lengths[: self.count].max()) + 1)
        positions = self.lengths[: self.count, None].copy()
        self.lengths[: self.count] += 1
        return self._forward(0, tokens.unsqueeze(1), positions)

    def take_out(self, row: int, tokens: int) -> Kept:
        """Return a copy of the first `tokens` of a row's keys and values."""
        return [
            (layer.slabs[0][row, :, :tokens].clone(), layer.slabs[1][row, :, :tokens].clone())
            for layer in self._layers
        ]

    def keep(self, order: NDArray[np.int64]) -> None:
        """Let row i be the former row `order[i]`, and forget the rows not named."""
        targets = np.flatnonzero(order != np.arange(len(order)))
        self._copy(order[targets], targets)
        self.lengths[: len(order)] = self.lengths[order]
        self.count = len(order)

    def _copy(self, sources: NDArray[np.int64], targets: NDArray[np.int64]) -> None:
        if not len(sources):
            return
        used = int(self.lengths[sources].max())
        old = torch.as_tensor(sources, device=self._device)
        new = torch.as_tensor(targets, device=self._device)
        for layer in self._layers:
            for slab in layer.slabs:
                slab[new, :, :used] = slab[old, :, :used]

    def _restore(self, row: int, kept: Kept) -> None:
        for layer, states in zip(self._layers, kept, strict=True):
            for slab, one in zip(layer.slabs, states, strict=True):
                slab[row, :, : one.shape[1]] = one

    def _make_room(self, rows: int, columns: int) -> None:
        have_rows, have_columns = self._room
        if rows <= have_rows and columns < have_columns:
            return
        if rows > have_rows:
            have_rows = max(rows, min(self._max_rows, 2 * have_rows))
        if columns >= have_columns:  # the last one belongs to no row
            have_columns = columns + 1 + max(SPARE_COLUMNS, columns // 2)
        rows_before, columns_before = self._room
        self._room = (have_rows, have_columns)
        # Without the old last column, which belongs to no row.
        more = (0, 0, 0, have_columns - columns_before + 1, 0, 0, 0, have_rows - rows_before)
        for layer in self._layers:
            layer.room = self._room
            layer.slabs = [pad(slab[:, :, :-1], more) for slab in layer.slabs]

    def _forward(
        self, first: int, ids: Tensor | NDArray[np.int64], positions: NDArray[np.int64]
    ) -> Tensor:
        """Write tokens to rows from `first` on; a position of -1 is padding."""
        count = len(positions)
        used = int(self.lengths[first : first + count].max())
        used = _up(used, VECTOR if used <= WHOLE or self._device.type != "cpu" else BLOCK)
        least = LEAST if self._device.type == "cpu" else 1
        missing = _up(max(count, least), self._row_step) - count
        last = first + count + missing
        self._make_room(last, used)
        ids = torch.as_tensor(ids, device=self._device)
        where = torch.as_tensor(positions, device=self._device)
        if missing:
            ids = pad(ids, (0, 0, 0, missing))
            where = pad(where, (0, 0, 0, missing), value=-1)
        columns = torch.where(where < 0, self._room[1] - 1, where)
        rows = torch.arange(first, last, device=self._device)[:, None].expand_as(columns)
        place = ForwardPlace(first, last, used, rows, columns)
        for layer in self._layers:
            layer.place = place
        # Padding attends to column 0: a row of attention with nothing in it would be NaN.
        where = where.clamp(min=0)
        hidden = torch.arange(used, device=self._device) > where[:, :, None]
        mask = torch.zeros(hidden.shape, dtype=self._model.dtype, device=self._device)
        mask.masked_fill_(hidden, torch.finfo(self._model.dtype).min)
        output = self._model(
            input_ids=ids,
            attention_mask=mask[:, None],
            position_ids=where,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return output.logits[:count, -1]


def _up(number: int, step: int) -> int:
    """Return the next multiple of `step`."""
    return -(-number // step) * step
