"""Admits one statement that only reads the tables and views, judged by its parse tree.

`admit` lets the kinds of nodes, table functions and relations pass that are listed here, and
refuses all others. So it also refuses a new way to write (a CTE with INSERT or COPY, in later
versions of DuckDB). Scalar functions are pure but for those in `REFUSED_FUNCTIONS`.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Set
from typing import Any, cast

import duckdb

from genenv_core.errors import QueryError, one_line
from genenv_core.storage.sql.duck import with_place

TABLE_FUNCTIONS = {
    "unnest",
    "range",
    "generate_series",
    "json_each",
    "json_tree",
    "duckdb_columns",
    "duckdb_functions",
    "duckdb_keywords",
}
"""Table functions that read nothing but their arguments, or the lists of columns and functions.

These look harmless and are not: `query`, `query_table`, `histogram` and
`json_execute_serialized_sql` run text that `admit` has not seen; `enable_logging` and
`enable_profiling` write files; `duckdb_settings`, `duckdb_views` and others show paths.
"""

REFUSED_FUNCTIONS = {
    "current_setting",
    "getvariable",
    "write_log",
    "json_serialize_plan",
    "nextval",
    "currval",
    "getenv",
}
SYSTEM_TABLES = {("information_schema", "columns"), ("information_schema", "tables")}

# Expressions have a "class"; these are all other kinds of nodes in the parse tree of a SELECT.
NODES = {
    # queries
    "SELECT_NODE",
    "SET_OPERATION_NODE",
    "RECURSIVE_CTE_NODE",
    "CTE_NODE",
    # what stands after FROM
    "BASE_TABLE",
    "SUBQUERY",
    "JOIN",
    "TABLE_FUNCTION",
    "EXPRESSION_LIST",
    "EMPTY",
    "PIVOT",
    "SHOW_REF",
    # ORDER BY, LIMIT, DISTINCT
    "ORDER_MODIFIER",
    "LIMIT_MODIFIER",
    "LIMIT_PERCENT_MODIFIER",
    "DISTINCT_MODIFIER",
    "ORDER_DEFAULT",
    "ASCENDING",
    "DESCENDING",
    # types
    "ARRAY_TYPE_INFO",
    "DECIMAL_TYPE_INFO",
    "LIST_TYPE_INFO",
    "STRUCT_TYPE_INFO",
    "UNBOUND_TYPE_INFO",
    "ENUM_TYPE_INFO",
    "STRING_TYPE_INFO",
    "GENERIC_TYPE_INFO",
    "INTEGER_LITERAL_TYPE_INFO",
}

_EXPLAIN = re.compile(r"\s*explain\s+(analyze\s+)?(\(\s*(format|analyze)\b[^()]*\)\s*)?", re.I)
_USE = "write one SELECT, DESCRIBE, SHOW, SUMMARIZE or EXPLAIN"
_LISTS = "`genenv sql --schema` lists them"
_NO_SELECT = {"PRAGMA", "CALL"}
"""What DuckDB takes for a SELECT and cannot serialise as one."""

_FILE = re.compile(r"[/\\]|\.\w+$")
"""A name in FROM by which DuckDB would read a file."""


def admit(con: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Return if the query may run on this connection; raises QueryError, which says why not."""
    if "\0" in sql:
        raise QueryError("the query holds a NUL character: remove it")
    if not sql.isascii() and any("\ud800" <= char <= "\udfff" for char in sql):
        raise QueryError("the query holds bytes that are no UTF-8: write it in UTF-8")
    statements = _statements(con, sql)
    if not statements:
        raise QueryError("the query is empty: write one SELECT")
    if len(statements) > 1:
        dynamic = " (a PIVOT without its values is two: write PIVOT ... ON column IN (a, b))"
        hint = dynamic if re.search(r"\bpivot", sql, re.I) else ""
        raise QueryError(f"the query has {len(statements)} statements: write one SELECT{hint}")
    kind = statements[0].type
    if kind == duckdb.StatementType.EXPLAIN:
        # EXPLAIN ANALYZE runs what it explains, so that must be harmless too.
        sql, stripped = _EXPLAIN.subn("", sql, count=1)
        inner = _statements(con, sql) if stripped else []
        if len(inner) != 1 or inner[0].type != duckdb.StatementType.SELECT:
            raise QueryError(
                "EXPLAIN is read-only here: it must come first, with one SELECT after it"
            )
    elif kind != duckdb.StatementType.SELECT:
        raise QueryError(f"{kind.name} is refused, the tables are read-only: {_USE}")
    _look(con, _tree(con, sql))


