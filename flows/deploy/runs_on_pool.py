"""Plays the runs of a comparison as flow runs of the deployment `coevolution`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from prefect.client.orchestration import get_client
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound
from prefect.runtime import flow_run

from genenv_core.config.comparison import PlannedRun
from genenv_core.errors import ConfigError, GenenvError
from tasks.placement.api import PatientApi
from tasks.placement.child import state_reason
from tasks.placement.names import OURS, parent_tag
from tasks.stage.progress import Cancelled, check

DEPLOYMENT = "coevolution/coevolution"
MOST_AT_ONCE = 16
"""Runs asked for at once; the work pool's own limit says how many of them are at work."""


@dataclass(frozen=True)
class OnWorkPool:
    """Plays a run on the work pool of the deployment, for the flow run `parent`."""

    root: str
    parent: UUID

    @classmethod
    def here(cls, root: str) -> OnWorkPool:
        """Return one for the current flow run; raises ConfigError where it could not play any."""
        with get_client(sync_client=True) as client:
            try:
                deployment = client.read_deployment_by_name(DEPLOYMENT)
            except ObjectNotFound as error:
                raise ConfigError(
                    f"the Prefect server has no deployment {DEPLOYMENT!r}: make it with "
                    "`genenv deploy`, or start `genenv up`"
                ) from error
            name = deployment.work_pool_name
            if name and client.read_work_pool(name).concurrency_limit == 1:
                raise ConfigError(
                    f"work pool {name!r} has room for one flow run, and the comparison is one: "
                    "raise its limit to two or more (`genenv up --limit 3`, or `prefect work-pool "
                    f"set-concurrency-limit {name} 3`)"
                )
        return cls(root, UUID(str(flow_run.get_id())))

    def __call__(self, run: PlannedRun) -> None:
        """Return when the run is done; raises GenenvError when its flow run ends otherwise."""
        once = str(uuid4())  # a request whose answer was lost starts no second flow run
        with get_client(sync_client=True) as client:
            api = PatientApi(client, run.config.placement, f"run {run.run_id}")
            # Only an asynchronous caller gets a coroutine.
            child: Any = api.ask(
                lambda _: run_deployment(
                    DEPLOYMENT,
                    parameters={"request": {"resume": run.run_id, "root": self.root}},
                    flow_run_name=run.run_id,
                    timeout=0,
                    tags=[OURS, parent_tag(self.parent)],
                    idempotency_key=once,
                )
            )
            try:
                self._follow(api, child.id)
            except Cancelled:
                api.cancel(child.id, "the comparison that wanted it was cancelled")
                raise

    def _follow(self, api: PatientApi, child: UUID) -> None:
        while True:
            check()
            state = api.ask(lambda client: client.read_flow_run(child)).state
            if state is not None and state.is_final():
                if not state.is_completed():
                    raise GenenvError(state_reason(state))
                return
            api.pause()
