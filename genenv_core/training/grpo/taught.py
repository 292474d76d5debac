"""The input and the result of measuring a group's influence; imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class ScoredAnswer(NamedTuple):
    """A reference answer as the tokens of an attempt; `mask` is 1 where the agent says a token."""

    prompt_ids: Sequence[int]
    token_ids: Sequence[int]
    mask: Sequence[int]


@dataclass(frozen=True, slots=True)
class GroupInfluence:
    """The influence of one group of rollouts; `tokens` of it count in the loss."""

    group_id: str
    alignment: float
    tokens: int
