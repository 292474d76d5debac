"""Runs work that may never end in threads that nobody waits for.

`asyncio.to_thread` has a few threads, and the event loop and the process wait for them at their
end: a step of an episode that hangs would hold up the others, and then the whole stage.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[..., T], *arguments: Any) -> T:
    """Return what `work` returns in a daemon thread of its own; raises what it raises.

    A cancelled caller leaves the thread behind. A StopIteration becomes a RuntimeError, because no
    coroutine can raise the former.
    """
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    future: asyncio.Future[T] = loop.create_future()

    def settle(made: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(made)  # pyright: ignore[reportArgumentType]

    def carry_out() -> None:
        made, error = None, None
        try:
            made = context.run(work, *arguments)
        except StopIteration as stop:
            error = RuntimeError(f"StopIteration: {stop}")
        except BaseException as raised:  # for the coroutine that waits
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, made, error)

    threading.Thread(target=carry_out, name="genenv-step", daemon=True).start()
    return await future
