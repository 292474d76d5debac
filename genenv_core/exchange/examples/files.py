"""Examples of a warm start that people wrote into a file of JSONL."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, cast

from genenv_core.domains.protocol import SeedExample
from genenv_core.errors import DataError
from genenv_core.exchange.base_rows import BadRow, RowPlace, lacking, rows_of
from genenv_core.types import Message, Policy

COLUMNS = ("policy", "messages", "answer")
ROLES = ("system", "user", "assistant", "tool")

LEAST = 8
"""Fewest examples of a policy: the warm start measures with a quarter of pi_agent's."""

SHOWN = 60
"""Characters of a bad value that an error shows."""


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