def _statements(con: duckdb.DuckDBPyConnection, sql: str) -> list[duckdb.Statement]:
    try:
        return con.extract_statements(sql)
    except duckdb.Error as error:
        raise QueryError(with_place(error)) from error


def _tree(con: duckdb.DuckDBPyConnection, sql: str) -> dict[str, Any]:
    """Return the parse tree of a SELECT, as DuckDB itself serialises it."""
    row = con.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchone()
    try:
        tree = cast("dict[str, Any]", json.loads(row[0] if row else "{}"))
    except RecursionError as error:
        raise QueryError("the query is nested too deeply: write it with WITH") from error
    if tree.get("error", True):
        if (first := sql.split()[0].upper()) in _NO_SELECT:
            raise QueryError(f"{first} is refused, the tables are read-only: {_USE}")
        said = one_line(tree.get("error_message", "no parse tree"))
        raise QueryError(f"{said}: {_USE}")
    return tree


def _look(con: duckdb.DuckDBPyConnection, tree: dict[str, Any]) -> None:
    relations = _names(con, "SELECT view_name FROM duckdb_views() WHERE NOT internal")
    nodes = list(_nodes(tree))
    given = {str(entry["key"]).lower() for node in nodes for entry in _ctes(node)}
    for node in nodes:
        kind = node.get("type")
        if "class" in node:
            called = str(node.get("function_name", "")).lower()
            if called in REFUSED_FUNCTIONS:
                raise QueryError(f"the function {called} is refused: it reads more than the tables")
        elif isinstance(kind, str) and kind not in NODES:
            raise QueryError(f"{kind} is refused, the tables are read-only: {_USE}")
        if kind == "BASE_TABLE":
            _look_at_table(con, node, relations, given)
        elif kind == "TABLE_FUNCTION":
            called = str(node["function"].get("function_name", "")).lower()
            if called not in TABLE_FUNCTIONS and called not in (macros := _macros(con)):
                raise QueryError(refused(called, macros))


def refused(called: str, macros: Set[str]) -> str:
    """Return why a table function is refused; `macros` are those over the tables."""
    known = sorted(TABLE_FUNCTIONS | macros)
    near = difflib.get_close_matches(called, known, n=1)
    meant = f" (did you mean {near[0]}?)" if near else ""
    return (
        f"the table function {called} is refused{meant}: only {', '.join(known)} and the tables "
        "can be read"
    )


def _macros(con: duckdb.DuckDBPyConnection) -> set[str]:
    # DuckDB lists its 3,000 functions here, which takes it a hundred times as long as its views.
    own = "SELECT function_name FROM duckdb_functions() WHERE NOT internal AND schema_name = 'main'"
    return _names(con, own)


def _look_at_table(
    con: duckdb.DuckDBPyConnection, node: dict[str, Any], relations: set[str], given: set[str]
) -> None:
    table, schema = str(node["table_name"]), str(node["schema_name"]).lower()
    catalog = str(node["catalog_name"]).lower()
    if (schema, table.lower()) in SYSTEM_TABLES:
        return
    known = relations | given if not schema else relations
    if (catalog, schema) in {("", ""), ("", "main"), ("", "memory"), ("memory", "main")}:
        if table.lower() in known:
            return
        if table.lower() in _macros(con):
            raise QueryError(f"{table} takes arguments: write FROM {table}()")
        near = difflib.get_close_matches(table.lower(), sorted(known), n=1)
        hint = f", did you mean {near[0]}?" if near else f": {_LISTS}"
        if _FILE.search(table):
            hint = f", and a query opens no file of its own: {_LISTS}"
        raise QueryError(f"{table[:200]!r} is no table or view{hint}")
    raise QueryError(
        f"{'.'.join(part for part in (catalog, schema, table) if part)[:200]!r} is no table or "
        f"view: {_LISTS}"
    )


def _nodes(tree: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every object of a JSON document."""
    left: list[Any] = [tree]
    while left:
        item = left.pop()
        if isinstance(item, dict):
            yield cast("dict[str, Any]", item)
            left.extend(cast("dict[str, Any]", item).values())
        elif isinstance(item, list):
            left.extend(cast("list[Any]", item))


def _ctes(node: dict[str, Any]) -> list[dict[str, Any]]:
    found = node.get("cte_map")
    return cast("dict[str, Any]", found)["map"] if isinstance(found, dict) else []


def _names(con: duckdb.DuckDBPyConnection, sql: str) -> set[str]:
    return {str(row[0]).lower() for row in con.execute(sql).fetchall()}
