"""What a stage reads: references to what other stages and people made, never the data itself.

In the stage's key stands their identity; a process on a work pool gets them as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from genenv_core.errors import StageError
from genenv_core.storage.manifest import ArtifactRef, CheckpointRef, FileRef, Record

Input = ArtifactRef | CheckpointRef | FileRef | str | float | None
Inputs = Mapping[str, "Input | Sequence[ArtifactRef]"]

_KINDS: dict[str, type[Record]] = {
    "artifact": ArtifactRef,
    "checkpoint": CheckpointRef,
    "file": FileRef,
}


def identities(inputs: Inputs) -> dict[str, Any]:
    """Return what each input is in a stage's key: its digest, or the plain value itself."""
    return {name: _identity(value) for name, value in inputs.items()}


def encode(inputs: Inputs) -> dict[str, Any]:
    """Return inputs as plain JSON values that `decode` reads; files get their full path."""
    return {name: _encoded(value) for name, value in inputs.items()}


def decode(inputs: Mapping[str, Any]) -> Inputs:
    """Return what was encoded; raises StageError for what no stage takes."""
    return {name: _decoded(value) for name, value in inputs.items()}


def _identity(value: Any) -> Any:
    if isinstance(value, ArtifactRef):
        return value.digest
    if isinstance(value, CheckpointRef):
        return f"{value.digest}@{value.policy_version}"
    if isinstance(value, FileRef):
        return value.sha256
    if isinstance(value, list | tuple):
        return [_identity(item) for item in cast(Sequence[Any], value)]
    return value


def _encoded(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_encoded(item) for item in value]
    for kind, record in _KINDS.items():
        if isinstance(value, record):
            plain = value.model_dump(mode="json")
            if isinstance(value, FileRef):
                plain["path"] = str(Path(value.path).absolute())
            return {"kind": kind, **plain}
    return value


def _decoded(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_decoded(item) for item in value]
    if not isinstance(value, dict):
        return value
    plain = dict(value)
    kind = plain.pop("kind", None)
    if kind not in _KINDS:
        raise StageError(f"an input of the kind {kind!r} is none of {', '.join(_KINDS)}")
    return _KINDS[kind].model_validate(plain)
