"""Examples of a warm start: the domain makes them, or people wrote them into a file of JSONL."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, cast

from genenv_core.config.schema import RunConfig
from genenv_core.domains.protocol import SeedData, SeedExample
from genenv_core.domains.registry import get_domain
from genenv_core.errors import ConfigError, DataError
from genenv_core.exchange.base_rows import BadRow, RowPlace, lacking, rows_of
from genenv_core.exchange.external import data_file
from genenv_core.storage.records.manifest import FileRef
from genenv_core.types import Message, Policy

COLUMNS = ("policy", "messages", "answer")
ROLES = ("system", "user", "assistant", "tool")

LEAST = 8
"""Fewest examples of a policy: a quarter of pi_agent's is kept for the looks."""

SHOWN = 60
"""Characters of a bad value that are shown."""


def warm_start_input(config: RunConfig) -> FileRef | None:
    """Return the file of examples of a warm start, with its digest, None where there is none.

    Raises ConfigError where neither a file nor the domain has examples, and DataError for a bad
    row.
    """
    given, name = config.warm_started, config.warm_start.examples
    if not given:
        return None
    if name is not None:
        # Bad data stops a run before any work, and before a directory is read for its digest.
        read_examples(Path(name).expanduser(), given)
        return data_file(name)
    if not isinstance(get_domain(config.domain.name, config.domain.options), SeedData):
        raise ConfigError(
            f"warm_start.steps {config.warm_start.steps}: the domain {config.domain.name} makes no "
            "examples (agent_examples, env_examples): name a file of them (warm_start.examples) or "
            "set warm_start.steps=0"
        )
    return None


def read_examples(path: Path, wanted: Collection[Policy]) -> dict[Policy, list[SeedExample]]:
    """Return the examples of a file by policy, in its order.

    Raises DataError, with line, field and value, for the first bad row, and where a policy of
    `wanted` has fewer than `LEAST`.
    """
    found: dict[Policy, list[SeedExample]] = {policy: [] for policy in Policy}
    for place, row in rows_of(path, "jsonl", COLUMNS):
        bad = row if isinstance(row, BadRow) else _bad(place, row)
        if isinstance(row, BadRow) or bad is not None:
            raise DataError(f"{bad}; a row of warm_start.examples has {', '.join(COLUMNS)}")
        messages = cast(list[Message], row["messages"])
        found[Policy(row["policy"])].append((messages, row["answer"]))
    for policy in wanted:
        if len(found[policy]) < LEAST:
            raise DataError(
                f"{path}: has {len(found[policy])} rows of policy {policy}, and a warm start of "
                f"models.{policy} needs {LEAST} or more: add some, or remove warm_start.examples, "
                "so that the domain's own are taken"
            )
    return found


def _bad(place: RowPlace, row: dict[str, Any]) -> BadRow | None:
    """Return what is wrong with a row, None for one that is sound."""
    if row.get("policy") not in list(Policy):
        return BadRow(place, "policy", f"{lacking(row, 'policy')}, expected agent or env")
    answer = row.get("answer")
    if not isinstance(answer, str) or not answer.strip():
        return BadRow(place, "answer", f"{lacking(row, 'answer')}, expected a text")
    messages = row.get("messages")
    if not isinstance(messages, list) or not messages:
        return BadRow(place, "messages", f"{lacking(row, 'messages')}, expected a list of messages")
    for index, message in enumerate(cast(list[Any], messages)):
        keys = cast(dict[str, Any], message) if isinstance(message, dict) else {}
        if keys.get("role") not in ROLES or not isinstance(keys.get("content"), str):
            return BadRow(
                place,
                f"messages.{index}",
                f"is {_short(message)}, expected role ({', '.join(ROLES)}) and content (a text)",
            )
    return None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
