"""Merges the small files of a run, every few epochs, while its stages go on."""

from __future__ import annotations

import logging
import threading

from genenv_core.config.schema import RunConfig
from genenv_core.storage.records.artifacts import Artifacts
from genenv_core.storage.upkeep.compaction import FAN, compact

log = logging.getLogger("genenv.stage")

_working = threading.Lock()


def tidy(config: RunConfig, epoch: int, artifacts: Artifacts) -> None:
    """Start to compact the run, every `FAN` epochs, while its next stages go on.

    Nothing waits for it. If the end of the process cuts it off, the next time catches up.
    """
    if config.run_id is None or epoch % FAN or not epoch:
        return
    run_id = config.run_id

    def work() -> None:
        if _working.acquire(blocking=False):
            try:
                done = compact(artifacts.store, run_id)
                log.info(
                    "run=%s epoch=%d merged=%d into=%d", run_id, epoch, done.merged, done.written
                )
            finally:
                _working.release()

    threading.Thread(target=work, name="compact", daemon=True).start()
