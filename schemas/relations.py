"""The relations that SQL shows: the tables with run_id and arm in front, and views over them.

`run_id` belongs to every key: runs that share work have the same rows, with the same ids.

A view is one file `views/NAME.sql` whose header holds, as comments, the question it answers, the
tables it reads, its key, and a line for each column that no table describes. What follows an empty
comment line is for readers of the file: methods and their sources. A line
`Parameter NAME TYPE: ...` makes it a table macro, which queries call: FROM NAME(PARAMETER := 0.4).
A query may leave out every parameter, which is null then.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Literal

import duckdb

from genenv_core.errors import SchemaError
from schemas.enums import Arm
from schemas.registry import TABLES, Column, columns

# A view may only read tables and the views before it.
VIEW_NAMES = (
    "settings",
    "differing_settings",
    "epochs",
    "curriculum",
    "calibration",
    "near_alpha",
    "predictions",
    "failures",
    "rejections",
    "test_results",
    "test_gains",
    "task_domains",
    "domains",
    "fixed_sets",
    "uses",
    "lineage",
    "updates",
    "fidelity",
    "evidence",
    "decisions",
    "task_history",
    "judged_traces",
    "agent_attempts",
    "taught",
    "calls",
    "env_texts",
    "certified",
    "lookalikes",
    "repeats",
    "suspects",
    "what_if",
    "cost",
    "reused",
    "spent",
    "benchmarks",
    "measured",
    "outcomes",
    "findings",
)

# The name `epochs` belongs to the view, which is the table and its seconds.
SQL_NAMES = {"epochs": "epoch_rows"}

RUN_COLUMNS = (
    Column("run_id", "VARCHAR", False, "Run that the row belongs to, by its manifests."),
    Column("arm", "VARCHAR", False, "Method of the run.", ", ".join(Arm)),
)


@dataclass(frozen=True, slots=True)
class View:
    """One view: its question, what it reads, its key, its own column descriptions, its SELECT."""

    name: str
    question: str
    reads: tuple[str, ...]
    key: tuple[str, ...]
    described: dict[str, str]
    select: str
    parameters: tuple[Column, ...] = ()

    @property
    def create(self) -> str:
        """Return the statement that creates it."""
        if not self.parameters:
            return f'CREATE VIEW "{self.name}" AS {self.select}'
        names = ", ".join(f'"{p.name}" {p.sql_type} := NULL' for p in self.parameters)
        return f'CREATE MACRO "{self.name}"({names}) AS TABLE {self.select}'


@dataclass(frozen=True, slots=True)
class Relation:
    """One table, view or table macro as SQL shows it; only a macro has parameters.

    `key` are the columns that identify a row among those of all runs; null counts as a value.
    """

    name: str
    kind: Literal["table", "view", "macro"]
    description: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    parameters: tuple[Column, ...] = ()

    @property
    def about(self) -> str:
        """Return what a row is and what identifies it."""
        return f"{self.description} Key: {', '.join(self.key)}."

    @property
    def signature(self) -> str:
        """Return the name, with the parameters' names where there are any."""
        names = ", ".join(parameter.name for parameter in self.parameters)
        return f"{self.name}({names})" if names else self.name

    @property
    def reference(self) -> str:
        """Return the text after FROM, without a macro's parameters."""
        return f'"{self.name}"()' if self.kind == "macro" else f'"{self.name}"'


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
        if not line.startswith("--") or line.strip() == "--":
            break
        header.append(line[2:].strip())
    question, reads, key = (*header, "", "", "")[:3]
    if not question.endswith("?") or not reads.startswith("Reads: ") or not key.startswith("Key: "):
        raise SchemaError(
            f"schemas/views/{name}.sql must begin with its question and the lines "
            "'-- Reads: tables' and '-- Key: columns'"
        )
    described: dict[str, str] = {}
    parameters: list[Column] = []
    for line in header[3:]:
        match = re.fullmatch(r"(?:Parameter )?(\w+)(?: ([A-Z]+))?: (.+)", line)
        if match is None or (match[2] is not None) != line.startswith("Parameter "):
            raise SchemaError(
                f"schemas/views/{name}.sql: header line {line!r} is neither "
                "'column: description' nor 'Parameter name TYPE: description'"
            )
        if match[2] is not None:
            parameters.append(Column(match[1], match[2], True, match[3]))
        else:
            described[match[1]] = match[3]
    return View(name, question, _listed(reads), _listed(key), described, source, tuple(parameters))


def table_relation(table: str) -> Relation:
    """Return a table as SQL shows it, run_id and arm first."""
    known = TABLES[table]
    own = tuple(column for column in columns(table) if column.name not in ("run_id", "arm"))
    key = ("run_id", *(column for column in known.key if column != "run_id"))
    return Relation(sql_name(table), "table", known.description, RUN_COLUMNS + own, key)


def empty_select(table: str) -> str:
    """Return a SELECT with a table's columns and no rows."""
    parts = [
        f'CAST(NULL AS {column.sql_type}) AS "{column.name}"'
        for column in table_relation(table).columns
    ]
    return f"SELECT {', '.join(parts)} WHERE false"


@cache
def describe() -> tuple[Relation, ...]:
    """Return every table and view with its columns, tables first.

    Raises SchemaError for a view with a key or a column that its header does not describe.
    """
    found = {sql_name(table): table_relation(table) for table in TABLES}
    with duckdb.connect(":memory:") as con:
        for table in TABLES:
            con.execute(f'CREATE VIEW "{sql_name(table)}" AS {empty_select(table)}')
        for view in views():
            con.execute(view.create)
            kind = "macro" if view.parameters else "view"
            named = Relation(view.name, kind, view.question, (), view.key, view.parameters)
            rows = con.execute(f"DESCRIBE FROM {named.reference}").fetchall()
            if lost := set(view.key) - {row[0] for row in rows}:
                raise SchemaError(f"schemas/views/{view.name}.sql: Key: no column {min(lost)}")
            found[view.name] = replace(
                named,
                columns=tuple(_view_column(view, str(row[0]), str(row[1]), found) for row in rows),
            )
    return tuple(found.values())


def _listed(line: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in line.partition(": ")[2].split(","))


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
