"""For all tests: no example has a deadline, and nothing starts a Prefect server on the side.

Two workers of pytest share two cores, so a matrix product of a tiny model gets one thread.
A Prefect client without PREFECT_API_URL would start a server that lives until the interpreter ends,
and then writes to what pytest has closed. The tests that need an API have a server of their own.

The garbage collector is off while modules are imported, and what they leave stays out of its sight:
else it walks over a million objects of libraries again and again, here and in every gc.collect().

A command that keeps a log leaves genenv's logger at INFO with a handler of its own: that ends with
the test.
"""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Generator

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

from tests.examples import many

settings.register_profile("busy", deadline=None, max_examples=many(100))
settings.load_profile("busy")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["PREFECT_SERVER_ALLOW_EPHEMERAL_MODE"] = "false"
gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Turn the collector on for what the tests themselves make."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def own_logging() -> Generator[None]:
    logger, last = logging.getLogger("genenv"), logging.lastResort
    level, handlers = logger.level, logger.handlers[:]
    yield
    logger.setLevel(level)
    logger.handlers[:], logging.lastResort = handlers, last


class OneOfWholeRuns(LoadFileScheduling):
    """Gives a worker of pytest a file at a time, and one of them all files of whole runs.

    Each worker that plays one starts a server and training processes, and makes a bootstrap.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "tests/pipeline" if file.startswith("tests/pipeline/") else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadFileScheduling | None:
    """Return the scheduler of the default run; the slow suites hold more whole runs than others."""
    return OneOfWholeRuns(config, log) if config.option.markexpr == "not slow" else None
