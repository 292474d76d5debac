"""Checks before work what a run reads from outside of its store: data files and given models.

Their content, not their name, is in the stage keys.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genenv_core.canonical import digest
from genenv_core.config.schema import RunConfig
from genenv_core.config.sections.models import ModelsConfig, chat_template_kwargs
from genenv_core.config.sections.unions.teacher import EndpointTeacher, FileTeacher, ModelTeacher
from genenv_core.domains.protocol import Domain
from genenv_core.engines.adapters import check_settings
from genenv_core.engines.transformers.unloaded import check_shared_rows
from genenv_core.errors import DataError
from genenv_core.exchange.base_data import configured_base, heldout_fingerprints
from genenv_core.exchange.given_models import content_digest, hub_folder, model_folder, probe_of
from genenv_core.named_files import looked_for, unreadable
from genenv_core.storage.records.manifest import FileRef, TeacherRef
from genenv_core.types import Policy

if TYPE_CHECKING:
    from genenv_core.play.template.probe import Probe

log = logging.getLogger("genenv.inputs")


@dataclass(frozen=True, slots=True)
class Given:
    """What people give a run: base data and models, None for what `bootstrap` makes itself."""

    base_file: FileRef | None
    agent_model: FileRef | None
    env_model: FileRef | None


def given_to(config: RunConfig, domain: Domain) -> Given:
    """Return what people give a run of a domain, with digests.

    Raises DataError and ModelError naming file, line and remedy.
    """
    base_file = None
    if config.data.base_file is not None:
        base_file = data_file(config.data.base_file)
        # Read as bootstrap will, so that bad data stops a run before any work.
        heldout = heldout_fingerprints(domain, config.seed, config.data)
        for row in configured_base(config.data, Path(base_file.path), domain, heldout).bad:
            log.info("data.base_file: skipped %s", row)
    agent, env = (_model(*asked) for asked in _asked_for(config.models))
    for model in (agent, env):
        if model is not None:
            check_settings(Path(model.path), config.training.lora)
        if model is not None and config.training.shares_rows:
            check_shared_rows(Path(model.path))
    return Given(base_file, agent, env)


def probes_of(config: RunConfig) -> dict[str, Probe]:
    """Return the probe of each given model, by its field.

    Raises ModelError for one that cannot serve.
    """
    found: dict[str, Probe] = {}
    for policy, name, revision, variables in _asked_for(config.models):
        if name != "bootstrap":
            field = f"models.{policy}"
            folder = _folder(field, name, revision)
            found[field] = probe_of(policy, folder, variables, field)[1]
    return found


def _asked_for(
    models: ModelsConfig,
) -> Iterator[tuple[Policy, str, str | None, dict[str, Any]]]:
    """Yield for each policy its model, the commit, and the variables of the chat template."""
    named = {
        Policy.AGENT: (models.agent, models.agent_revision),
        Policy.ENV: (models.env, models.env_revision),
    }
    for policy, (name, revision) in named.items():
        yield policy, name, revision, chat_template_kwargs(models, policy)


def offline_input(config: RunConfig) -> FileRef | None:
    """Return the file of an arm that reads its tasks from one, with its digest, else None.

    Raises DataError for a file that cannot be read.
    """
    given = config.teacher
    if not isinstance(given, FileTeacher):
        return None
    file = Path(given.file).expanduser()
    if why := unreadable(file):  # a directory too: it would be read first
        raise DataError(f"teacher.file {given.file}: {why}{looked_for(file)}")
    return data_file(given.file)


def teacher_input(config: RunConfig) -> TeacherRef | None:
    """Return the model that writes the run's set of tasks, None for a run without one.

    Raises ModelError for a checkpoint that cannot serve.
    """
    given = config.teacher
    if isinstance(given, EndpointTeacher):
        return TeacherRef(None, {}, given.url, given.model_name, given.request)
    if not isinstance(given, ModelTeacher):
        return None
    variables = given.chat_template_kwargs
    model = _checkpoint(Policy.ENV, "teacher.model", given.model, given.revision, variables)
    return TeacherRef(model, variables, None, None, {})


def _model(
    policy: Policy, name: str, revision: str | None, variables: Mapping[str, Any]
) -> FileRef | None:
    """Return a policy's given model, None when bootstrap makes it."""
    if name == "bootstrap":
        return None
    return _checkpoint(policy, f"models.{policy}", name, revision, variables)


def _checkpoint(
    policy: Policy, field: str, name: str, revision: str | None, variables: Mapping[str, Any]
) -> FileRef:
    return model_folder(policy, _folder(field, name, revision), variables, field)


def _folder(field: str, name: str, revision: str | None) -> Path:
    return Path(name).expanduser() if revision is None else hub_folder(field, name, revision)


def data_file(name: str) -> FileRef:
    """Return a file or a folder of data with its digest; raises DataError if it is not there."""
    path = Path(name).expanduser()
    if os.path.isdir(path):  # also where the name is too long to be one
        files = sorted(file for file in path.rglob("*") if file.is_file())
        contents = [[file.relative_to(path).as_posix(), content_digest(file)] for file in files]
        return FileRef(path=str(path.absolute()), sha256=digest(contents))
    if why := unreadable(path):
        raise DataError(f"{path}: {why}{looked_for(path)}")
    return FileRef(path=str(path.absolute()), sha256=content_digest(path))
