"""Steps that the commands which carry out a run share, such as its log and its end."""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

from genenv_core.allowances import check_allowances
from genenv_core.config.schema import RunConfig
from genenv_core.errors import ConfigError
from schemas.enums import StageState


def check_start(config: RunConfig) -> None:
    """Raise GenenvError for what would end a run later: limits of this machine, a missing server.

    Stages on work pools need a Prefect server that has them.
    """
    check_allowances()
    places = config.placement.work_pools()
    if not places or os.environ.get("PREFECT_API_URL"):
        return
    from flows.up.previous import live_api
    from genenv_core.storage.store.opening import home_of

    if live_api(home_of(config.root).resolve()) is None:
        stage, name = next(iter(places.items()))
        raise ConfigError(
            f"placement.{stage} {name!r} is a work pool of a Prefect server, and there is none: "
            "set PREFECT_API_URL to one's API (http://HOST:4200/api), start `genenv up` on this "
            f"root, or set placement.{stage}=inline"
        )


def last_end(config: RunConfig) -> str:
    """Return that the last command of a run was killed and in which stages, '' if it was not.

    A killed process leaves no message. The run's records show it: a stage began in the newest
    epoch, has no end, and belongs to a process of this machine that is gone.
    """
    from genenv_core.storage.records.runs import RunLog
    from genenv_core.storage.store.opening import open_store

    log = RunLog(open_store(config.root, writable=False), str(config.run_id))
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
