"""Conditioning contexts: which base task and which success statistics each batch is written for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from genenv_core.types import AgentHistory, Context, Task


def make_contexts(
    base: Sequence[Task], history: AgentHistory, *, count: int, seed: int, epoch: int
) -> list[Context]:
    """Return `count` contexts of one epoch, each with its own base task while there are enough.

    Ids are unique within a run and sort by (epoch, index).
    """
    if not base:
        raise ValueError("make_contexts needs at least one base task")
    rng = np.random.default_rng([seed, epoch, 0x6378])
    order: list[int] = []
    while len(order) < count:
        order.extend(int(index) for index in rng.permutation(len(base)))
    return [
        Context(
            context_id=f"c{epoch:06d}-{index:06d}",
            base_task_id=base[choice].task_id,
            base=base[choice].draft,
            history=history,
        )
        for index, choice in enumerate(order[:count])
    ]
