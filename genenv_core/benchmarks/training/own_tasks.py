"""Reads, draws and asks for training tasks that are JSON objects, for several benchmarks.

A hash of a task's fingerprint decides whether it is held out, so two spellings of one task are
always on the same side.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from genenv_core.benchmarks.files import digest_of, read_lines
from genenv_core.domains.parts import in_heldout, too_few
from genenv_core.errors import ConfigError, DataError
from genenv_core.types import AgentHistory, Rejected, Rejection, TaskDraft

Written = TypeVar("Written", bound=BaseModel)

SHOWN = 80
"""Most characters of a text that a rejection shows."""

MORE_ROWS = "give more rows in domain.options.train"

_BOUNDS = ("too_long", "too_short", "greater_than", "less_than")
"""Parts of pydantic's error types for values of the right type that are out of bounds."""


def read_written(model: type[Written], text: str) -> Written | Rejected:
    """Return the object that a generation spells, or why it spells no object; never raises.

    It ignores a fence of ``` around the object, which models write unasked.
    """
    body = text.strip()
    if body.startswith("```") and body.endswith("```"):
        body = body[3:-3].removeprefix("json").strip()
    try:
        value: Any = json.loads(body, parse_constant=_no_number)
        json.dumps(value, ensure_ascii=False).encode()  # lone surrogates cannot be stored
    except UnicodeEncodeError:
        return Rejected(Rejection.UNPARSEABLE, "it has half of a surrogate pair")
    except (ValueError, RecursionError):
        return Rejected(Rejection.UNPARSEABLE, f"no JSON: {body[:SHOWN]!a}")
    try:
        return model.model_validate(value, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        bound = any(word in first["type"] for word in _BOUNDS)
        reason = Rejection.OUT_OF_RANGE if bound else Rejection.UNPARSEABLE
        return Rejected(reason, f"{place[:SHOWN]!a}: {first['msg'][:SHOWN]}")


def chosen(
    drafts: Sequence[TaskDraft], rng: random.Random, count: int, *, heldout: bool, domain: str
) -> list[TaskDraft]:
    """Return `count` of a user's tasks, all inside or all outside of the held-out bucket.

    Raises ConfigError where there are fewer than `count`.
    """
    found = {d.fingerprint: d for d in drafts if in_heldout(d.fingerprint) == heldout}
    if len(found) < count:
        has, only = len(found), f"{domain} has only {len(found)}"
        raise too_few(only, has, count, heldout=heldout, bounds="", more=MORE_ROWS)
    return rng.sample(list(found.values()), count)


def read_rows(path: Path) -> tuple[list[Any], str]:
    """Return the rows of a user's JSONL file and its digest.

    Raises ConfigError without the file, DataError for a line that is no JSON and for an empty file.
    """
    if not path.is_file():
        raise ConfigError(f"domain.options.train {path}: there is no such file")
    rows = read_lines(path)
    if not rows:
        raise DataError(f"{path}: no rows")
    return rows, digest_of(path.parent, [path])


def task_request(history: AgentHistory, base: str) -> str:
    """Return pi_env's request: the agent's success in tenths and by family, and a base task."""
    rate = history.success_rate
    success = "none" if rate is None else f"{round(rate * 10)}/10"
    families = ", ".join(
        f"{family} {won}/{tried}" for family, (won, tried) in sorted(history.by_family.items())
    )
    shown = f"; by family: {families}" if families else ""
    return f"success {success}{shown}; base: {base} ; new:"


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no JSON")
