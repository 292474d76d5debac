"""What a question should have named: where a column is, and why there are no rows."""

from __future__ import annotations

import re
from collections.abc import Iterable

from genenv_core.storage.sql.duck import words_of
from schemas.registry import TABLES
from schemas.relations import Relation, describe, sql_name, views

_MISSED = re.compile(
    r'Referenced column "([^"]+)" not found|does not have a column named "([^"]+)"'
    r'|Column "([^"]+)" does not exist on (?:left|right) side of join'
)
_LISTED = 5
"""Relations that a message lists at most."""


def with_homes(message: str, sql: str) -> str:
    """Return DuckDB's message with the tables and views that have the column it missed.

    The message says how `sql` can join one of them without getting more rows. Where no table has
    the name and `sql` quotes it, the message says how a text is quoted. Other messages stay as they
    are.
    """
    missed = _MISSED.search(message)
    if missed is None:
        return message
    column = next(filter(None, missed.groups()))
    words = words_of(sql)
    asked = [relation for relation in describe() if relation.name in words]
    homes = [
        relation
        for relation in describe()
        if relation not in asked and column in _columns(relation)
    ]
    first, newline, place = message.partition("\n")
    if not homes:
        if f'"{column}"' not in sql:
            return message
        text = "'" + column.replace("'", "''") + "'"
        return f"{first}. Double quotes name a column; a text is {text}{newline}{place}"
    listed = ", ".join(relation.name for relation in homes[:_LISTED])
    more = f" and {len(homes) - _LISTED} more" if len(homes) > _LISTED else ""
    joins = (_join(one, home) for home in homes for one in asked)
    how = next(filter(None, joins), "")
    return f"{first}. {column} is in {listed}{more}{how and f': {how}'}{newline}{place}"


def why_no_rows(filled: Iterable[str], sql: str) -> str:
    """Return which tables behind a question have no rows in any run, and what they hold.

    '' where all of them have rows: then the question's own conditions found nothing.

    Args:
        filled: the tables that have rows, by their names in the registry.
        sql: the question.
    """
    words, there = words_of(sql), {sql_name(table) for table in filled}
    behind = {sql_name(table): sql_name(table) for table in TABLES}
    for view in views():
        behind[view.name] = behind[view.reads[0]]
    empty = {
        behind[relation.name]: relation.name
        for relation in describe()[::-1]  # a table's own name wins over that of a view
        if relation.name in words and behind[relation.name] not in there
    }
    about = {relation.name: relation.description for relation in describe()}
    return "; ".join(
        f"no run here has rows in {table}"
        f"{'' if table == named else f', from which {named} has its own'}: {about[table]}"
        for table, named in empty.items()
    )


def _columns(relation: Relation) -> set[str]:
    return {column.name for column in relation.columns}


def _join(one: Relation, home: Relation) -> str:
    """Return how `one` is joined with the row of `home` that it belongs to, '' if it cannot be."""
    if home.parameters or not home.key or not set(home.key) <= _columns(one):
        return ""
    return f"{one.name} JOIN {home.name} USING ({', '.join(home.key)})"
