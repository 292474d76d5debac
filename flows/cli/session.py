"""Steps that the commands which carry out a run share, such as its log and its end."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from schemas.enums import StageState

if TYPE_CHECKING:
    from genenv_core.storage.store.protocol import Store


def last_end(store: Store, run_id: str) -> str:
    """Return that the last command of a run was killed and in which stages, '' if it was not.

    A killed process leaves no message. The run's records show it: a stage began in the newest
    epoch, has no end, and belongs to a process of this machine that is gone.
    """
    from genenv_core.storage.records.runs import RunLog

    log = RunLog(store, run_id)
    tried = log.attempts({max(log.events(), default=0)})
    killed = [
        f"{one.stage} of epoch {one.epoch}"
        for one in tried
        if one.process == tried[-1].process
        and one.state is StageState.INTERRUPTED
        and one.seconds is None
    ]
    if not killed:
        return ""
    return (
        f"the last command of this run was killed in {' and '.join(killed)}: signal 9, as the "
        "kernel sends it when memory runs out, or a machine that went; this one goes on from there"
    )


def drain() -> None:
    """Send what Prefect still holds back for its server, before the server stops."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    with contextlib.suppress(Exception):  # a server that is gone already must not hide the outcome
        APILogWorker.drain_all(timeout=5)
        EventsWorker.drain_all(timeout=5)


def log_to(folder: Path) -> None:
    """Send genenv's log lines to run.log in a folder; the terminal shows what people follow.

    Warnings that a store is away go to standard error too, as in commands that keep no log.
    """
    folder.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(folder / "run.log", encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    if logging.lastResort:  # it writes to what standard error is at that moment
        logging.getLogger("genenv.storage.s3").addHandler(logging.lastResort)
    # Records that no handler takes would go to the terminal; Prefect has such while it is ending.
    logging.lastResort = logging.NullHandler()
    logger = logging.getLogger("genenv")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
