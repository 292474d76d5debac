"""A stage that fails on purpose, so that tests can press Retry; refused everywhere else."""

from __future__ import annotations

import os

from genenv_core.errors import ConfigError, StageError

ALLOWED = "GENENV_TEST_FAULTS"


def refuse_outside_tests(fault: str | None) -> None:
    """Raise ConfigError when a fault is configured and nobody has allowed it here."""
    if fault and os.environ.get(ALLOWED) != "1":
        raise ConfigError(
            f"execution.test_fault {fault!r} is for genenv's own tests: remove it (they set "
            f"{ALLOWED}=1)"
        )


def fail_on_purpose(fault: str | None, stage: str, epoch: int, attempt: int) -> None:
    """Raise StageError when the fault names this stage and this is its first attempt."""
    if fault == f"{stage}:{epoch}" and attempt == 1:
        refuse_outside_tests(fault)
        raise StageError(
            f"{stage} of epoch {epoch}: execution.test_fault made this first attempt fail; the "
            "next one goes on"
        )
