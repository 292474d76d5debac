"""An environment behind a server of ORS, the protocol of OpenReward: `domain.name: ors`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from genenv_core.domains.kit.served.answered import AnsweredDomain
from genenv_core.domains.ors.options import OrsOptions
from genenv_core.domains.ors.ors_domain import OrsDomain
from genenv_core.domains.parts import read_options


class AnsweredOrs(AnsweredDomain, OrsDomain):
    """The domain where a field of the tasks says what solves them."""


def ors(options: Mapping[str, Any]) -> OrsDomain:
    """Return the domain of a server; raises ConfigError on bad options, or without a server."""
    read = read_options(OrsOptions, options, "ors")
    return (AnsweredOrs if read.answer else OrsDomain)(read)
