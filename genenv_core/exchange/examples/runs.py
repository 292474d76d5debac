"""Examples of a warm start that a stored run holds, such as one that a teacher played.

pi_agent learns from attempts with reward 1, one for each task; of an attempt with several turns the
first turn is the answer. pi_env learns from valid tasks all of whose certificates passed, each as
the answer to what its author was asked. No example is of a task that the new run is measured on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator
from typing import Any

from genenv_core.canonical import canonical_json
from genenv_core.domains.protocol import SeedExample
from genenv_core.errors import DataError
from genenv_core.exchange.examples.files import LEAST
from genenv_core.storage.sql.catalog import query
from genenv_core.storage.sql.sources import open_tables
from genenv_core.storage.store.protocol import Store
from genenv_core.types import Message, Policy

TABLES = ("tasks", "certificates", "contexts", "traces", "trace_tokens", "scores")

_RIGHT = """
SELECT t.fingerprint, r.turns, k.messages
FROM scores AS s
JOIN traces AS r ON r.trace_id = s.trace_id
JOIN trace_tokens AS k ON k.trace_id = s.trace_id
JOIN tasks AS t ON t.task_id = s.task_id
WHERE s.epoch BETWEEN 1 AND {epoch} AND s.success AND s.reward >= 1
QUALIFY row_number() OVER (PARTITION BY t.fingerprint ORDER BY s.trace_id) = 1
"""

_CERTIFIED = """
SELECT t.fingerprint, t.program, c.messages
FROM tasks AS t
JOIN contexts AS c ON c.context_id = t.context_id
WHERE t.epoch BETWEEN 1 AND {epoch} AND t.valid AND t.task_id IN
    (SELECT task_id FROM certificates GROUP BY task_id HAVING bool_and(passed))
QUALIFY row_number() OVER (PARTITION BY t.fingerprint ORDER BY t.task_id) = 1
"""

_HELD = {
    Policy.AGENT: "tasks with an attempt of reward 1",
    Policy.ENV: "valid tasks of pi_env whose certificates passed (generation.guard makes them)",
}


def examples_of_run(
    store: Store, run: str, epoch: int, heldout: Collection[str]
) -> dict[Policy, list[SeedExample]]:
    """Return the examples of a run's epochs 1 to `epoch` by policy, ordered by their content.

    `heldout` are fingerprints of tasks that are left out. Raises QueryError for an unknown run.
    """
    with open_tables(store, [run], tables=TABLES) as tables:
        right = query(tables, _RIGHT.format(epoch=epoch)).to_dicts()
        certified = query(tables, _CERTIFIED.format(epoch=epoch)).to_dicts()
    return {
        Policy.AGENT: _ordered(_first_turn(row) for row in right if _free(row, heldout)),
        Policy.ENV: _ordered(
            (json.loads(row["messages"]), row["program"])
            for row in certified
            if _free(row, heldout)
        ),
    }


def digest_of(examples: dict[Policy, list[SeedExample]]) -> str:
    """Return the SHA-256 of examples as canonical JSON: of their content, not of who had them."""
    plain = {policy.value: of_policy for policy, of_policy in examples.items()}
    return hashlib.sha256(canonical_json(plain)).hexdigest()


def check_enough(
    name: str,
    examples: dict[Policy, list[SeedExample]],
    wanted: Collection[Policy],
    epoch: int,
) -> None:
    """Raise DataError where a policy of `wanted` has fewer than `LEAST` examples."""
    for policy in wanted:
        if (count := len(examples[policy])) < LEAST:
            raise DataError(
                f"warm_start.examples {name}: its epochs 1 to {epoch} have {count} "
                f"{_HELD[policy]}, none held out in this run, and a warm start of "
                f"models.{policy} needs {LEAST} or more: play more epochs of it, or name another "
                "run or a file"
            )


def _free(row: dict[str, Any], heldout: Collection[str]) -> bool:
    return row["fingerprint"] not in heldout


def _first_turn(row: dict[str, Any]) -> SeedExample:
    """Return what the agent read first, and what it answered to that."""
    messages: list[Message] = json.loads(row["messages"])
    said = [place for place, one in enumerate(messages) if one["role"] == "assistant"]
    turns: int = row["turns"]
    first = said[-turns]  # a prompt may have turns of its own
    return messages[:first], messages[first]["content"]


def _ordered(examples: Iterator[SeedExample]) -> list[SeedExample]:
    """Return the distinct examples that say something, in the order of their content."""
    distinct = {canonical_json(one): one for one in examples if one[1].strip()}
    return [distinct[content] for content in sorted(distinct)]
