"""What measuring a group's influence takes and gives; light, for callers that load no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class ScoredAnswer(NamedTuple):
    """A reference answer as the attempt that says it: `mask` is 1 where the agent says a token."""

    prompt_ids: Sequence[int]
    token_ids: Sequence[int]
    mask: Sequence[int]


@dataclass(frozen=True, slots=True)
class GroupInfluence:
    """What a group of rollouts did, by the measure: `tokens` of it count in the loss."""

    group_id: str
    alignment: float
    tokens: int
