"""Ids that sort by (epoch, producing stage, index), and seeds derived from names.

The eight hex digits are the head of the producing stage's key, so ids of different runs never
collide in one store while equal work gets equal ids. Numbers are padded to the largest that the
configuration's bounds allow, because a sixth digit beside five would sort first.
"""

from __future__ import annotations

import hashlib


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
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
