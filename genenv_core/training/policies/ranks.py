"""The processes of one update, seen from one of them; in a single process each call is trivial.

Every process reads all rows and cuts every step, so each knows the divisors of a step (its tokens,
its rows) without asking. Beside gradients, the processes exchange sums of their counts, and
decisions: the first process decides by clock and by file system. Both are a few bytes a step.
"""

# torch.distributed has partial types only.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from typing import Any, TypeVar

import torch.distributed as dist

Value = TypeVar("Value")


def _together() -> bool:
    return dist.is_available() and dist.is_initialized()


def count() -> int:
    """Return the number of processes that compute this update."""
    return dist.get_world_size() if _together() else 1


def index() -> int:
    """Return the index of this process, from 0."""
    return dist.get_rank() if _together() else 0


def first() -> bool:
    """Return whether this process is the first, which writes and decides."""
    return index() == 0


def agreed(value: Value) -> Value:
    """Return the first process's `value` in every process; all must call it."""
    if count() == 1:
        return value
    box: list[Any] = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def collected(value: Value) -> list[Value]:
    """Return the `value` of each process, in their order; all must call it."""
    if count() == 1:
        return [value]
    box: list[Any] = [None] * count()
    dist.all_gather_object(box, value)
    return box


def total(*values: float) -> list[float]:
    """Return each value's sum over all processes, taken in their order: equal bits everywhere."""
    return [sum(column) for column in zip(*collected(values), strict=True)]


def wait() -> None:
    """Wait until all processes have called it."""
    if count() > 1:
        dist.barrier()


def cut(rows: int, *, most: int, processes: int) -> list[tuple[int, int]]:
    """Return micro-batches (start, stop) of a step: even, with at most `most` rows each.

    Their number is a multiple of `processes`, which take them in turn, so all have equally many.
    Where there are fewer rows than processes, some are empty (start == stop).
    """
    number = -(-rows // most)
    number = -(-number // processes) * processes
    size, larger = divmod(rows, number)
    stops = [(index + 1) * size + min(index + 1, larger) for index in range(number)]
    return list(zip([0, *stops[:-1]], stops, strict=True))
