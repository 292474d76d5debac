"""A stage's inputs as JSON, for the process on a work pool that computes it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from genenv_core.errors import StageError
from genenv_core.storage.manifest import ArtifactRef, CheckpointRef, FileRef, Record
from tasks.stage import Inputs

_KINDS: dict[str, type[Record]] = {
    "artifact": ArtifactRef,
    "checkpoint": CheckpointRef,
    "file": FileRef,
}


def encode(inputs: Inputs) -> dict[str, Any]:
    """Return inputs as plain JSON values that `decode` reads; files get their full path."""
    return {name: _encoded(value) for name, value in inputs.items()}


def decode(inputs: Mapping[str, Any]) -> Inputs:
    """Return what was encoded; raises StageError for what no stage takes."""
    return {name: _decoded(value) for name, value in inputs.items()}


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
