"""Questions to the Prefect API, which may be away for a while."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient
from prefect.exceptions import PrefectHTTPStatusError
from prefect.states import Cancelling

from genenv_core.config.placement import PlacementConfig
from genenv_core.errors import GenenvError, StageError
from tasks.progress import check

log = logging.getLogger("genenv.stage")

Answer = TypeVar("Answer")


class PatientApi:
    """The Prefect API for one stage, asked again while it does not answer."""

    def __init__(
        self, client: SyncPrefectClient, settings: PlacementConfig, stage: str, where: str
    ) -> None:
        """Ask for a stage; `where` begins what is told when the API stays away."""
        self.client = client
        self._settings = settings
        self._stage, self._where = stage, where

    def ask(self, call: Callable[[SyncPrefectClient], Answer]) -> Answer:
        """Return what the Prefect API answers; raises StageError when it stays away too long."""
        since = time.monotonic()
        while True:
            try:
                return call(self.client)
            except (httpx.TransportError, PrefectHTTPStatusError) as error:
                if isinstance(error, PrefectHTTPStatusError) and error.response.status_code < 500:
                    raise
                if time.monotonic() - since > self._settings.lost_seconds:
                    raise StageError(
                        f"{self._where}: the Prefect API has not answered for "
                        f"{self._settings.lost_seconds:.0f} s: {line(error)}"
                    ) from error
                log.warning("stage=%s the Prefect API is away: %s", self._stage, line(error))
            check()
            time.sleep(self._settings.poll_seconds)


def cancel_run(client: SyncPrefectClient, run_id: UUID, why: str) -> None:
    """Cancel a flow run that is not over."""
    client.set_flow_run_state(run_id, Cancelling(message=why))


def line(error: Exception) -> str:
    """Return an error in one line."""
    text = " ".join(str(error).split())
    return text if isinstance(error, GenenvError) else f"{type(error).__name__}: {text}"[:300]
