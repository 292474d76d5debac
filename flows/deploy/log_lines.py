"""What the log of a flow run in Prefect's UI says when genenv has said what is wrong.

Prefect logs an error twice or more, each time with its traceback, so the line that names what
failed and what to do stands above a hundred others.
"""

from __future__ import annotations

import logging

from genenv_core.errors import GenenvError

FLOW_RUNS = "prefect.flow_runs"
"""Prefect's logger of what it says on the page of a flow run."""

USAGE = 2
"""Exit status of errors in what a person asked for: the line says all, nothing was started."""


class OneTraceback(logging.Filter):
    """Keeps the first traceback of an error of genenv, and drops those of a wrong request.

    A line without its traceback holds the error's message.
    """

    def __init__(self) -> None:
        super().__init__()
        self._seen: BaseException | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        """Shorten a record if its traceback should go; returns True, which lets the record pass."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, GenenvError):
            if error is self._seen or error.exit_status == USAGE:
                record.msg, record.args = "%s", (str(error),)
                record.exc_info = record.exc_text = None
            self._seen = error
        return True


def shorten() -> None:
    """Let the logs of this process's flow runs say each error of genenv once in full."""
    logger = logging.getLogger(FLOW_RUNS)
    if not any(isinstance(one, OneTraceback) for one in logger.filters):
        logger.addFilter(OneTraceback())
