"""The log of a flow run in Prefect's UI, where genenv has said what is wrong.

Invariants: a wrong request is its line, without a traceback; another error of genenv has one
traceback, and its line comes last; errors of other code stay as Prefect logs them.
"""

from __future__ import annotations

import logging

import flows.deploy.deployed  # noqa: F401  whose flows a worker runs
from flows.deploy.log_lines import FLOW_RUNS, OneTraceback, shorten
from genenv_core.errors import ConfigError, StageError
from tests.mutations import mutation

LOG_LINES = "flows/deploy/log_lines.py"


class Kept(logging.Handler):
    """Keeps message and traceback of each record."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, bool]] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record."""
        self.lines.append((record.getMessage(), bool(record.exc_info)))


def said(error: Exception) -> list[tuple[str, bool]]:
    """Log an error as Prefect's engine does; returns each line, and whether it has a traceback."""
    logger, kept = logging.getLogger(FLOW_RUNS), Kept()
    logger.addHandler(kept)
    try:
        raise error
    except Exception as caught:
        logger.exception("Encountered exception during execution: %r", caught)
        logger.error("Engine execution exited with unexpected exception", exc_info=True)
    finally:
        logger.removeHandler(kept)
    return kept.lines


@mutation(
    "a wrong request is a hundred lines in the UI", LOG_LINES, " or error.exit_status == USAGE", ""
)
@mutation(
    "flows of a worker log tracebacks of wrong requests", "flows/deploy/deployed.py",
    "\nshorten()\n", "\n",
)  # fmt: skip
def test_a_wrong_request_is_its_line():
    assert set(said(ConfigError("rollout.nn is no field"))) == {("rollout.nn is no field", False)}


@mutation(
    "the line that says what failed does not come last", LOG_LINES,
    "error is self._seen or ", "",
)  # fmt: skip
def test_a_failed_stage_has_one_traceback_and_its_line_last():
    first, last = said(StageError("stage score of epoch 2 failed: free some space"))
    assert first[1] and "free some space" in first[0]
    assert last == ("stage score of epoch 2 failed: free some space", False)


def test_errors_of_other_code_stay_as_they_are():
    first, last = said(KeyError("value"))
    assert first[1] and last == ("Engine execution exited with unexpected exception", True)


def test_it_is_done_once():
    shorten()
    found = [isinstance(one, OneTraceback) for one in logging.getLogger(FLOW_RUNS).filters]
    assert sum(found) == 1
