"""Sends requests to the Prefect API, which may be away or lack what a placement needs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterTags
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.sorting import FlowRunSort
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError
from prefect.states import Cancelling

from genenv_core.config.schema import RunConfig
from genenv_core.config.sections.placement import PlacementConfig
from genenv_core.errors import ConfigError, GenenvError, described
from tasks.placement.names import MOST, deployment_name
from tasks.stage.progress import check

log = logging.getLogger("genenv.stage")

Answer = TypeVar("Answer")


class PatientApi:
    """The Prefect API, which may be away for a while, for a caller that follows a flow run."""

    def __init__(self, client: SyncPrefectClient, settings: PlacementConfig, where: str) -> None:
        """Make requests for a stage or a run; `where` names it and begins every message."""
        self.client = client
        self._settings, self._where = settings, where

    def ask(self, call: Callable[[SyncPrefectClient], Answer]) -> Answer:
        """Return the API's answer; ask again while it gives none.

        Raises GenenvError when it stays away too long.
        """
        since = time.monotonic()
        while True:
            try:
                return call(self.client)
            except (httpx.TransportError, PrefectHTTPStatusError) as error:
                if isinstance(error, PrefectHTTPStatusError) and error.response.status_code < 500:
                    raise
                if time.monotonic() - since > self._settings.lost_seconds:
                    raise GenenvError(
                        f"{self._where}: the Prefect API has not answered for "
                        f"{self._settings.lost_seconds:.0f} s: {described(error, 300)}"
                    ) from error
                log.warning("%s: the Prefect API is away: %s", self._where, described(error, 300))
            self.pause()

    def pause(self) -> None:
        """Wait for the next look; raises Cancelled when somebody has cancelled this flow."""
        deadline = time.monotonic() + self._settings.poll_seconds
        while time.monotonic() < deadline:
            check()
            time.sleep(0.1)

    def cancel(self, run: UUID, why: str) -> None:
        """Ask a flow run to end; log a failed request."""
        try:
            self.client.set_flow_run_state(run, Cancelling(message=why))
        except Exception as error:  # how this flow ends matters more
            log.warning("flow_run=%s could not be cancelled: %s", run, described(error, 300))


def runs_with(client: SyncPrefectClient, tag: str) -> list[FlowRun]:
    """Return the flow runs with a tag, the newest first."""
    return client.read_flow_runs(
        flow_run_filter=FlowRunFilter(tags=FlowRunFilterTags(all_=[tag])),
        sort=FlowRunSort.EXPECTED_START_TIME_DESC,
        limit=MOST,
    )


def check_placement(config: RunConfig) -> None:
    """Raise ConfigError unless the server has what the configured placement needs."""
    placed = config.placement.work_pools()
    if not placed:
        return
    with get_client(sync_client=True) as client:
        for stage, place in placed.items():
            name = deployment_name(stage, place)
            try:
                deployment = client.read_deployment_by_name(name)
            except ObjectNotFound as error:
                raise ConfigError(
                    f"placement.{stage} {place!r}: the Prefect server has no deployment {name!r}: "
                    f"make its deployments with `genenv work-pool {place}`"
                ) from error
            if deployment.work_pool_name != place:
                raise ConfigError(
                    f"placement.{stage} {place!r}: the deployment {name!r} is on the work pool "
                    f"{deployment.work_pool_name!r}: make it anew with `genenv work-pool {place}`"
                )
