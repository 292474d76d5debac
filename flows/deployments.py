"""The deployments, the work pool and the automations that genenv has; also as infra/prefect.yaml.

`python -m flows.deployments > infra/prefect.yaml` writes the file that `prefect deploy --all`
reads, from the same list that `genenv deploy` and `genenv up` register.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

import yaml

from genenv_core.storage.canonical import digest
from tasks.placement.names import OURS

POOL = "genenv"
"""Work pool that everything runs on unless another is named."""

MODULE = "flows.deployed"

HEARTBEAT_S = 30
"""How often a flow run under a worker says that it is alive; Prefect takes no less."""

SILENCE_S = 95
"""After how long without a word a flow run is taken for dead: three beats and a little."""


@dataclass(frozen=True)
class Deployment:
    """One deployment, of the flow of the same name in `flows/deployed.py`, and how it is run."""

    name: str
    description: str
    tags: tuple[str, ...]
    gpu: bool = False
    schedules: tuple[dict[str, Any], ...] = ()
    parameters: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def entrypoint(self) -> str:
        """Return where workers find the flow."""
        return f"{MODULE}.{self.name}"


NIGHTLY = {
    "cron": "0 2 * * *",
    "timezone": "UTC",
    "active": False,
    "slug": "nightly",
    "parameters": {"request": {"preset": "quickstart"}},
}
"""An example, switched off: switch it on in the UI. A night on which nothing has changed reuses
every stage, so it also checks that what is stored is whole."""


def _stage(name: str, does: str) -> Deployment:
    return Deployment(
        name,
        f"The stage {name} of one epoch of a run: {does}. Needs what the stage reads, and reuses "
        "what is there.",
        (OURS, "stage", "gpu"),
        gpu=True,
    )


DEPLOYMENTS = (
    Deployment(
        "coevolution",
        "A whole run: bootstrap, then epochs. Choose a preset and change what should differ; the "
        "same request again, or Retry, continues the run.",
        (OURS, "run"),
        schedules=(NIGHTLY,),
    ),
    Deployment("epoch", "One epoch of a run whose earlier epochs are finished.", (OURS, "run")),
    _stage("bootstrap", "base tasks, held-out tasks, and the first two checkpoints"),
    _stage("generate_tasks", "pi_env writes tasks"),
    _stage("rollout", "pi_agent attempts each task n times"),
    _stage("grpo_update", "GRPO of pi_agent on stored rollouts"),
    _stage("rwr_update", "reward-weighted regression of pi_env"),
    _stage("evaluate", "the agent on held-out tasks"),
)


def deploy(pool: str, *, gpu_pool: str | None = None) -> list[str]:
    """Register deployments and automations, on pools that are made when missing; returns names."""
    for name in {pool, gpu_pool or pool}:
        ensure_pool(name)
    ensure_automations()
    return register(pool, gpu_pool=gpu_pool)


def register(
    pool: str, *, gpu_pool: str | None = None, variables: dict[str, Any] | None = None
) -> list[str]:
    """Register every deployment with the Prefect API in use; returns their full names.

    One that is there already and has not changed is left alone, and the schedules of one that has
    are kept: somebody may have switched them on.
    """
    from importlib import import_module

    module = import_module(MODULE)
    names: list[str] = []
    for item in DEPLOYMENTS:
        on = (gpu_pool or pool) if item.gpu else pool
        names.append(_registered(item, getattr(module, item.name), on, variables or {}))
    return names


def _registered(item: Deployment, flow: Any, pool: str, variables: dict[str, Any]) -> str:
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound
    from prefect.types.entrypoint import EntrypointType
    from prefect.utilities.callables import parameter_schema

    full = f"{flow.name}/{item.name}"
    schema = parameter_schema(flow.fn).model_dump(mode="json")
    version = digest([asdict(item), schema, pool, variables])[:12]
    schedules = [_schedule(values) for values in item.schedules]
    with get_client(sync_client=True) as client:
        try:
            there = client.read_deployment_by_name(full)
        except ObjectNotFound:
            there = None
    if there is not None:
        if there.version == version:
            return full
        schedules = [_kept(schedule) for schedule in there.schedules]
    flow.to_deployment(
        name=item.name,
        description=item.description,
        version=version,
        tags=list(item.tags),
        parameters=item.parameters,
        schedules=schedules,
        work_pool_name=pool,
        job_variables=variables,
        entrypoint_type=EntrypointType.MODULE_PATH,
    ).apply()
    return full


def ensure_pool(name: str, *, limit: int | None = None) -> None:
    """Make the process work pool unless there is a pool of this name; sets its limit when given.

    The limit belongs to the pool: a worker with one of its own (Prefect 3.8.8) ends with an error
    when a run is retried before its last process is quite gone.
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


