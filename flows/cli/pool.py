"""`genenv pool`: a work pool on which stages can be placed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from genenv_core.config.stages import STAGES
from genenv_core.errors import ConfigError

Settings = Annotated[
    Path | None,
    typer.Option(help="YAML of the pods: makes a Kubernetes pool; a process pool without it."),
]
Stages = Annotated[
    list[str] | None,
    typer.Option("--stage", metavar="STAGE", help="Only these stages; can be given repeatedly."),
]
Limit = Annotated[int | None, typer.Option(min=1, help="Most stages that run at once.")]


def pool(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the pool, as placement.* has it.")
    ],
    settings: Settings = None,
    stage: Stages = None,
    limit: Limit = None,
) -> None:
    """Make or update a work pool on the Prefect server, with a deployment for each stage."""
    if not os.environ.get("PREFECT_API_URL"):
        raise ConfigError(
            "PREFECT_API_URL names no Prefect server: set it to the server's API "
            "(http://HOST:4200/api)"
        )
    for given in stage or ():
        if given not in STAGES:
            raise ConfigError(f"--stage {given!r} is none of {', '.join(STAGES)}")
    from flows.environment import prepare

    prepare()
    from flows.pod_settings import job_template, read_settings

    template = job_template(read_settings(settings)) if settings else None
    from flows.pools import make_pool

    kind = "kubernetes" if settings else "process"
    made = make_pool(name, kind=kind, stages=stage or STAGES, template=template, limit=limit)
    for deployment in made:
        typer.echo(deployment)
    typer.echo(f"next: prefect worker start --pool {name} --type {kind}")
