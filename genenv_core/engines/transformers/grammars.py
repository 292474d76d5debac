"""Decides which tokens may come next in a row whose request has a grammar.

llguidance walks each grammar along the sampled tokens, and says which tokens may follow. It allows
the tokens that end a completion where the text is whole, and nowhere else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import llguidance.hf
import numpy as np
import torch
from llguidance import LLMatcher, LLTokenizer, grammar_from
from numpy.typing import NDArray

from genenv_core.engines.tokenizers import load_tokenizer
from genenv_core.errors import EngineError
from genenv_core.types import Grammar

_WHERE = "engine transformers: a grammar"


class Grammars:
    """Makes a `Held` for each row that has a grammar, for one checkpoint.

    Args:
        checkpoint: folder of the checkpoint, whose tokenizer spells the tokens.
        vocabulary: columns of the model's logits.

    Raises EngineError for a tokenizer whose tokens llguidance cannot spell, and ModelError for one
    that cannot be loaded.
    """

    def __init__(self, checkpoint: Path, vocabulary: int) -> None:
        tokenizer = load_tokenizer(checkpoint)
        try:
            # A model may have columns for no token, and a tokenizer tokens without a column.
            self._tokenizer = _spelled(tokenizer, max(vocabulary, len(tokenizer)))
        except ValueError as error:
            raise EngineError(
                f"{_WHERE} needs the bytes of each token, which the tokenizer of {checkpoint} does "
                f"not tell: {error}: set generation.structured to false"
            ) from error
        self._vocabulary = vocabulary
        self._compiled: dict[Grammar, LLMatcher] = {}

    def begin(self, grammar: Grammar, stops: Sequence[int]) -> Held:
        """Return the state that holds one completion to a grammar from its first token on.

        Raises EngineError for a grammar that llguidance does not read, and without a stop token.
        """
        if not stops:
            raise EngineError(f"{_WHERE} needs a token that ends a completion, and there is none")
        if grammar not in self._compiled:
            try:
                text = grammar_from(grammar.kind, grammar.text)
            except ValueError as error:
                raise _unread(grammar, str(error)) from error
            matcher = LLMatcher(self._tokenizer, text, log_level=0)
            if matcher.is_error():
                raise _unread(grammar, matcher.get_error())
            self._compiled[grammar] = matcher
        return Held(self._compiled[grammar].deep_copy(), stops, self._vocabulary)


class Held:
    """Holds one completion to a grammar."""

    def __init__(self, matcher: LLMatcher, stops: Sequence[int], vocabulary: int) -> None:
        self._matcher, self._stops, self._vocabulary = matcher, list(stops), vocabulary

    def allowed(self) -> NDArray[np.bool_]:
        """Return for each column of the logits whether it may come next; at least one may.

        Raises EngineError where the grammar has no way on, or asks too much of llguidance.
        """
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        allowed = np.unpackbits(bits, bitorder="little", count=self._vocabulary).astype(np.bool_)
        allowed[self._stops] = self._matcher.is_accepting()
        if self._matcher.is_error() or not allowed.any():
            why, *_ = (self._matcher.get_error() or "no token is allowed").splitlines()
            raise EngineError(f"{_WHERE} cannot go on: {why}")
        return allowed

    def take(self, token: int) -> None:
        """Advance past a sampled token."""
        if token not in self._stops:
            self._matcher.consume_token(token)


def hold(logits: torch.Tensor, rows: Mapping[int, Held]) -> torch.Tensor:
    """Return logits (rows, vocabulary) with -inf where a row's grammar forbids a token.

    The logits are copied where there is a grammar at all.
    """
    if not rows:
        return logits
    held = logits.clone()
    for row, one in rows.items():
        forbidden = torch.as_tensor(~one.allowed(), device=logits.device)
        held[row].masked_fill_(forbidden, -torch.inf)
    return held


class _Spelling:
    """A tokenizer whose tokens' texts join unchanged, in the form that llguidance takes."""

    def __init__(self, tokenizer: Any) -> None:
        names: list[str] = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
        self.tokens = [name.encode() for name in names]
        self.special_token_ids: list[int] = list(tokenizer.all_special_ids)
        self.eos_token_id: int = tokenizer.eos_token_id
        self.bos_token_id: int | None = tokenizer.bos_token_id
        self.is_tokenizer_wrapper = True
        self._encode = tokenizer.encode

    def __call__(self, text: str) -> list[int]:
        return self._encode(text, add_special_tokens=False)


def _spelled(tokenizer: Any, size: int) -> LLTokenizer:
    """Return a tokenizer of `size` ids for llguidance; raises ValueError where it reads none."""
    decoder: Any = json.loads(tokenizer.backend_tokenizer.to_str())["decoder"]
    if decoder == {"type": "Fuse"}:  # those of the embedded models
        return LLTokenizer(_Spelling(tokenizer), n_vocab=size)  # type: ignore[arg-type]
    return llguidance.hf.from_tokenizer(tokenizer, n_vocab=size)


def _unread(grammar: Grammar, why: str) -> EngineError:
    text = grammar.text if len(grammar.text) <= 120 else f"{grammar.text[:120]}..."
    return EngineError(
        f"{_WHERE} of the kind {grammar.kind} cannot be read: {' '.join(why.split())}: {text}"
    )