def _schedule(values: dict[str, Any]) -> Any:
    from prefect.client.schemas.actions import DeploymentScheduleCreate
    from prefect.client.schemas.schedules import CronSchedule

    return DeploymentScheduleCreate(
        schedule=CronSchedule(cron=values["cron"], timezone=values["timezone"]),
        active=values["active"],
        slug=values["slug"],
        parameters=values["parameters"],
    )


def _kept(schedule: Any) -> Any:
    from prefect.client.schemas.actions import DeploymentScheduleCreate

    return DeploymentScheduleCreate(
        **schedule.model_dump(include={"schedule", "active", "parameters", "slug"})
    )


def zombie_automation() -> Any:
    """Return the automation that marks a silent flow run as Crashed."""
    from prefect.automations import AutomationCore
    from prefect.events.actions import ChangeFlowRunState
    from prefect.events.schemas.automations import EventTrigger, Posture

    # AwaitingRetry: an evicted pod's flow run, which may wait for a new one for hours.
    ended = ("Completed", "Failed", "Cancelled", "Crashed", "AwaitingRetry")
    beat = "prefect.flow-run.heartbeat"
    return AutomationCore(
        name="genenv: silent flow runs are marked as Crashed",
        description=f"A flow run under a worker says every {HEARTBEAT_S} s that it is alive; one "
        f"that is silent for {SILENCE_S} s has lost its process or machine. Retry continues it.",
        trigger=EventTrigger(
            after={beat},
            expect={beat, *(f"prefect.flow-run.{state}" for state in ended)},
            match={"prefect.resource.id": ["prefect.flow-run.*"]},
            for_each={"prefect.resource.id"},
            posture=Posture.Proactive,
            threshold=1,
            within=timedelta(seconds=SILENCE_S),
        ),
        actions=[
            ChangeFlowRunState(
                state="CRASHED",
                message=f"no heartbeat for {SILENCE_S} s: its process or machine is gone; Retry "
                "continues the run",
            )
        ],
    )


def ensure_automations() -> list[str]:
    """Make the automations that are missing; returns the names of all of genenv's."""
    from prefect.client.orchestration import get_client

    wanted = [zombie_automation()]
    with get_client(sync_client=True) as client:
        for automation in wanted:
            if not client.read_automations_by_name(automation.name):
                client.create_automation(automation)
    return [automation.name for automation in wanted]


def prefect_yaml() -> str:
    """Return infra/prefect.yaml."""
    deployments = [
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
        "# Written by `python -m flows.deployments > infra/prefect.yaml`; a test compares.\n"
        "#   GENENV_POOL=genenv GENENV_GPU_POOL=genenv \\\n"
        "#     prefect --no-prompt deploy --all --prefect-file infra/prefect.yaml\n"
        "# The flows are found by module name: the image or environment of the worker has genenv.\n"
    )
    body = {"name": "genenv", "pull": None, "deployments": deployments}
    return head + yaml.safe_dump(body, sort_keys=False, allow_unicode=True, width=100)


def automations_yaml() -> str:
    """Return infra/automations.yaml."""
    head = (
        "# Written by `python -m flows.deployments automations > infra/automations.yaml`.\n"
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
