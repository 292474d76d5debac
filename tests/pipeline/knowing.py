"""Models from nothing that say what a domain knows, so that its tasks go through a whole run.

An untrained model writes neither JSON nor calls. Here its engine answers for it: pi_env says texts
that the domain's own generator makes, pi_agent the turns of the right attempt in three seeds of
four. All other turns are the model's own. Logprobs are always the model's, so both updates compute
with what they would see.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from genenv_core.config.sections.models import ModelSizeConfig
from genenv_core.domains.protocol import KnowsSolution, SeedData
from genenv_core.engines.protocol import EngineSetup, ScoresTokens, TokenSequence, open_engine
from genenv_core.engines.tokenizers import load_tokenizer
from genenv_core.training.warm_start.models import build_model, build_tokenizer, save_checkpoint
from genenv_core.types import (
    Completion,
    FinishReason,
    Message,
    SampleRequest,
    SamplingParams,
    TaskDraft,
)

ASSISTANT = "<|assistant|>"
POSITIONS = 16_384
OWN_WORDS = 8
"""Tokens that the model itself may say in a turn."""

SHAPE = ModelSizeConfig(hidden_size=32, layers=1, heads=2, intermediate_size=64)


class Knowing:
    """What the two policies say: right turns by the prompts that a domain gave, and texts."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = cycle(texts)
        self._turns: dict[str, list[str]] = {}

    def listen(self, domain: Any, patch: pytest.MonkeyPatch) -> None:
        """Take note of the opening of each attempt that a domain of this class gives."""
        opening = type(domain).agent_messages

        def agent_messages(itself: Any, draft: TaskDraft) -> list[Message]:
            messages = opening(itself, draft)
            assert isinstance(itself, KnowsSolution)
            turns = [turn.says for turn in itself.solution(draft)]
            self._turns[messages[-1]["content"]] = turns
            return messages

        patch.setattr(type(domain), "agent_messages", agent_messages)

    def said(self, prompt: str, seed: int) -> str | None:
        """Return the text after a rendered prompt; None where the model speaks for itself."""
        opening, *spoken = prompt.split(ASSISTANT)
        turns = self._turns.get(opening.rpartition("<|user|>")[2])
        if turns is None:
            return next(self._texts)
        number = len(spoken) - 1
        return turns[number] if seed % 4 and number < len(turns) else None


class KnowingEngine:
    """An engine on a tiny checkpoint, whose texts are what `Knowing` says."""

    def __init__(self, setup: EngineSetup, knowing: Knowing) -> None:
        self._model = open_engine(setup)
        self._tokenizer = load_tokenizer(setup.checkpoint)
        self._knowing = knowing

    def sample(self, requests: Sequence[SampleRequest], params: SamplingParams) -> list[Completion]:
        """Return the texts that are known and else the model's own words, with its logprobs."""
        end = self._tokenizer.eos_token_id
        own = self._model.sample(requests, SamplingParams(OWN_WORDS, params.temperature))
        sequences: list[TokenSequence] = []
        for request, words in zip(requests, own, strict=True):
            text = self._knowing.said(self._tokenizer.decode(request.prompt_ids), request.seed)
            ids = [one for one in words.token_ids if one != end]
            if text is not None:
                ids = self._tokenizer(text, add_special_tokens=False)["input_ids"]
            spoken = (*ids, end)[: params.max_tokens]
            sequences.append(TokenSequence(request.prompt_ids, tuple(spoken)))
        return [
            Completion(
                sequence.token_ids,
                tuple(logprobs),
                FinishReason.STOP if sequence.token_ids[-1] == end else FinishReason.LENGTH,
            )
            for sequence, logprobs in zip(sequences, self.logprobs(sequences, params), strict=True)
        ]

    def logprobs(
        self, sequences: Sequence[TokenSequence], params: SamplingParams
    ) -> list[list[float]]:
        """Return the model's logprobs of given tokens; a greedy turn has those of temperature 1."""
        assert isinstance(self._model, ScoresTokens)
        at = params.temperature or 1.0
        return self._model.logprobs(sequences, SamplingParams(params.max_tokens, at))

    def close(self) -> None:
        self._model.close()


def untrained(folder: Path, domain: Any, more: Iterable[str]) -> Path:
    """Write a model from nothing that can spell a domain's texts and `more`; return its folder."""
    assert isinstance(domain, SeedData)
    examples = [*domain.agent_examples(0, 24), *domain.env_examples(0, 24, 0.5)]
    texts = [m["content"] for prompt, _ in examples for m in prompt]
    texts += [text for _, text in examples]
    tokenizer = build_tokenizer([*texts, *more, string.printable])
    model = build_model(SHAPE, tokenizer, 0)
    model.config.max_position_embeddings = POSITIONS
    save_checkpoint(model, tokenizer, folder)
    return folder
