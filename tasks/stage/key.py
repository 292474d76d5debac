"""Makes a stage's key: everything that its result depends on. No stage reads a field outside it."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Sequence
from functools import cache
from importlib import metadata
from operator import attrgetter
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from genenv_core.config.moved import GONE, gone_of
from genenv_core.config.schema import RunConfig
from genenv_core.config.sections.compute import EngineKind
from genenv_core.domains.protocol import FILES_REMEDY, Domain, ReadsFiles
from genenv_core.domains.registry import get_domain, modules_of, options_in_keys
from genenv_core.engines.protocol import engine_module
from genenv_core.errors import ConfigError, StageError
from genenv_core.importing import load
from genenv_core.machine.surroundings import deciding, processor
from genenv_core.storage.records.code import code_version
from genenv_core.storage.records.keys import key_parts
from genenv_core.training.updates.table import agent_kind
from tasks.stage.context import Stage
from tasks.stage.inputs import Inputs, identities

LAUNCH = "genenv_core.training.processes.launch"
"""The module that starts an update in processes of its own; its settings decide numbers."""
GRAMMARS: dict[EngineKind, tuple[str, ...]] = {"transformers": ("llguidance",), "vllm": ()}
"""Libraries by which an engine holds a text to a grammar; a vLLM server brings its own."""
version = cache(metadata.version)
"""Returns the version of an installed library; looks each up once a process."""
OPTIONS = "domain.options"
AROUND = ("genenv_core.ids",)
"""Modules of what the machinery around every stage decides: seeds, and the scope of ids."""


def parts_of(
    stage: Stage, config: RunConfig, epoch: int, inputs: Inputs, draw: int = 0
) -> dict[str, Any]:
    """Return the parts of a stage's key; the first draw, 0, is not among them."""
    stage = stage.as_asked(config)
    # Without the label of a build (+cpu, +cu130): a flow makes the keys of stages that pods compute
    # with another build of the same version.
    runtime = {library: version(library).partition("+")[0] for library in stage.libraries}
    if stage.libraries:
        runtime["machine"] = platform.machine()
        runtime |= {f"environment {name}": value for name, value in deciding(os.environ).items()}
        if on_cpu(stage, config):
            runtime["processor"] = processor()
    fields = config_fields(config, stage.reads) | gone_of(stage.name)
    if fields.get("generation.structured"):
        runtime |= {library: version(library) for library in GRAMMARS[config.compute.engine]}
    domain = domain_of(stage, config)
    if domain:
        runtime["domain"] = " ".join([domain.name, domain.version, *_file_digests(domain)])
    parts = key_parts(
        stage=stage.name,
        code=code_version(*stage.modules, *chosen_modules(stage, config, domain), *AROUND),
        config=fields,
        inputs=identities(inputs),
        seed=config.seed,
        epoch=epoch,
        runtime=runtime,
    )
    return {**parts, "draw": draw} if draw else parts


def domain_of(stage: Stage, config: RunConfig) -> Domain | None:
    """Return the configured domain, None for a stage that does not read it.

    Call it once a key: making a domain may read files.
    """
    if "domain" not in stage.reads:
        return None
    return get_domain(config.domain.name, config.domain.options)


def _file_digests(domain: Domain) -> list[str]:
    """Return the digest (16 hex digits) of each file that a domain reads, in its order."""
    if not isinstance(domain, ReadsFiles):
        return []
    found: list[str] = []
    for file in (Path(one).absolute() for one in domain.files):
        try:
            state = file.stat()
            found.append(_file_digest(file, state.st_size, state.st_mtime_ns)[:16])
        except OSError as error:
            raise ConfigError(
                f"domain {domain.name}: its file {file} cannot be read: "
                f"{error.strerror}; {FILES_REMEDY}"
            ) from error
    return found


@cache
def _file_digest(file: Path, size: int, changed_ns: int) -> str:
    """Return the SHA-256 of a file, read anew when its size or time changes."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def on_cpu(stage: Stage, config: RunConfig) -> bool:
    """Return whether a stage that runs a model does so, at least in part, on a processor."""
    elsewhere: list[bool] = []
    if "compute.vllm" in stage.reads:  # which every sampling stage reads
        elsewhere.append(config.compute.engine == "vllm" or config.compute.device == "cuda")
    if "training" in stage.reads:
        elsewhere.append(config.training.device == "cuda")
    return not (elsewhere and all(elsewhere))


def chosen_modules(stage: Stage, config: RunConfig, domain: Domain | None) -> list[str]:
    """Return the modules that the configuration chooses for a stage, with its domain's."""
    chosen = modules_of(config.domain.name, domain) if domain else []
    if "compute.vllm" in stage.reads:  # which every sampling stage reads
        chosen.append(engine_module(config.compute.engine))
    if "agent_update" in stage.reads:
        kind = agent_kind(config.agent_update)
        chosen += [kind.trainer, kind.rule, *load(kind.rule).modules(config.agent_update)]
    if "training" in stage.reads and config.training.own_processes:
        chosen.append(LAUNCH)
    return chosen


def config_fields(config: RunConfig, reads: Sequence[str]) -> dict[str, Any]:
    """Return dotted leaf -> value for the fields and sections in `reads`."""
    leaves: dict[str, Any] = {}
    for path in reads:
        _flatten(path, attrgetter(path)(config), leaves)
    if OPTIONS in leaves:
        leaves[OPTIONS] = options_in_keys(config.domain.name, leaves[OPTIONS])
    return leaves


class ConfigView:
    """The configuration as one stage may see it: reading any other field is an error.

    So a stage cannot depend on a field that is not in its key.
    """

    def __init__(self, value: BaseModel, stage: Stage, prefix: str = "") -> None:
        self._value, self._stage, self._prefix = value, stage, prefix

    def __getattr__(self, name: str) -> Any:
        """Return the field if the stage declares it; raises StageError otherwise."""
        path = f"{self._prefix}{name}"
        value = getattr(self._value, name)
        if path in self._stage.reads or path in GONE:
            return value
        if any(read.startswith(path + ".") for read in self._stage.reads):
            return ConfigView(value, self._stage, path + ".")
        raise StageError(
            f"stage {self._stage.name} reads config.{path}, which is not in its key: add it to "
            f"`reads` in {self._stage.modules[0]}"
        )


def _flatten(path: str, value: Any, leaves: dict[str, Any]) -> None:
    if isinstance(value, BaseModel):
        for name in type(value).model_fields:
            _flatten(f"{path}.{name}", getattr(value, name), leaves)
    else:
        leaves[path] = getattr(value, "value", value)
