"""Whether the Prefect server has what a configured placement needs, before any work."""

from __future__ import annotations

from prefect.client.orchestration import get_client
from prefect.exceptions import ObjectNotFound

from genenv_core.config.schema import RunConfig
from genenv_core.errors import ConfigError
from tasks.placement.names import deployment_name


def check_placement(config: RunConfig) -> None:
    """Raise ConfigError unless the server has what the configured placement needs."""
    pools = config.placement.pools()
    if not pools:
        return
    with get_client(sync_client=True) as client:
        for stage, pool in pools.items():
            name = deployment_name(stage, pool)
            try:
                deployment = client.read_deployment_by_name(name)
            except ObjectNotFound as error:
                raise ConfigError(
                    f"placement.{stage} {pool!r}: the Prefect server has no deployment {name!r}: "
                    f"make the pool's deployments with `genenv pool {pool}`"
                ) from error
            if deployment.work_pool_name != pool:
                raise ConfigError(
                    f"placement.{stage} {pool!r}: the deployment {name!r} is on the pool "
                    f"{deployment.work_pool_name!r}: make it anew with `genenv pool {pool}`"
                )
