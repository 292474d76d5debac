"""Finds the folder from which a run reads its relative files of own code, also when it continues.

A configuration names a class of one's own by its file, `./mine.py:Mine`, and a key has that text
and the digest of the code. So the text stays relative, and the run's record holds the folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from genenv_core.canonical import section_of
from genenv_core.errors import ConfigError
from genenv_core.storage.records.runs import RunInfo


def relative_files(config: Mapping[str, Any]) -> list[str]:
    """Return the files of one's own code that a configuration names by a relative path."""
    files = (name.rpartition(":")[0] for name in _places(config))
    return [
        file for file in files if file.endswith(".py") and not Path(file).expanduser().is_absolute()
    ]


def go_where_started(info: RunInfo) -> None:
    """Change into the folder where a run started, if the current one lacks the run's own code.

    Raises ConfigError, which names both places, where that folder lacks it too.
    """
    lost = [file for file in relative_files(info.config) if not os.path.isfile(file)]
    if not lost or not info.folder:  # older genenv noted no folder: loading the file reports it
        return
    there = Path(info.folder)
    if gone := [file for file in lost if not os.path.isfile(there / file)]:
        raise ConfigError(
            f"run {info.run_id} needs {gone[0]}: there is neither {Path(gone[0]).absolute()} nor "
            f"{(there / gone[0]).absolute()}, where the run was started: put the file there, or "
            "run the command in the folder that has it"
        )
    os.chdir(there)


def _places(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the domains and of the algorithm of a configuration."""
    domain, update = section_of(config, "domain"), section_of(config, "agent_update")
    parts = section_of(domain, "options").get("parts")
    listed = cast("list[Any]", parts) if isinstance(parts, list) else []
    yield str(domain.get("name", ""))
    yield from (str(section_of({"part": part}, "part").get("name", "")) for part in listed)
    yield str(update.get("algorithm", ""))
