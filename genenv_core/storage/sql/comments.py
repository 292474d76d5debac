"""The dictionary as comments of DuckDB's catalog, where other tools look for descriptions."""

from __future__ import annotations

import re
from functools import cache

from genenv_core.storage.sql.duck import name, text
from schemas.relations import describe

_LOOKED_AT = re.compile(r"comment|duckdb_columns|duckdb_functions|information_schema", re.I)


@cache
def comments() -> tuple[str, ...]:
    """Return the statements that comment on every relation and column; all of these must exist."""
    statements: list[str] = []
    for relation in describe():
        kind = "MACRO TABLE" if relation.kind == "macro" else "VIEW"
        statements.append(f"COMMENT ON {kind} {name(relation.name)} IS {text(relation.about)}")
        if relation.kind != "macro":  # DuckDB keeps no columns of a macro
            statements += [
                f"COMMENT ON COLUMN {name(relation.name)}.{name(column.name)} "
                f"IS {text(column.description)}"
                for column in relation.columns
            ]
    return tuple(statements)


def looks_at_comments(sql: str) -> bool:
    """Return whether a query may look at comments, which take a fifth of a second to make."""
    return _LOOKED_AT.search(sql) is not None
