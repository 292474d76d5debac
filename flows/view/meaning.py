"""What the columns of an answer say, in the words of the data dictionary."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from schemas.relations import describe

EVERY = "run_id"
"""The column that each table begins with: on a page it is the run that the page is of."""


def meanings(columns: Iterable[str], sql: str) -> list[tuple[str, str]]:
    """Return name and description of the columns that a table or view of a question has, in order.

    Of several relations that the question names, the first one with a column of that name describes
    it. A column that the question makes itself is left out, and so is `run_id`.
    """
    relations = [name for name in re.findall(r"\w+", sql) if name in described()]
    found: dict[str, str] = {}
    for column in columns:
        for name in relations:
            if column != EVERY and (text := described()[name].get(column)):
                found.setdefault(column, text)
    return list(found.items())


@cache
def described() -> dict[str, dict[str, str]]:
    """Return relation -> column -> description."""
    return {
        relation.name: {column.name: column.description for column in relation.columns}
        for relation in describe()
    }
