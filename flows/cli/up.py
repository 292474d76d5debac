"""`genenv up` and `genenv deploy`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import DEFAULT_ROOT, Root
from flows.deployments import POOL

Pool = Annotated[str, typer.Option(help="Work pool that runs are carried out on.")]


def up(
    root: Root = None,
    port: Annotated[int, typer.Option(help="Port of the Prefect server.", min=1, max=65535)] = 4200,
    mlflow_port: Annotated[int, typer.Option(help="Port of MLflow.", min=1, max=65535)] = 5000,
    database_url: Annotated[
        str | None,
        typer.Option(
            help="PostgreSQL for Prefect: postgresql://user:password@host/name. "
            "Without it, SQLite under the root.",
            envvar="GENENV_DATABASE_URL",
        ),
    ] = None,
    pool: Pool = POOL,
    limit: Annotated[int, typer.Option(help="Most runs at work at once.", min=1)] = 2,
    upgrade: Annotated[
        bool, typer.Option("--upgrade", help="Upgrade databases of older versions, after a copy.")
    ] = False,
) -> None:
    """Start Prefect, MLflow, a worker and all deployments on this machine, until Ctrl-C."""
    from flows.environment import prepare
    from flows.up.databases import connection_url
    from genenv_core.errors import ConfigError
    from genenv_core.storage.registry import open_store

    store = open_store(root or DEFAULT_ROOT)
    if store.uri != str(store.home):
        raise ConfigError(
            f"--root {store.uri}: `genenv up` keeps the databases of Prefect and MLflow in a "
            "directory: give one, and name the bucket as the root of a run, in its form"
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
        database_url=connection_url(database_url),
        pool=pool,
        limit=limit,
    )
    run_up(settings, upgrade=upgrade, say=lambda text: print(text, flush=True))


def deploy(
    root: Root = None,
    pool: Pool = POOL,
    gpu_pool: Annotated[
        str | None, typer.Option(help="Work pool of the GPU stages; without it, the same.")
    ] = None,
) -> None:
    """Register all deployments at PREFECT_API_URL, or at the `genenv up` of the root."""
    from flows.environment import prepare
    from flows.up.previous import live_api
    from genenv_core.errors import ConfigError

    api = os.environ.get("PREFECT_API_URL") or live_api(Path(root or DEFAULT_ROOT).resolve())
    if api is None:
        raise ConfigError(
            "there is no Prefect API to deploy to: set PREFECT_API_URL, or start one with "
            "`genenv up`"
        )
    os.environ["PREFECT_API_URL"] = api
    prepare()
    from flows.deployments import deploy as register_all

    for name in register_all(pool, gpu_pool=gpu_pool):
        typer.echo(name)
    typer.echo(f"registered at {api}")
