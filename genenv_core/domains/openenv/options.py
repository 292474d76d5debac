"""Options of the domain openenv, from `domain.options` of a configuration."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from genenv_core.domains.kit.served.options import ServedOptions


class OpenEnvOptions(ServedOptions):
    """What a reset takes, which tasks there are without that, and what the agent does not read.

    `family` and `difficulty` are arguments of the reset. `answer` is a field of the reset's
    metadata, with a text or a call.
    """

    url_variable: ClassVar[str] = "GENENV_OPENENV_URL"
    python_variable: ClassVar[str] = "GENENV_OPENENV_PYTHON"
    package: ClassVar[str] = "openenv"

    reset: dict[str, Any] | None = None
    """JSON schema of the reset arguments that pi_env writes; None: the server's own tasks by split
    and index, or seeds where it has none."""
    seeds: int = Field(default=10_000, ge=100, le=2**31 - 1)
    """Of a server without tasks: how many seeds there are."""
    hidden: tuple[str, ...] = ()
    """Fields of observations that the agent does not read."""
