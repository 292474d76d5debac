"""`genenv up`, `genenv deploy` and `genenv work-pool`: what carries out runs."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import Root
from flows.deploy.deployments import WORK_POOL
from genenv_core.addresses import DEFAULT_ROOT
from genenv_core.config.sections.placement import INLINE, PLACE
from genenv_core.config.stages import STAGES
from genenv_core.errors import ConfigError


def _work_pool(name: str | None) -> str | None:
    """Return the name of a work pool; raises ConfigError for one that `placement` cannot hold."""
    if name is not None and (len(name) > 63 or not re.fullmatch(PLACE, name) or name == INLINE):
        raise ConfigError(
            f"work pool {name[:80]!r}: write up to 63 letters, digits, dots, hyphens and "
            f"underscores, a letter or digit first, and not {INLINE!r}: placement.* and Prefect "
            "take no others"
        )
    return name


WorkPool = Annotated[
    str,
    typer.Option("--pool", help="Work pool that carries out the runs.", callback=_work_pool),
]


def up(
    root: Root = None,
    port: Annotated[int, typer.Option(help="Port of the Prefect server.", min=1, max=65535)] = 4200,
    mlflow_port: Annotated[int, typer.Option(help="Port of MLflow.", min=1, max=65535)] = 5000,
    view_port: Annotated[int, typer.Option(help="Port of the view.", min=1, max=65535)] = 4300,
    database_url: Annotated[
        str | None,
        typer.Option(
            help="PostgreSQL for Prefect: postgresql://user:password@host/name. "
            "Without it, SQLite under the root.",
            envvar="GENENV_DATABASE_URL",
        ),
    ] = None,
    work_pool: WorkPool = WORK_POOL,
    limit: Annotated[int, typer.Option(help="Most runs at work at once.", min=1)] = 2,
    upgrade: Annotated[
        bool,
        typer.Option(
            "--upgrade", help="Copy the SQLite files of older databases, and upgrade these."
        ),
    ] = False,
) -> None:
    """Start Prefect, MLflow, a worker, a view and all deployments on this machine, until Ctrl-C."""
    from flows.running.environment import prepare
    from flows.up.databases import connection_url
    from genenv_core.storage.store.opening import open_store

    store = open_store(root or DEFAULT_ROOT)
    if store.uri != str(store.home):
        raise ConfigError(
            f"--root {store.uri}: `genenv up` keeps the databases of Prefect and MLflow in a "
            "directory: give a directory here, and name the bucket as the root in a run's form"
        )
    folder = store.home.resolve()
    os.environ.pop("PREFECT_API_URL", None)  # the server is ours
    prepare(folder)
    from flows.up.run import up as run_up
    from flows.up.services import Settings

    settings = Settings(
        root=folder,
        port=port,
        mlflow_port=mlflow_port,
        view_port=view_port,
        database_url=connection_url(database_url),
        work_pool=work_pool,
        limit=limit,
    )
    run_up(settings, upgrade=upgrade, say=lambda text: print(text, flush=True))


def deploy(
    root: Root = None,
    work_pool: WorkPool = WORK_POOL,
    gpu_work_pool: Annotated[
        str | None,
        typer.Option(
            "--gpu-pool",
            help="Work pool of the GPU stages (default: that of the runs).",
            callback=_work_pool,
        ),
    ] = None,
) -> None:
    """Register all deployments at PREFECT_API_URL, or at the `genenv up` of the root."""
    from flows.running.environment import prepare
    from flows.running.previous import live_api

    api = os.environ.get("PREFECT_API_URL") or live_api(Path(root or DEFAULT_ROOT).resolve())
    if api is None:
        raise ConfigError(
            "there is no Prefect API to deploy to: set PREFECT_API_URL, or start one with "
            "`genenv up`"
        )
    os.environ["PREFECT_API_URL"] = api
    prepare()
    from flows.deploy.deployments import deploy as register_all

    for name in register_all(work_pool, gpu_work_pool=gpu_work_pool):
        typer.echo(name)
    typer.echo(f"registered at {api}")


def work_pool(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Name of the work pool, as in placement.*.",
            callback=_work_pool,
        ),
    ],
    settings: Annotated[
        Path | None,
        typer.Option(help="YAML of Kubernetes pods; without it, the work pool starts processes."),
    ] = None,
    stage: Annotated[
        list[str] | None,
        typer.Option(
            "--stage", metavar="STAGE", help="Only these stages; can be given repeatedly."
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Most stages at work at once.")] = None,
) -> None:
    """Make or update a work pool on the Prefect server, with a deployment for each stage."""
    if not os.environ.get("PREFECT_API_URL"):
        raise ConfigError(
            "PREFECT_API_URL names no Prefect server: set it to the server's API "
            "(http://HOST:4200/api)"
        )
    for given in stage or ():
        if given not in STAGES:
            raise ConfigError(f"--stage {given!r} is not one of {', '.join(STAGES)}")
    from flows.running.environment import prepare

    prepare()
    from flows.deploy.pod_settings import job_template, read_settings

    template = job_template(read_settings(settings)) if settings else None
    from flows.deploy.stage_on_pool import make_work_pool

    kind = "kubernetes" if settings else "process"
    stages = stage or list(STAGES)
    for made in make_work_pool(name, kind=kind, stages=stages, template=template, limit=limit):
        typer.echo(made)
    typer.echo(f"next: prefect worker start --pool {name} --type {kind}")
