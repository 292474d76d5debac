"""Scores stored attempts again by an exported folder, and compares the rewards.

The folder's own copy of the code does it, in another process that has no genenv beside it: what is
missing in the folder shows here, and not where somebody else plays the tasks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb

from genenv_core.epoch.observing import episode_seed
from genenv_core.errors import ConfigError
from genenv_core.play.checking.elsewhere.folder import folder_process
from genenv_core.play.checking.elsewhere.process import AskedProcess, ProcessEnded, ProcessTooLong
from genenv_core.storage.sql.catalog import query
from genenv_core.storage.sql.duck import text
from genenv_core.types import FinishReason, JsonObject

MOST = 1000
"""Most stored attempts that `replay` scores again."""

TIME_S = 600.0
"""Longest time for all of them."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """How many stored attempts the folder scored again, and how many got another reward.

    `example` names one of the latter and its two rewards; '' without one.
    """

    compared: int
    different: int
    example: str = ""

    @property
    def equal(self) -> int:
        """Return how many got the same reward."""
        return self.compared - self.different


def replay(
    con: duckdb.DuckDBPyConnection,
    run: str,
    folder: Path,
    package: str,
    lines: Sequence[Mapping[str, Any]],
    seed: int,
) -> Replayed:
    """Score up to `MOST` stored attempts at exported tasks again; `seed` is the run's.

    Raises ConfigError where the copied code does not run.
    """
    stored = list(stored_attempts(con, run, lines, seed))
    try:
        with folder_process(folder, package, limit_s=TIME_S) as ask:
            found = [_said(ask, one["asked"]) for one in stored]
    except ProcessTooLong as error:
        raise ConfigError(
            f"the copied code of the domain takes more than {TIME_S:g} s to judge {len(stored)} "
            "attempts: a domain answers at once (`genenv domain check`)"
        ) from error
    except ProcessEnded as error:
        raise ConfigError(
            f"the copied code of the domain does not run by itself: {error.words}: let its "
            "modules import what they need at their top, by its full name"
        ) from error
    wrong = [
        (one, verdict)
        for one, verdict in zip(stored, found, strict=True)
        if verdict != [one["reward"], one["success"]]
    ]
    example = ""
    if wrong:
        one, verdict = wrong[0]
        example = f"{one['trace_id']}: {one['reward']} in the run, {verdict[0]} here"
    return Replayed(len(stored), len(wrong), example)


def _said(ask: AskedProcess, asked: JsonObject) -> list[object]:
    """Return the reward and the success of an attempt, or an error's text as the reward."""
    try:
        return ask("said", **asked)
    except ProcessEnded:
        raise
    except Exception as error:
        return [f"{type(error).__name__}: {error}"[:200], False]


def stored_attempts(
    con: duckdb.DuckDBPyConnection, run: str, lines: Sequence[Mapping[str, Any]], seed: int
) -> Iterator[JsonObject]:
    """Yield at most `MOST` stored attempts at the tasks of these lines, drawn by their ids.

    `seed` is the run's. Each attempt has its id, reward and success, and in `asked` what
    `ExportedTasks.said` takes.
    """
    places = {line["task_id"]: place for place, line in enumerate(lines)}
    own = f"run_id = {text(run)}"
    known = query(con, _IDS.format(own=own)).iter_rows()
    chosen = list(islice((trace for trace, task in known if task in places), MOST))
    if not chosen:
        return
    listed = ", ".join(map(text, chosen))
    rows = query(con, _STORED.format(own=own, chosen=listed))
    for row in rows.iter_rows(named=True):
        messages = json.loads(row["messages"])
        turns = [one["content"] for one in messages if one["role"] == "assistant"]
        unanswered = bool(messages) and messages[-1]["role"] == "assistant"
        yield {
            "trace_id": row["trace_id"],
            "reward": row["reward"],
            "success": row["success"],
            "asked": {
                "index": places[row["task_id"]],
                "turns": turns[-row["turns"] :] if row["turns"] else [],
                "seed": episode_seed(seed, row["epoch"], row["place"], row["sample_index"]),
                "cut": unanswered and row["finish_reason"] == FinishReason.LENGTH.value,
            },
        }


_IDS = """
SELECT r.trace_id, r.task_id
FROM traces AS r JOIN scores AS s ON s.{own} AND s.trace_id = r.trace_id
WHERE r.{own}
ORDER BY md5(r.trace_id)
"""

_STORED = """
SELECT r.trace_id, r.task_id, r.epoch, r.sample_index, r.turns, r.finish_reason, s.reward,
    s.success, k.messages, g.place
FROM traces AS r
JOIN scores AS s ON s.{own} AND s.trace_id = r.trace_id
JOIN trace_tokens AS k ON k.{own} AND k.trace_id = r.trace_id
JOIN (
    SELECT group_id, row_number() OVER (PARTITION BY epoch ORDER BY group_id) - 1 AS place
    FROM (SELECT DISTINCT epoch, group_id FROM traces WHERE {own})
) AS g ON g.group_id = r.group_id
WHERE r.{own} AND r.trace_id IN ({chosen})
ORDER BY r.trace_id
"""
