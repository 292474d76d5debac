"""What a run reads from outside of its store: data files and given models, checked before work.

Their content, not their name, is in the stage keys.
"""

from __future__ import annotations

import logging
from pathlib import Path

from genenv_core.config.schema import RunConfig
from genenv_core.domains.base import Domain
from genenv_core.domains.registry import get_domain
from genenv_core.errors import DataError
from genenv_core.exchange.base_data import heldout_fingerprints, read_base
from genenv_core.models import content_digest, hub_folder, model_folder
from genenv_core.storage.canonical import digest
from genenv_core.storage.manifest import FileRef
from genenv_core.types import Policy

log = logging.getLogger("genenv.inputs")


def external_inputs(config: RunConfig) -> dict[str, FileRef | None]:
    """Return what `bootstrap` reads from outside, with digests.

    Raises ConfigError for an unknown domain, DataError and ModelError naming file, line and remedy.
    """
    domain = get_domain(config.domain.name, config.domain.options)
    inputs: dict[str, FileRef | None] = {"base_file": None}
    if config.data.base_file is not None:
        inputs["base_file"] = _data_file(config.data.base_file)
        _check_base(config, domain, Path(inputs["base_file"].path))
    models = config.models
    given: tuple[tuple[Policy, str, str | None], ...] = (
        ("agent", models.agent, models.agent_revision),
        ("env", models.env, models.env_revision),
    )
    for policy, name, revision in given:
        inputs[f"{policy}_model"] = None
        if name != "bootstrap":
            hub = revision is not None
            folder = hub_folder(policy, name, revision) if hub else Path(name).expanduser()
            inputs[f"{policy}_model"] = model_folder(policy, folder)
    return inputs


def offline_input(config: RunConfig) -> FileRef | None:
    """Return the file of the arm `offline` with its digest, None for other arms."""
    return None if config.data.offline_file is None else _data_file(config.data.offline_file)


def _check_base(config: RunConfig, domain: Domain, path: Path) -> None:
    """Read the base data as bootstrap will, so that bad data stops a run before any work."""
    data = config.data
    found = read_base(
        path,
        domain,
        format_=data.base_format,
        mapping=data.base_mapping,
        count=data.base_tasks,
        skip_bad=data.skip_bad,
        heldout=heldout_fingerprints(domain, config.seed, data.heldout_tasks),
    )
    for row in found.bad:
        log.info("data.base_file: skipped %s", row)


def _data_file(name: str) -> FileRef:
    path = Path(name).expanduser()
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
        contents = [[file.relative_to(path).as_posix(), content_digest(file)] for file in files]
        return FileRef(path=str(path), sha256=digest(contents))
    if not path.is_file():
        raise DataError(f"{path}: No such file or directory")
    return FileRef(path=str(path), sha256=content_digest(path))
