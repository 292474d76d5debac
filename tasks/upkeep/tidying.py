"""Tidies a run's disk after an epoch and at the end: merges small files, removes old weights.

A failure costs disk or time but no data, so this module logs a warning, and the run goes on.
"""

# pyarrow has no stubs.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import logging
import threading
from datetime import UTC, datetime

import polars as pl
import pyarrow as pa

from genenv_core.config.load import run_name
from genenv_core.config.schema import RunConfig
from genenv_core.errors import GenenvError, described
from genenv_core.storage.records.artifacts import Artifacts
from genenv_core.storage.store.protocol import Store
from genenv_core.storage.upkeep.compaction import FAN, compact
from genenv_core.storage.upkeep.gc import collect_superseded
from tasks.stage.progress import Event, emit
from tasks.stage.stores import artifacts_of

log = logging.getLogger("genenv.stage")

_working = threading.Lock()

FAULTS: tuple[type[Exception], ...] = (
    GenenvError, OSError, MemoryError, pa.ArrowException, pl.exceptions.PolarsError
)  # fmt: skip
"""Errors of merging files; any other one is a fault of genenv."""


def tidy(config: RunConfig, epoch: int, artifacts: Artifacts) -> None:
    """Start to compact the run, every `FAN` epochs, while its next stages go on.

    The run does not wait for it. If the process ends before, the next time catches up.
    """
    if config.run_id is None or epoch % FAN or not epoch:
        return
    run_id = config.run_id

    def work() -> None:
        if _working.acquire(blocking=False):
            try:
                _compact(artifacts.store, run_id)
            finally:
                _working.release()

    threading.Thread(target=work, name="compact", daemon=True).start()


def tidy_ended(config: RunConfig) -> None:
    """Merge the remaining small files of a run that has ended, and wait for that.

    Logs a warning for a failure, which no epoch of the run depends on.
    """
    with _working:
        _compact(artifacts_of(config.root).store, run_name(config, "run"))


def _compact(store: Store, run_id: str) -> None:
    """Merge the small files of a run, or log a warning that says how to do it later."""
    try:
        done = compact(store, run_id)
    except FAULTS as error:
        log.warning(
            "run=%s keeps its small files, because merging them failed: %s. Nothing is lost; "
            "`genenv compact %s` merges them later",
            run_id, described(error), run_id,
        )  # fmt: skip
        return
    log.info("run=%s merged=%d into=%d", run_id, done.merged, done.written)


def drop_superseded(config: RunConfig, epoch: int, artifacts: Artifacts) -> None:
    """Remove weights that the run no longer needs, if execution.keep_checkpoints asks for that."""
    keep, lora = config.execution.keep_checkpoints, config.training.lora
    adapters = lora.rank > 0 and not lora.merge
    if config.run_id is None or keep is None or adapters:
        return
    try:
        gone = collect_superseded(
            artifacts.store, config.run_id, keep, datetime.now(UTC), until=epoch
        )
    except GenenvError as error:
        log.warning("run=%s epoch=%d kept all weights: %s", config.run_id, epoch, error)
        return
    if gone.bytes:
        text = (
            f"epoch {epoch}: weights of earlier epochs that nothing needs are gone, "
            f"{gone.bytes / 1e9:.2f} GB (execution.keep_checkpoints {keep})"
        )
        log.info("run=%s %s", config.run_id, text)
        emit(Event("disk", epoch=epoch, message=text))
