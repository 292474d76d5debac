"""Two key-value caches for a batch of sequences that are being written.

`PaddedState` is the fast one: prompts of any lengths in one batch, left-padded, in buffers with
spare columns. It needs an architecture with attention that takes a prepared mask and explicit
positions. `AlignedState` needs only a standard Hugging Face cache, but takes only prompts of one
length, without padding and mask.

Both prefill a prompt once, however many rows continue it, and `PaddedState` computes once what all
prompts of a batch begin with.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

from genenv_core.engines.prefixes import common_tokens
from genenv_core.errors import EngineError

PADDED_MODEL_TYPES = frozenset({"llama", "mistral", "qwen2", "qwen3"})
"""Architectures whose padded path genenv's tests cover; others take the aligned one."""

PADDED_ROPE_TYPES = frozenset({"default", "linear", "llama3", "yarn"})
"""Rotary embeddings whose angles do not depend on the longest row of the batch."""

PREFILL_TOKENS = 8192
"""Prompt tokens in one forward pass: bounds the activations, not the cache."""

SHARED_TOKENS = 8
"""Fewest tokens at the beginning of all prompts that are computed once: a second forward pass costs
about as much as a few tokens of each prompt."""

MOST_APART = 0.01
"""Largest difference of logits that counts as equal, as a share of their standard deviation: far
above rounding, 5e-6 in float32, and far below a lost token, about 0.1."""

SPARE_COLUMNS = 32
"""Columns a buffer gains at least when it is full: few, because most completions are short."""


class DecodeState(Protocol):
    """Rows being continued. `logits (rows, vocab)` predict each row's next token."""

    logits: Tensor

    def step(self, tokens: Tensor) -> None:
        """Append one token a row, `(rows,)`, and renew `logits`."""
        ...

    def keep(self, order: NDArray[np.int64]) -> None:
        """Let row i be the former row `order[i]`, and forget the rows not named."""
        ...


def supports_padding(model: Any) -> bool:
    """Return whether rows of different prompt lengths may share a batch on this model."""
    config = model.config.get_text_config()
    if config.model_type not in PADDED_MODEL_TYPES:
        return False
    return (
        config._attn_implementation in ("sdpa", "eager")
        and config.rope_parameters.get("rope_type", "default") in PADDED_ROPE_TYPES
        and all(type(layer) is DynamicLayer for layer in DynamicCache(config=config).layers)
    )


def keeps_logits(model: Any) -> bool:
    """Return whether a model can leave out the logits of tokens that are not asked for."""
    return "logits_to_keep" in inspect.signature(model.forward).parameters


