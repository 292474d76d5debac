"""What SQL shows: the tables with run_id and arm in front, and the views over them.

A view is one file `views/NAME.sql` whose header holds, as comments, the question it answers, the
tables it reads, and a line for each column that no table describes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

import duckdb

from genenv_core.errors import SchemaError
from schemas.registry import TABLES, Column, columns

# A view may only read tables and the views before it.
VIEW_NAMES = ("epochs", "rejections", "near_alpha", "lineage")

# The name `epochs` belongs to the view, which is the table and its seconds.
SQL_NAMES = {"epochs": "epoch_rows"}

RUN_COLUMNS = (
    Column("run_id", "VARCHAR", False, "Run that the row belongs to, by its manifests."),
    Column("arm", "VARCHAR", False, "Method of the run.", "genenv, random, static, offline, base"),
)


@dataclass(frozen=True, slots=True)
class View:
    """One view: its question, the relations it reads, its own column descriptions, its SELECT."""

    name: str
    question: str
    reads: tuple[str, ...]
    described: dict[str, str]
    select: str


@dataclass(frozen=True, slots=True)
class Relation:
    """One table or view as SQL shows it."""

    name: str
    kind: Literal["table", "view"]
    description: str
    columns: tuple[Column, ...]


def sql_name(table: str) -> str:
    """Return the name of a table in SQL."""
    return SQL_NAMES.get(table, table)


@cache
def views() -> tuple[View, ...]:
    """Return every view, in an order in which they can be created."""
    folder = files("schemas") / "views"
    return tuple(
        parse_view(name, (folder / f"{name}.sql").read_text(encoding="utf-8"))
        for name in VIEW_NAMES
    )


def parse_view(name: str, source: str) -> View:
    """Return the view in a file's text; raises SchemaError when its header is incomplete."""
    header: list[str] = []
    for line in source.splitlines():
        if not line.startswith("--"):
            break
        header.append(line[2:].strip())
    if len(header) < 2 or not header[0].endswith("?") or not header[1].startswith("Reads: "):
        raise SchemaError(
            f"schemas/views/{name}.sql must begin with its question and a line '-- Reads: tables'"
        )
    reads = tuple(part.strip() for part in header[1].removeprefix("Reads: ").split(","))
    described: dict[str, str] = {}
    for line in header[2:]:
        match = re.fullmatch(r"(\w+): (.+)", line)
        if match is None:
            raise SchemaError(
                f"schemas/views/{name}.sql: header line {line!r} is not 'column: description'"
            )
        described[match[1]] = match[2]
    return View(name, header[0], reads, described, source)


def table_relation(table: str) -> Relation:
    """Return a table as SQL shows it, run_id and arm first."""
    own = tuple(column for column in columns(table) if column.name not in ("run_id", "arm"))
    return Relation(sql_name(table), "table", TABLES[table].description, RUN_COLUMNS + own)


def empty_select(table: str) -> str:
    """Return a SELECT with a table's columns and no rows."""
    parts = [
        f'CAST(NULL AS {column.sql_type}) AS "{column.name}"'
        for column in table_relation(table).columns
    ]
    return f"SELECT {', '.join(parts)} WHERE false"


@cache
def describe() -> tuple[Relation, ...]:
    """Return every table and view with its columns, tables first."""
    found = {sql_name(table): table_relation(table) for table in TABLES}
    with duckdb.connect(":memory:") as con:
        for table in TABLES:
            con.execute(f'CREATE VIEW "{sql_name(table)}" AS {empty_select(table)}')
        for view in views():
            con.execute(f'CREATE VIEW "{view.name}" AS {view.select}')
            rows = con.execute(f'DESCRIBE "{view.name}"').fetchall()
            found[view.name] = Relation(
                view.name,
                "view",
                view.question,
                tuple(_view_column(view, str(row[0]), str(row[1]), found) for row in rows),
            )
    return tuple(found.values())


def _view_column(view: View, name: str, sql_type: str, known: dict[str, Relation]) -> Column:
    if name in view.described:
        return Column(name, sql_type, True, view.described[name])
    for relation in view.reads:
        for column in known[relation].columns:
            if column.name == name:
                return column
    raise SchemaError(
        f"schemas/views/{view.name}.sql: column {name} is described nowhere: "
        f"add '-- {name}: ...' to the header"
    )
