"""An environment behind an OpenEnv server as a domain: `domain.name: openenv`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from genenv_core.domains.kit.served.answered import AnsweredDomain
from genenv_core.domains.openenv.openenv_domain import OpenEnvDomain
from genenv_core.domains.openenv.options import OpenEnvOptions
from genenv_core.domains.parts import read_options


class AnsweredOpenEnv(AnsweredDomain, OpenEnvDomain):
    """The domain where the metadata of a reset say what solves the task."""


def openenv(options: Mapping[str, Any]) -> OpenEnvDomain:
    """Return the domain of a server; raises ConfigError on bad options, or without a server."""
    read = read_options(OpenEnvOptions, options, "openenv")
    return (AnsweredOpenEnv if read.answer else OpenEnvDomain)(read)