class SlabLayer(DynamicLayer):
    """One layer's keys and values in buffers with spare columns.

    `DynamicLayer` copies the whole cache at every token; here a step writes one column.
    """

    def __init__(self) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self.key_slab = torch.empty(0)
        self.value_slab = torch.empty(0)
        self.rows = 0
        self.columns = 0

    def allocate(self, keys: Tensor, values: Tensor, rows: int, columns: int) -> None:
        """Make zeroed buffers for `rows` sequences of `columns` tokens, all in use, plus spare."""
        # Zeros, not empty memory: padding is masked to weight 0, and 0 * NaN is NaN.
        spare = columns + SPARE_COLUMNS
        self.key_slab = keys.new_zeros((rows, keys.shape[1], spare, keys.shape[3]))
        self.value_slab = values.new_zeros((rows, values.shape[1], spare, values.shape[3]))
        self.dtype, self.device, self.is_initialized = keys.dtype, keys.device, True
        self._show(rows, columns)

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Return all keys and values after appending `(rows, heads, 1, dim)` states."""
        used = self.columns
        if used == self.key_slab.shape[2]:
            spare = (0, 0, 0, max(SPARE_COLUMNS, used // 2))
            self.key_slab = pad(self.key_slab[: self.rows], spare)
            self.value_slab = pad(self.value_slab[: self.rows], spare)
        self.key_slab[: self.rows, :, used : used + 1] = key_states
        self.value_slab[: self.rows, :, used : used + 1] = value_states
        return self._show(self.rows, used + 1)

    def move(self, sources: Tensor, targets: Tensor, rows: int) -> None:
        """Copy rows `sources` over rows `targets`, then keep the first `rows` rows."""
        if len(sources):
            for slab in (self.key_slab, self.value_slab):
                slab[targets, :, : self.columns] = slab[sources, :, : self.columns]
        self._show(rows, self.columns)

    def _show(self, rows: int, columns: int) -> tuple[Tensor, Tensor]:
        """Return the part of the buffers in use, now this many rows and columns."""
        self.rows, self.columns = rows, columns
        keys, values = self.key_slab[:rows, :, :columns], self.value_slab[:rows, :, :columns]
        # The base class answers questions about lengths and masks from these.
        self.keys, self.values = keys, values
        return keys, values


class PaddedState:
    """Rows of any prompt lengths, left-padded behind their common beginning. See `DecodeState`.

    Args:
        model: a causal language model for which `supports_padding` holds.
        prompts: distinct prompts, sorted by length.
        prompt_of_row: for each row its index into `prompts`, not decreasing.
        max_tokens: how many tokens a row may gain.
        prefill_tokens: bound on padded prompt tokens in one forward pass.
    """

    def __init__(
        self,
        model: Any,
        prompts: Sequence[tuple[int, ...]],
        prompt_of_row: NDArray[np.int64],
        *,
        max_tokens: int,
        prefill_tokens: int,
    ) -> None:
        self._model = model
        self._columns = len(prompts[-1])
        lengths = np.array([len(prompt) for prompt in prompts], dtype=np.int64)[prompt_of_row]
        rows = len(lengths)
        device = model.device
        self._positions = torch.as_tensor(lengths, device=device).unsqueeze(1) - 1
        self._mask = None
        common = common_beginning(prompts)
        if lengths[0] != lengths[-1]:
            total = torch.arange(self._columns + max_tokens, device=device)
            padding = self._columns - self._positions - 1
            visible = (total < common) | (total >= common + padding)
            self._mask = _additive(visible, model.dtype)[:, None, None, :]
        layers = [SlabLayer() for _ in range(model.config.get_text_config().num_hidden_layers)]
        self._layers = layers
        self._cache = Cache(layers=[*layers])
        beginning = Beginning(model, prompts[0][:common])
        rests = [prompt[common:] for prompt in prompts]
        parts: list[Tensor] = []
        for first, last in _chunks(rests, prefill_tokens):
            start, stop = np.searchsorted(prompt_of_row, [first, last]).tolist()
            local = torch.as_tensor(prompt_of_row[start:stop] - first, device=device)
            cache, logits = _prefill_padded(model, beginning, rests[first:last])
            parts.append(logits[local])
            columns = slice(self._columns - len(rests[last - 1]), self._columns)
            for layer, source in zip(layers, cache.layers, strict=True):
                if not layer.is_initialized:
                    layer.allocate(source.keys, source.values, rows, self._columns)
                for slab, states in (
                    (layer.key_slab, source.keys),
                    (layer.value_slab, source.values),
                ):
                    slab[start:stop, :, :common] = states[:1, :, :common]
                    slab[start:stop, :, columns] = states[local, :, common:]
        self.logits = torch.cat(parts)

    def step(self, tokens: Tensor) -> None:
        self._columns += 1
        self._positions += 1
        output = self._model(
            input_ids=tokens.unsqueeze(1),
            attention_mask=None if self._mask is None else self._mask[..., : self._columns],
            position_ids=self._positions,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self.logits = output.logits[:, -1]

    def keep(self, order: NDArray[np.int64]) -> None:
        index = torch.as_tensor(order, device=self._positions.device)
        targets = torch.as_tensor(
            np.flatnonzero(order != np.arange(len(order))), device=self._positions.device
        )
        for layer in self._layers:
            layer.move(index[targets], targets, len(order))
        self._positions = self._positions[index]
        if self._mask is not None:
            self._mask = self._mask[index]


class Beginning:
    """Keys and values of the common beginning of sequences, computed once; it may be empty.

    Args:
        model: a causal language model for which `supports_padding` holds.
        ids: the tokens that the sequences have in common.
    """

    def __init__(self, model: Any, ids: Sequence[int]) -> None:
        self.length = len(ids)
        self._config, self._states = model.config, list[tuple[Tensor, Tensor]]()
        if ids:
            cache: Any = DynamicCache(config=model.config)
            model(
                input_ids=torch.tensor([ids], device=model.device),
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
            self._states = [(layer.keys, layer.values) for layer in cache.layers]

    def cache(self, rows: int) -> Any:
        """Return a cache in which each of `rows` sequences has this beginning."""
        cache: Any = DynamicCache(config=self._config)
        for index, (keys, values) in enumerate(self._states):
            shape = (rows, -1, -1, -1)
            cache.update(keys.expand(shape), values.expand(shape), index)
        return cache


def common_beginning(sequences: Sequence[tuple[int, ...]]) -> int:
    """Return how many first tokens of these sequences are worth computing once for all.

    The last token of the shortest is never among them, as its logits are asked for.
    """
    if len(sequences) == 1:
        return 0
    common = min(common_tokens(sequences), *(len(one) - 1 for one in sequences))
    return common if common >= SHARED_TOKENS else 0


def _prefill_padded(
    model: Any, beginning: Beginning, rests: Sequence[tuple[int, ...]]
) -> tuple[Any, Tensor]:
    """Return the cache of left-padded prompts and the logits after each, `(prompts, vocab)`.

    The columns of the cache are the beginning, padding, and the rest of each prompt.
    """
    known, width = beginning.length, len(rests[-1])
    ids = torch.tensor([(0,) * (width - len(p)) + p for p in rests], device=model.device)
    padding = torch.tensor([width - len(p) for p in rests], device=model.device)[:, None]
    columns = torch.arange(width, device=model.device)
    mask = None
    if known or len(rests[0]) != width:
        causal = columns[:, None] >= columns
        visible = causal & (columns >= padding)[:, None, :]
        # A padding token sees itself: in float16 the mask's minimum plus a score can be -inf, and
        # a row of attention with nothing else would be NaN.
        visible |= torch.eye(width, dtype=torch.bool, device=model.device)
        visible = pad(visible, (known, 0), value=True)
        mask = _additive(visible, model.dtype)[:, None]
    cache = beginning.cache(len(rests))
    output = model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=known + (columns - padding).clamp_(min=0),
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    return cache, output.logits[:, -1]


def _additive(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """Return 0 where `visible` and the smallest finite number elsewhere."""
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(
        ~visible, torch.finfo(dtype).min
    )


def _chunks(prompts: Sequence[tuple[int, ...]], tokens: int) -> list[tuple[int, int]]:
    """Return index ranges of `prompts` (sorted by length), each at most `tokens` when padded."""
    bounds: list[tuple[int, int]] = []
    first = 0
    for last in range(1, len(prompts) + 1):
        if last == len(prompts) or (last + 1 - first) * len(prompts[last]) > tokens:
            bounds.append((first, last))
            first = last
    return bounds


class AlignedState:
    """Rows with prompts of equal length, over the cache that the model itself makes.

    Args and behaviour as in `PaddedState`; see `DecodeState`.
    """

    def __init__(
        self, model: Any, prompts: Sequence[tuple[int, ...]], prompt_of_row: NDArray[np.int64]
    ) -> None:
        self._model = model
        self._cache: Any = DynamicCache(config=model.config)
        self._options: dict[str, Any] = {"past_key_values": self._cache, "use_cache": True}
        if keeps_logits(model):
            self._options["logits_to_keep"] = 1
        self._forward(torch.tensor(list(prompts), device=model.device))
        self.keep(prompt_of_row)

    def step(self, tokens: Tensor) -> None:
        self._forward(tokens.unsqueeze(1))

    def keep(self, order: NDArray[np.int64]) -> None:
        """Let row i be the former row `order[i]`; a row named twice is copied."""
        index = torch.as_tensor(order, device=self.logits.device)
        self._cache.reorder_cache(index)
        self.logits = self.logits[index]

    def _forward(self, ids: Tensor) -> None:
        self.logits = self._model(input_ids=ids, **self._options).logits[:, -1]


def check_continues(model: Any, name: object) -> None:
    """Raise `EngineError` unless a model continues a text from its cache as it continues it whole.

    A model without a cache of keys and values may take one and leave it empty, without a word: it
    then sees the last token alone. A model whose attention looks ahead differs too. The check runs
    six tokens through the model, except where `supports_padding` holds: genenv's tests cover those
    architectures.
    """
    if supports_padding(model):
        return
    tokens = [(7 * i + 1) % int(model.get_input_embeddings().weight.shape[0]) for i in range(6)]
    try:
        state = AlignedState(model, [tuple(tokens[:3])], np.array([0]))
        for token in tokens[3:]:
            state.step(torch.tensor([token], device=model.device))
        whole: Tensor = model(input_ids=torch.tensor([tokens], device=model.device)).logits[:, -1]
    except (TypeError, AttributeError, ValueError) as error:
        why = f"{type(error).__name__}: {error}"
    else:
        apart = float((state.logits - whole).abs().max() / whole.std())
        # A damaged checkpoint's NaN passes here: the engine reports it when it samples.
        if not apart > MOST_APART:
            return
        why = f"its logits differ by {apart:.2g} of their spread"
    raise EngineError(
        f"checkpoint {name}: a model of type {model.config.model_type!r} does not continue a text "
        f"from its cache as it continues it whole ({why}): the engine transformers needs a causal "
        "model with a cache of keys and values; take another model, or compute.engine=vllm if vLLM "
        "knows this one"
    )
