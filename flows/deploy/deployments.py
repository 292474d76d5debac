"""genenv's deployments, work pool and automations; also as infra/prefect.yaml.

`python -m flows.deploy.deployments > infra/prefect.yaml` writes the file that `prefect deploy
--all` reads, from the same list that `genenv deploy` and `genenv up` register.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

import yaml

from genenv_core.canonical import digest
from genenv_core.config.stages import STAGES
from tasks.placement.names import OURS

WORK_POOL = "genenv"
"""Work pool that everything runs on unless another is named."""

MODULE = "flows.deploy.deployed"

HEARTBEAT_S = 30
"""Seconds between two heartbeats of a flow run under a worker; Prefect takes no less."""

SILENCE_S = 95
"""Seconds without a heartbeat after which a flow run counts as dead: three beats and a little."""


@dataclass(frozen=True)
class Deployment:
    """A deployment of the flow of the same name in `flows.deploy.deployed`, and how it runs."""

    name: str
    description: str
    tags: tuple[str, ...]
    gpu: bool = False
    schedules: tuple[dict[str, Any], ...] = ()
    parameters: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def entrypoint(self) -> str:
        """Return the path under which workers find the flow."""
        return f"{MODULE}.{self.name}"


NIGHTLY = {
    "cron": "0 2 * * *",
    "timezone": "UTC",
    "active": False,
    "slug": "nightly",
    "parameters": {"request": {"preset": "quickstart"}},
}
"""An example, switched off; the UI switches it on. If nothing has changed, a night's run reuses
every stage, and so checks that the stored outputs are whole."""


DEPLOYMENTS = (
    Deployment(
        "begin",
        "Start a run, or go on with one: what people set most, and one field for any other change. "
        "The same request again, or Retry, continues the run.",
        (OURS, "run"),
    ),
    Deployment(
        "coevolution",
        "A whole run, with every field of the configuration in the form. The same request again, "
        "or Retry, continues the run.",
        (OURS, "run"),
        schedules=(NIGHTLY,),
    ),
    Deployment(
        "compare",
        "Arms on the same seeds: which one is better, with intervals. Every run is a flow run of "
        "the deployment coevolution on this work pool, which needs room for two at least.",
        (OURS, "compare"),
    ),
    Deployment(
        "benchmark",
        "A model on a benchmark: a checkpoint, one of a run, a version in MLflow, or a model at an "
        "endpoint. The same request again, or Retry, goes on at the item that was cut off.",
        (OURS, "benchmark", "gpu"),
        gpu=True,
    ),
    Deployment("epoch", "One epoch of a run whose earlier epochs are finished.", (OURS, "run")),
    *(
        Deployment(
            name,
            f"The stage {name} of one epoch of a run: {entry.does}. Needs what the stage reads, "
            "and reuses what is there.",
            (OURS, "stage", "gpu"),
            gpu=True,
        )
        for name, entry in STAGES.items()
        if entry.alone
    ),
)


def deploy(work_pool: str, *, gpu_work_pool: str | None = None) -> list[str]:
    """Register deployments and the automation, and make missing work pools; returns names."""
    for name in {work_pool, gpu_work_pool or work_pool}:
        ensure_work_pool(name)
    ensure_automation()
    return register(work_pool, gpu_work_pool=gpu_work_pool)


def register(
    work_pool: str, *, gpu_work_pool: str | None = None, variables: dict[str, Any] | None = None
) -> list[str]:
    """Register every deployment with the Prefect API in use; returns their full names.

    An unchanged one is left alone. A changed one keeps its schedules: somebody may have switched
    them on.
    """
    from importlib import import_module

    module = import_module(MODULE)
    names: list[str] = []
    for item in DEPLOYMENTS:
        on = (gpu_work_pool or work_pool) if item.gpu else work_pool
        names.append(_registered(item, getattr(module, item.name), on, variables or {}))
    return names


def _registered(item: Deployment, flow: Any, work_pool: str, variables: dict[str, Any]) -> str:
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import DeploymentScheduleCreate
    from prefect.client.schemas.schedules import CronSchedule
    from prefect.exceptions import ObjectNotFound
    from prefect.types.entrypoint import EntrypointType
    from prefect.utilities.callables import parameter_schema

    full = f"{flow.name}/{item.name}"
    schema = parameter_schema(flow.fn).model_dump(mode="json")
    version = digest([asdict(item), schema, work_pool, variables])[:12]
    schedules = [
        DeploymentScheduleCreate(
            schedule=CronSchedule(cron=values["cron"], timezone=values["timezone"]),
            active=values["active"],
            slug=values["slug"],
            parameters=values["parameters"],
        )
        for values in item.schedules
    ]
    with get_client(sync_client=True) as client:
        try:
            there = client.read_deployment_by_name(full)
        except ObjectNotFound:
            there = None
    if there is not None:
        if there.version == version:
            return full
        kept = {"schedule", "active", "parameters", "slug"}
        schedules = [
            DeploymentScheduleCreate(**schedule.model_dump(include=kept))
            for schedule in there.schedules
        ]
    flow.to_deployment(
        name=item.name,
        description=item.description,
        version=version,
        tags=list(item.tags),
        parameters=item.parameters,
        schedules=schedules,
        work_pool_name=work_pool,
        job_variables=variables,
        entrypoint_type=EntrypointType.MODULE_PATH,
    ).apply()
    return full


def ensure_work_pool(name: str, *, limit: int | None = None) -> None:
    """Make the process work pool unless one has this name; sets its limit when given.

    The limit is the work pool's: a worker with its own limit (Prefect 3.8.8) ends with an error
    when a run is retried before its last process has ended.
    """
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
    from prefect.exceptions import ObjectAlreadyExists
    from prefect.workers.process import ProcessWorker

    wanted = WorkPoolCreate(
        name=name,
        type="process",
        description="Runs flows as processes of one machine.",
        concurrency_limit=limit,
        base_job_template=ProcessWorker.get_default_base_job_template(),
    )
    with get_client(sync_client=True) as client:
        try:
            client.create_work_pool(wanted)
        except ObjectAlreadyExists:
            if limit is not None:
                client.update_work_pool(name, WorkPoolUpdate(concurrency_limit=limit))


def zombie_automation() -> Any:
    """Return the automation that marks a silent flow run as Crashed."""
    from prefect.automations import AutomationCore
    from prefect.client.schemas.objects import StateType
    from prefect.events.actions import ActionTypes, ChangeFlowRunState
    from prefect.events.schemas.automations import EventTrigger, Posture

    # AwaitingRetry: an evicted pod's flow run, which may wait for hours for a new pod.
    ended = ("Completed", "Failed", "Cancelled", "Crashed", "AwaitingRetry")
    beat = "prefect.flow-run.heartbeat"
    actions: list[ActionTypes] = [
        ChangeFlowRunState(
            name=None,
            state=StateType.CRASHED,
            message=f"no heartbeat for {SILENCE_S} s: its process or machine is gone; Retry "
            "continues the run",
            force=False,
        )
    ]
    return AutomationCore(
        name="genenv: silent flow runs are marked as Crashed",
        description=f"A flow run under a worker sends a heartbeat every {HEARTBEAT_S} s. After "
        f"{SILENCE_S} s of silence its process or machine is gone. Retry continues it.",
        trigger=EventTrigger(
            after={beat},
            expect={beat, *(f"prefect.flow-run.{state}" for state in ended)},
            match={"prefect.resource.id": ["prefect.flow-run.*"]},
            for_each={"prefect.resource.id"},
            posture=Posture.Proactive,
            threshold=1,
            within=timedelta(seconds=SILENCE_S),
        ),
        actions=actions,
    )


def ensure_automation() -> None:
    """Make the automation unless it is there."""
    from prefect.client.orchestration import get_client

    wanted = zombie_automation()
    with get_client(sync_client=True) as client:
        if not client.read_automations_by_name(wanted.name):
            client.create_automation(wanted)


def prefect_yaml() -> str:
    """Return infra/prefect.yaml."""
    deployments: list[dict[str, Any]] = [
        {
            "name": item.name,
            "entrypoint": item.entrypoint,
            "description": item.description,
            "tags": list(item.tags),
            "schedules": [dict(schedule) for schedule in item.schedules],
            "work_pool": {
                "name": "{{ $GENENV_GPU_POOL }}" if item.gpu else "{{ $GENENV_POOL }}",
                "job_variables": {},
            },
        }
        for item in DEPLOYMENTS
    ]
    head = (
        "# Written by `python -m flows.deploy.deployments > infra/prefect.yaml`; a test compares.\n"
        "#   GENENV_POOL=genenv GENENV_GPU_POOL=genenv \\\n"
        "#     prefect --no-prompt deploy --all --prefect-file infra/prefect.yaml\n"
        "# The flows are found by module name: the image or environment of the worker has genenv.\n"
    )
    body: dict[str, Any] = {"name": "genenv", "pull": None, "deployments": deployments}
    return head + yaml.safe_dump(body, sort_keys=False, allow_unicode=True, width=100)


def automations_yaml() -> str:
    """Return infra/automations.yaml."""
    head = (
        "# Written by `python -m flows.deploy.deployments automations > infra/automations.yaml`.\n"
        "#   prefect automation create --from-file infra/automations.yaml\n"
        "# `genenv up` and `genenv deploy` make it by themselves, once.\n"
    )
    automation = zombie_automation().model_dump(mode="json", exclude_none=True)
    for name in ("after", "expect", "for_each"):
        automation["trigger"][name].sort()
    body = {"automations": [automation]}
    return head + yaml.safe_dump(body, sort_keys=False, allow_unicode=True, width=100)


if __name__ == "__main__":
    print(automations_yaml() if sys.argv[1:] == ["automations"] else prefect_yaml(), end="")
