"""Logs once that a store does not answer, and once that it answers again.

The logger `genenv.storage.s3` writes to standard error and into a run's run.log. It says nothing
about a request that succeeds within SILENT_S.
"""

from __future__ import annotations

import logging

log = logging.getLogger("genenv.storage.s3")

SILENT_S = 5.0
"""Seconds of trouble with one request before a warning."""


class Away:
    """Logs the trouble of one store, which answers several requests at a time."""

    def __init__(self, where: str) -> None:
        """Take the store's name for the log."""
        self._where = where
        self._told: str | None = None

    def tried(self, path: str, what: str, seconds: float) -> None:
        """Note that a request failed again, `seconds` after it began."""
        if self._told is None and seconds >= SILENT_S:
            self._told = path
            log.warning("%s: %s; tried again for %.0f s so far", self._where, what, seconds)

    def answered(self, path: str) -> None:
        """Note that a request got its answer."""
        if self._told == path:
            self._told = None
            log.warning("%s answers again", self._where)

    def given_up(self, path: str) -> None:
        """Note that a request has failed for good; its error says the rest."""
        if self._told == path:
            self._told = None
