"""Files that hold one JSON object: the whole object, or an error that says what is there instead.

The sealed records of a root have a reader of their own, `genenv_core.storage.store.finding`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from genenv_core.errors import ModelError, one_line

Value = TypeVar("Value")

SHOWN = 60
"""Characters of a value in the wrong place that an error shows."""

_KINDS: dict[type, str] = {int: "a whole number", str: "a text", dict: "an object"}


def json_object(data: bytes) -> dict[str, Any]:
    """Return the JSON object that a file's bytes are.

    Raises ValueError for anything else. Its message goes on after the file's name.
    """
    if not data.strip():
        raise ValueError("is empty, expected a JSON object")
    try:
        value: object = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is no JSON: {one_line(error, 200)}") from error
    if not isinstance(value, dict):
        raise ValueError(f"is no JSON object: it holds {_shown(value)}")
    return cast("dict[str, Any]", value)


def field_of(values: Mapping[str, Any], name: str, kind: type[Value]) -> Value:
    """Return a field of a JSON object, of exactly this type: int, str or dict.

    Raises ValueError where it is missing or of another type. Its message goes on after the file's
    name, as that of `json_object`.
    """
    if name not in values:
        raise ValueError(f"has no field {name}")
    value = values[name]
    if type(value) is not kind:
        raise ValueError(f"has {name} {_shown(value)}, expected {_KINDS[kind]}")
    return value


def checkpoint_file(folder: Path, name: str, where: str = "") -> dict[str, Any] | None:
    """Return the JSON object in a file of a checkpoint, None where there is no such file.

    `where` names the checkpoint in the ModelError about any other content; else its folder does.
    """
    try:
        return json_object((folder / name).read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise broken_file(folder, name, error, where) from error


def broken_file(folder: Path, name: str, error: Exception, where: str = "") -> ModelError:
    """Return the error about a file of a checkpoint of which a reader said `error`."""
    said = f"cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error)
    return ModelError(
        f"{where or f'checkpoint {folder}'}: {name} {said}: fetch the checkpoint again, or correct "
        "the file"
    )


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
