"""Ids that sort by (epoch, producing stage, index), and seeds derived from names.

The eight hex digits are the head of the producing stage's key, so ids of different runs never
collide in one store while equal work gets equal ids. Zeros pad numbers to the width of the largest
that the configuration's bounds allow, because a sixth digit beside five would sort first. This
module is in the code version of every stage.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from genenv_core.canonical import digest

_MADE_BY = ("code", "runtime", "format")
"""Parts of a stage's key that say what computed it, not what it computed."""


def task_id(epoch: int, stage_key: str, index: int) -> str:
    """Return the id of the index-th generation (or base task) of an epoch."""
    return f"t{epoch:06d}-{stage_key[:8]}-{index:07d}"


def group_id(epoch: int, stage_key: str, index: int) -> str:
    """Return the id of the index-th group that a rollout stage attempted."""
    return f"g{epoch:06d}-{stage_key[:8]}-{index:07d}"


def trace_id(group: str, sample_index: int) -> str:
    """Return the id of one rollout of a group."""
    return f"{group}.{sample_index:04d}"


def seed_from(*parts: str | int) -> int:
    """Return a 63-bit seed that depends on every part, in order; stable across processes."""
    # A word of an enum counts as its text.
    named = (f"{'int' if isinstance(part, int) else 'str'}:{part}" for part in parts)
    text = "\x1f".join(named)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def stage_seed(seed: int, stage: str, epoch: int, *parts: str | int) -> int:
    """Return a seed of a stage that depends on the run's seed, the stage, the epoch and `parts`."""
    return seed_from(seed, stage, epoch, *parts)


def scope_of(key_parts: Mapping[str, Any]) -> str:
    """Return the digest of all that decides a stage's result, without code, versions and machine.

    Ids start with its head, so equal work after a harmless code change has equal ids.
    """
    return digest({name: part for name, part in key_parts.items() if name not in _MADE_BY})
