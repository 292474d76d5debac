"""What a run does for its store beside its stages: after some epochs, merging its small files."""

from __future__ import annotations

import logging
import threading

from genenv_core.config.schema import RunConfig
from genenv_core.storage.artifacts import Artifacts
from genenv_core.storage.compaction import FAN, compact
from genenv_core.storage.manifest import ArtifactRef

log = logging.getLogger("genenv.stage")

_working = threading.Lock()


def tidy(config: RunConfig, epoch: int, ref: ArtifactRef, artifacts: Artifacts) -> None:
    """Start compacting the run beside its next stages, whenever enough epochs have come together.

    Nobody waits for it: what the end of the process cuts off is done the next time.
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
