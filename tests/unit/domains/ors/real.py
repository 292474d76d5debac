"""A server of the real ors-sdk, in an environment that a lock makes."""

from __future__ import annotations

from pathlib import Path

from tests.pipeline.commands import REPOSITORY
from tests.unit.domains.openenv.real import RealServer, installed

LOCK = Path(__file__).parent / "ors.lock"
ENVIRONMENT = REPOSITORY / ".venv-ors"


def python() -> Path:
    """Return the interpreter that has ors-sdk."""
    return installed(ENVIRONMENT, LOCK)


def real_server(log: Path) -> RealServer:
    """Serve docs/examples/ors_sums.py."""
    return RealServer(log, "ors_sums:app", interpreter=python)
