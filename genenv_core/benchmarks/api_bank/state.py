"""What of the tools' databases decides whether a call succeeds.

Eight official tools leave some arguments uncompared and compare what the call did instead: the
token has to be somebody's, and the content or the time has to find a row of that user. Every call
is judged on the databases as they were downloaded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Need:
    """What a call needs: a known token and, where `table` is named, one of its user's rows.

    `same_row` asks for the row that the recorded call finds, as a query's answer shows it.
    """

    table: str = ""
    same_row: bool = False
    blank_content: bool = False
    """Whether the tool takes a content of spaces only."""


@dataclass(frozen=True, slots=True)
class State:
    """The user of each token, and the rows of each table in their order."""

    users: Mapping[str, str]
    tables: Mapping[str, Sequence[Row]]

    def outcome(self, need: Need, arguments: Mapping[str, Any]) -> int | None:
        """Return what a call finds, as a number: a row's place, or 0; None when it fails."""
        token, content = arguments.get("token"), arguments.get("content")
        user = self.users.get(token) if isinstance(token, str) else None
        if user is None or not isinstance(content, str):
            return None
        if not content.strip() and not need.blank_content:
            return None
        if not need.table:
            return 0
        for place, row in enumerate(self.tables[need.table]):
            asked = row["content"] == content or row["time"] == arguments.get("time")
            if row["username"] == user and asked:
                return place
        return None
