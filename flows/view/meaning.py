"""Describes the columns of an answer, in the words of the data dictionary."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache

from schemas.relations import describe

EVERY = "run_id"
"""The first column of each table; on a page it is the page's own run."""


RENAMED = re.compile(r"(?:\(|,|\bSELECT\b)\s*(?:\w+\.)?(\w+) AS (\w+)")
"""Matches a column under another name, as `tasks_valid AS valid`."""


def meanings(
    columns: Iterable[str], sql: str, words: Mapping[str, str] | None = None
) -> list[tuple[str, str]]:
    """Return name and description of those columns that a relation of the question has, in order.

    Of several relations that the question names, the first one with a column of that name describes
    it, or with the column to which the question gives that name. `words` describe columns that the
    question makes itself. It leaves out any other column, and `run_id`.
    """
    relations = [name for name in re.findall(r"\w+", sql) if name in described()]
    renamed = {name: column for column, name in RENAMED.findall(sql)}
    found: dict[str, str] = {}
    for column in (one for one in columns if one != EVERY):
        texts = [(words or {}).get(column)]
        for own in (column, renamed.get(column, column)):
            texts += [described()[name].get(own) for name in relations]
        if said := next(filter(None, texts), None):
            found[column] = said
    return list(found.items())


@cache
def described() -> dict[str, dict[str, str]]:
    """Return relation -> column -> description."""
    return {
        relation.name: {column.name: column.description for column in relation.columns}
        for relation in describe()
    }
