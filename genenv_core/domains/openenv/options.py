"""Options of the domain openenv, from `domain.options` of a configuration."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from genenv_core.domains.kit.served.options import ServedOptions


class OpenEnvOptions(ServedOptions):
    """What a reset takes, the tasks of a server without such a schema, and what the agent skips.

    `family` and `difficulty` are arguments of the reset. `answer` is a field of the reset's
    metadata, with a text or a call.
    """

    url_variable: ClassVar[str] = "GENENV_OPENENV_URL"
    python_variable: ClassVar[str] = "GENENV_OPENENV_PYTHON"
    package: ClassVar[str] = "openenv"

    reset: dict[str, Any] | None = None
    """JSON schema of the reset arguments that pi_env writes. None: pi_env names the server's own
    tasks by split and index, or seeds where the server has no tasks."""
    seeds: int = Field(default=10_000, ge=100, le=2**31 - 1)
    """For a server without tasks: how many seeds pi_env chooses among."""
    hidden: tuple[str, ...] = ()
    """Fields of observations that the agent does not read."""
