"""An environment behind a resources server of NVIDIA's NeMo Gym: `domain.name: nemo_gym`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from genenv_core.domains.nemo_gym.nemo_gym_domain import AnsweredGym, GymDomain
from genenv_core.domains.nemo_gym.options import GymOptions
from genenv_core.domains.parts import read_options


def nemo_gym(options: Mapping[str, Any]) -> GymDomain:
    """Return the domain of a server and of a file of rows.

    Raises ConfigError on bad options, without a server, or without rows.
    """
    read = read_options(GymOptions, options, "nemo_gym")
    return (AnsweredGym if read.answer else GymDomain)(read)
