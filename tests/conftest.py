"""For all tests: no example has a deadline, and nothing starts a Prefect server on the side.

Two workers of pytest share two cores, so a matrix product of a tiny model gets one thread.
A Prefect client without PREFECT_API_URL would start a server that lives until the interpreter ends,
and then writes to what pytest has closed. The tests that need an API have a server of their own.
"""

from __future__ import annotations

import os

from hypothesis import settings

from tests.examples import many

settings.register_profile("busy", deadline=None, max_examples=many(100))
settings.load_profile("busy")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["PREFECT_SERVER_ALLOW_EPHEMERAL_MODE"] = "false"
