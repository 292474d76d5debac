"""A stage's key: everything that its result depends on, and no field read past it."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from pydantic import BaseModel

from genenv_core.config.schema import RunConfig
from genenv_core.domains.registry import get_domain
from genenv_core.errors import StageError
from genenv_core.storage.code import code_version
from genenv_core.storage.keys import key_parts
from tasks.inputs import Inputs, identities
from tasks.stage.base import Stage


def parts_of(stage: Stage, config: RunConfig, epoch: int, inputs: Inputs) -> dict[str, Any]:
    """Return the parts of a stage's key."""
    # Without the label of a build (+cpu, +cu130): a flow makes the keys of stages that pods compute
    # with another build of the same version.
    runtime = {library: version(library).partition("+")[0] for library in stage.libraries}
    modules = list(stage.modules)
    if stage.libraries:
        runtime["machine"] = platform.machine()
    if "domain" in stage.reads:
        domain = get_domain(config.domain.name, config.domain.options)
        runtime["domain"] = f"{domain.name} {domain.version}"
        modules.append(type(domain).__module__)
    return key_parts(
        stage=stage.name,
        code=code_version(*modules),
        config=config_fields(config, stage.reads),
        inputs=identities(inputs),
        seed=config.seed,
        epoch=epoch,
        runtime=runtime,
    )


def config_fields(config: RunConfig, reads: Sequence[str]) -> dict[str, Any]:
    """Return dotted leaf -> value for the fields and sections in `reads`."""
    leaves: dict[str, Any] = {}
    for path in reads:
        value: Any = config
        for name in path.split("."):
            value = getattr(value, name)
        _flatten(path, value, leaves)
    return leaves


class ConfigView:
    """The configuration as one stage may see it: reading any other field is an error.

    This is what keeps a key honest: a stage cannot depend on a field that is not in its key.
    """

    def __init__(self, value: BaseModel, stage: Stage, prefix: str = "") -> None:
        """Wrap the configuration or a section of it."""
        self._value, self._stage, self._prefix = value, stage, prefix

    def __getattr__(self, name: str) -> Any:
        """Return the field when the stage declared it; raises StageError otherwise."""
        path = f"{self._prefix}{name}"
        value = getattr(self._value, name)
        if path in self._stage.reads:
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
