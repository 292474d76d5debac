"""The folder that the relative files of a run's own code are read from, also when it is continued.

A configuration names a class of one's own by its file, `./mine.py:Mine`, and a key has that text
and the digest of the code. So the text stays as it is, and the folder stands in the run's record.
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
    """Make the folder that a run was started in the current one where its own code is not here.

    Raises ConfigError, with the places that were looked at, where it is not there either.
    """
    lost = [file for file in relative_files(info.config) if not os.path.isfile(file)]
    if not lost or not info.folder:  # older genenv noted no folder: who loads the file reports it
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
    """Yield how the domains and the algorithm of a configuration are named."""
    domain, update = section_of(config, "domain"), section_of(config, "agent_update")
    parts = section_of(domain, "options").get("parts")
    listed = cast("list[Any]", parts) if isinstance(parts, list) else []
    yield str(domain.get("name", ""))
    yield from (str(section_of({"part": part}, "part").get("name", "")) for part in listed)
    yield str(update.get("algorithm", ""))
