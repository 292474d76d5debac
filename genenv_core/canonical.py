"""Canonical JSON, digests and nested values: equal values give equal bytes in every process."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

_SHOWN = 40
"""Characters of an invalid value that a message shows."""

_KEYS = (str, int, float, type(None))
"""Types that JSON takes as keys, and turns into texts."""


class NoJson(TypeError, ValueError):
    """A value holds something that JSON cannot hold; the message says where, and what."""


def canonical_json(value: Any) -> bytes:
    """Return sorted, compact UTF-8 JSON; raises as `readable_json`."""
    return _dumped(value, separators=(",", ":")).encode()


def readable_json(value: Any) -> bytes:
    """Return sorted, indented UTF-8 JSON with a final newline, for files that people open.

    Raises NoJson, which names the place, for bytes, sets, NaN and whatever else JSON cannot hold;
    UnicodeEncodeError for half a character; RecursionError for too deep a nesting.
    """
    return f"{_dumped(value, indent=2)}\n".encode()


def _dumped(value: Any, **form: Any) -> str:
    try:
        return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False, **form)
    except (TypeError, ValueError) as error:
        raise NoJson(no_json(value) or mixed_keys(value) or str(error)) from error


def no_json(value: object, path: str = "", inside: tuple[int, ...] = ()) -> str:
    """Return where a value holds something that JSON cannot hold, and what that is; else ''.

    Places look as in Python: `["slots"][2] is b'abc' (bytes)`.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return said_odd(path, value)
    if value is None or isinstance(value, str | int | float):
        return ""
    if id(value) in inside:
        return f"{path} holds itself"
    within = (*inside, id(value))
    if isinstance(value, dict):
        items = cast("dict[object, object]", value).items()
        keys = (
            said_odd(path, key, "has the key") for key, _ in items if not isinstance(key, _KEYS)
        )
        values = (no_json(one, f"{path}[{place_of(key)}]", within) for key, one in items)
        return next(keys, "") or next(filter(None, values), "")
    if isinstance(value, list | tuple):
        each = enumerate(cast("list[object]", value))
        return next(filter(None, (no_json(one, f"{path}[{i}]", within) for i, one in each)), "")
    return said_odd(path, value)


def mixed_keys(value: object, path: str = "") -> str:
    """Return where a mapping mixes text keys with others, which have no order; else ''."""
    if isinstance(value, dict):
        items = cast("dict[object, object]", value)
        odd = [key for key in items if not isinstance(key, str)]
        if odd and len(odd) < len(items):
            return said_odd(path, odd[0], "has the key")
        inner = ((f"{path}[{place_of(key)}]", one) for key, one in items.items())
    elif isinstance(value, list | tuple):
        each = enumerate(cast("list[object]", value))
        inner = ((f"{path}[{i}]", one) for i, one in each)
    else:
        return ""
    return next(filter(None, (mixed_keys(one, at) for at, one in inner)), "")


def place_of(key: object) -> str:
    """Return a key as it stands in a path."""
    return json.dumps(key, ensure_ascii=False) if isinstance(key, str) else f"{key!r:.{_SHOWN}}"


def said_odd(path: str, value: object, what: str = "is") -> str:
    """Return a place with its value and type; omit a value that shows a memory address."""
    kind, text = type(value).__qualname__, repr(value)
    seen = f"of the type {kind}" if " at 0x" in text else f"{text[:_SHOWN]} ({kind})"
    return f"{path or 'it'} {what} {seen}"


def sha256(data: bytes) -> str:
    """Return the hex sha256 of bytes."""
    return hashlib.sha256(data).hexdigest()


def file_sha256(path: Path) -> str:
    """Return the hex sha256 of a file."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def digest(value: Any) -> str:
    """Return the hex sha256 of a value's canonical JSON."""
    return sha256(canonical_json(value))


def leaves(value: Any, path: str = "", *, lists: bool = True) -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and the value of each leaf of nested values.

    An empty container is a leaf, and so is a list or a tuple unless `lists`.
    """
    items: list[tuple[Any, Any]] = []
    if isinstance(value, Mapping):
        items = list(cast("Mapping[Any, Any]", value).items())
    elif lists and isinstance(value, list | tuple):
        items = list(enumerate(cast("Iterable[Any]", value)))
    if not items:
        yield path, value
    for name, item in items:
        yield from leaves(item, f"{path}.{name}" if path else str(name), lists=lists)


def value_at(values: Any, path: Iterable[str], default: Any = None) -> Any:
    """Return what nested mappings hold below the names of a path, or the default."""
    for name in path:
        if not isinstance(values, Mapping) or name not in values:
            return default
        values = cast("Mapping[str, Any]", values)[name]
    return values


def section_of(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the mapping below a name, or an empty one where there is none."""
    found = values.get(name)
    return cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else {}
