"""Work in threads that nobody waits for.

Invariants: a result, an error and the caller's context come through; a cancelled caller and the end
of the loop leave the work behind; work that hangs takes no place from other work.
"""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar

import pytest

from genenv_core.exchange.threads import in_thread
from tests.waiting import BOUND_S, until

word: ContextVar[str] = ContextVar("word")


def test_results_errors_and_the_context_come_through() -> None:
    word.set("said")
    assert asyncio.run(in_thread(lambda a, b: (a, b, word.get()), 1, 2)) == (1, 2, "said")

    def fails(error: BaseException) -> None:
        raise error

    with pytest.raises(ValueError, match="no such"):
        asyncio.run(in_thread(fails, ValueError("no such")))
    with pytest.raises(RuntimeError, match="StopIteration: over"):
        asyncio.run(in_thread(fails, StopIteration("over")))


def test_work_that_hangs_holds_up_neither_other_work_nor_the_end() -> None:
    end = threading.Event()
    left: list[bool] = []

    def hangs() -> None:
        left.append(end.wait(BOUND_S))

    async def main() -> list[int]:
        hanging = [asyncio.create_task(in_thread(hangs)) for _ in range(100)]
        made = [await in_thread(abs, -number) for number in range(3)]
        for task in hanging:
            task.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)
        return made

    assert asyncio.run(main()) == [0, 1, 2]
    assert left == []
    end.set()
    until(lambda: len(left) == 100)  # after the loop has ended, and without an error
