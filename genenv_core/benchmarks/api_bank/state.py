"""The part of the tools' databases that decides whether a call succeeds.

Nine official tools leave some arguments uncompared, and compare the effect of the call instead: the
token has to be a user's, the content or the time has to find a row of that user, a keyword has to
find documents. Every call meets the databases as downloaded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from genenv_core.benchmarks.api_bank.searching import Search

Row = Mapping[str, Any]
Found = frozenset[int]
"""The places of the rows or documents that a call finds."""


@dataclass(frozen=True, slots=True)
class KnownToken:
    """A call needs a known token and a content that is not blank."""


@dataclass(frozen=True, slots=True)
class OwnRow:
    """A call needs a row of the token's user in a table, by its content or its time.

    `same` asks for the row that the recorded call finds, as a query's answer shows it.
    """

    table: str
    same: bool = False
    blank_content: bool = False
    """Whether the tool takes a content of spaces alone."""


@dataclass(frozen=True, slots=True)
class SameDocuments:
    """A call's keyword has to find the documents that the recorded one finds."""


Need = KnownToken | OwnRow | SameDocuments


@dataclass(frozen=True, slots=True)
class ApiState:
    """The user of each token, the rows of each table in their order, and the documents."""

    users: Mapping[str, str]
    tables: Mapping[str, Sequence[Row]]
    search: Search

    def found(self, need: Need, arguments: Mapping[str, Any]) -> Found | None:
        """Return the rows or documents that a call finds, None when it fails."""
        if isinstance(need, SameDocuments):
            keyword = arguments.get("keyword")
            return self.search.found(keyword) if isinstance(keyword, str) else None
        token, content = arguments.get("token"), arguments.get("content")
        user = self.users.get(token) if isinstance(token, str) else None
        if user is None or not isinstance(content, str):
            return None
        blank = not content.strip()
        if isinstance(need, KnownToken):
            return None if blank else frozenset()
        if blank and not need.blank_content:
            return None
        for place, row in enumerate(self.tables[need.table]):
            asked = row["content"] == content or row["time"] == arguments.get("time")
            if row["username"] == user and asked:
                return frozenset({place})
        return None

    def reached(self, need: Need, arguments: Mapping[str, Any], wanted: Found) -> bool:
        """Return whether a call does what the recorded one does, which finds `wanted`."""
        found = self.found(need, arguments)
        any_row = isinstance(need, OwnRow) and not need.same
        return found is not None and (any_row or found == wanted)
