"""What failed, in the words of the stage that failed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Protocol

from genenv_core.errors import GenenvError, StageError


class Listener(Protocol):
    """Who hears the events of stages."""

    @property
    def failure(self) -> str:
        """What the stage that failed first said, '' while none has."""
        ...


@contextlib.contextmanager
def as_the_stage_told(listener: Listener) -> Iterator[None]:
    """Raise StageError with what the failed stage said, in place of what Prefect makes of it.

    The result of a stage that waited for the failed one is asked for first, and Prefect says only
    that there is none.
    """
    try:
        yield
    except GenenvError:
        raise
    except Exception as error:
        if not listener.failure:
            raise
        raise StageError(listener.failure) from error
