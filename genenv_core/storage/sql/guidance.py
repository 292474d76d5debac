"""What a question should have said: which column and where it is, a word, a mark; why no rows."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

from genenv_core.storage.sql.admission import TABLE_FUNCTIONS, refused
from genenv_core.storage.sql.duck import OF_A_COLUMN, words_of
from schemas.registry import TABLES
from schemas.relations import Relation, describe, sql_name, views

_MISSED = re.compile(
    r'Referenced column "([^"]+)" not found|does not have a column named "([^"]+)"'
    r'|Column "([^"]+)" does not exist on (?:left|right) side of join'
)
_LISTED = 5
"""Relations that a message lists at most."""

_ROWS = re.compile(r'Values list ("[^"]+")')
"""What DuckDB calls a table or a view in an error."""

_OFFERED = "Candidate bindings"
"""What an error has in which DuckDB itself names columns that might be meant."""

_ODD_WORD = re.compile(r'syntax error at or near "(\w+)"')
_WORDS = {
    *("SELECT", "FROM", "WHERE", "GROUP", "ORDER", "HAVING", "LIMIT", "JOIN", "USING", "WITH"),
    *("UNION", "DISTINCT", "BETWEEN", "DESCRIBE", "SUMMARIZE", "SHOW", "EXPLAIN"),
}
"""Words of SQL that a misspelt one is compared with."""

_OPEN = {
    "unterminated quoted string": "end the text with ', and write a ' inside of it as ''",
    "unterminated quoted identifier": 'end the name with ", or write a text in single quotes',
}
_UNFIT = {
    OF_A_COLUMN: "TRY_CAST gives NULL where a value does not fit",
    "Could not convert string": "write a value of this type, or CAST the other side AS VARCHAR",
}
"""What to do where a text is not of the type that it is compared with, by words of the error."""

_TABLE_FUNCTION = re.compile(r'Function "(\w+)" is a table function but it was used as a scalar')


def with_homes(message: str, sql: str) -> str:
    """Return DuckDB's message with the tables and views that have the column it missed.

    The message says how `sql` can join one of them without getting more rows. Where no table has
    the name and `sql` quotes it, the message says how a text is quoted; else it has a near name,
    where DuckDB gives none. Other messages stay as they are.
    """
    missed = _MISSED.search(message)
    if missed is None:
        return message
    message = _ROWS.sub(r"\1", message)
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
            near = get_close_matches(column, {name for one in asked for name in _columns(one)}, 1)
            if not near or _OFFERED in first:
                return message
            return f"{first.rstrip('!')}, did you mean {near[0]}?{newline}{place}"
        text = "'" + column.replace("'", "''") + "'"
        return f"{first}. Double quotes name a column; a text is {text}{newline}{place}"
    listed = ", ".join(relation.name for relation in homes[:_LISTED])
    more = f" and {len(homes) - _LISTED} more" if len(homes) > _LISTED else ""
    joins = (_join(one, home) for home in homes for one in asked)
    how = next(filter(None, joins), "")
    return f"{first}. {column} is in {listed}{more}{how and f': {how}'}{newline}{place}"


def with_remedy(message: str) -> str:
    """Return DuckDB's message with what to do, where it says that of no mistake of this kind."""
    first, newline, place = message.partition("\n")
    remedies = (_OPEN | _UNFIT).items()
    remedy = next((f": {what}" for words, what in remedies if words in first), "")
    if odd := _ODD_WORD.search(first):
        line, _, caret = place.partition("\n")
        # DuckDB takes a misspelt word for a name, and stumbles over the next one.
        suspects = {*line[: len(caret) - 1].upper().split()[-1:], odd[1].upper()} - _WORDS
        meant = [one for word in suspects for one in get_close_matches(word, _WORDS, 1, 0.7)]
        remedy = f", did you mean {meant[0]}?" if meant else ""
    macros = {relation.name for relation in describe() if relation.parameters}
    used = _TABLE_FUNCTION.search(first)
    if used and used[1] not in TABLE_FUNCTIONS | macros:  # FROM would not admit it either
        first = refused(used[1], macros)
    return f"{first}{remedy}{newline}{place}"


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
