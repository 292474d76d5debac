"""A DuckDB in memory over given files, locked: it opens these files and nothing else.

Light on purpose (no polars, no tables), because every sandboxed query starts a process with it.
"""

# pyarrow has no stubs.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import re
from dataclasses import dataclass, field

import duckdb
import pyarrow as pa

from genenv_core.errors import TablesError, one_line

# DuckDB takes a name that does not exist for a folder, and refuses to look into it.
_LOST = re.compile(r'Cannot access file "([^"]+)/\*\*/\*\.parquet"')

_QUOTED = re.compile(r"\n\s*LINE (\d+): (.*)(?:\n( *\^))?")

OF_A_COLUMN = "when casting from source column"
"""What DuckDB says where a value of a row, and not one in the question, cannot be converted."""

_OF_THE_CATALOG = {"duckdb_views", "duckdb_columns", "duckdb_tables", "duckdb_functions"} | {
    "information_schema", "show", "describe", "pg_catalog", "sqlite_master"
}  # fmt: skip
"""Words of questions that look into the catalog."""

_RUN = re.compile(r"SELECT '([^']+)' AS run_id")
_COLUMN = re.compile(r'column "([^"]+)" not found')


@dataclass(frozen=True, slots=True)
class Setup:
    """What to build: tables held in memory, statements in order, views, and the files they open.

    `views` maps names of views to their statements. These views can wait until a question names
    them; each reads only views before it.

    `older` maps a statement to its replacement where files of an older genenv lack columns that
    may be null. The replacement looks into every file, so it is the second choice. `types` maps
    `table.column` to the type that it must have: one run's files with another type would change
    the type for all runs.
    """

    held: dict[str, pa.Table] = field(default_factory=dict[str, pa.Table])
    statements: tuple[str, ...] = ()
    views: dict[str, str] = field(default_factory=dict[str, str])
    files: tuple[str, ...] = ()
    older: dict[str, str] = field(default_factory=dict[str, str])
    types: dict[str, str] = field(default_factory=dict[str, str])


def start(memory_limit: str, *, threads: int | None = None) -> duckdb.DuckDBPyConnection:
    """Return an empty DuckDB that loads no extension and spills nothing to disk.

    DuckDB reads here, from files of the kernel, what the machine has. With `threads` 1 it starts no
    thread of its own.
    """
    config: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "allow_community_extensions": False,
        "temp_directory": "",
        "memory_limit": memory_limit,
    }
    return duckdb.connect(":memory:", config=config | ({"threads": threads} if threads else {}))


def build(con: duckdb.DuckDBPyConnection, setup: Setup) -> None:
    """Build a setup and lock the settings; raises TablesError if a file does not fit.

    From here on the connection opens the files of the setup and no others, and sees no Python
    variable.
    """
    try:
        create(con, setup)
        con.execute("SET TimeZone = 'UTC'")
        con.execute("SET arrow_large_buffer_size = true")  # texts of more than 2 GB in a batch
        _lock(con, setup.files)
    except duckdb.Error as error:
        raise TablesError(f"the tables cannot be opened: {message_of(error)}") from error


def build_named(con: duckdb.DuckDBPyConnection, waiting: dict[str, str], question: str) -> None:
    """Create the waiting views that a question names, and those that they read; raises TablesError.

    It removes them from `waiting`. A question that looks into the catalog names all of them. Views
    wait because DuckDB looks at each file below a view that it creates: all views of a hundred runs
    take seconds.
    """
    words = words_of(question)
    wanted = list(waiting) if words & _OF_THE_CATALOG else list[str]()
    if not wanted:
        for view, statement in reversed(waiting.items()):
            if view.lower() in words:
                wanted.insert(0, view)
                words |= words_of(statement)
    for view in wanted:
        try:
            con.execute(waiting.pop(view))
        except duckdb.Error as error:
            raise TablesError(f"the tables cannot be opened: {message_of(error)}") from error


def words_of(sql: str) -> set[str]:
    """Return the words of a statement in small letters, whatever they stand for."""
    return set(re.findall(r"\w+", sql.lower()))


def message_of(error: Exception) -> str:
    """Return an error's message on one line, without the place in the statement."""
    message = _QUOTED.split(str(error), maxsplit=1)[0]
    if lost := _LOST.search(message):
        return f"{lost[1]} is gone or is no file of the tables: run the command again"
    return one_line(message, 1000)


def with_place(error: Exception, *, executed: bool = False) -> str:
    """Return an error's message, and below it the line at fault with a caret under the place.

    `executed` says that DuckDB ran the person's own text, and not a relation made of it.
    """
    # In an error about the rows of a relation, DuckDB quotes its own wording of the statement.
    quotes = executed or isinstance(error, duckdb.ProgrammingError)
    found = quotes and _QUOTED.search(str(error))
    return message_of(error) + (_place(*found.groups("")) if found else "")


def _place(number: str, line: str, caret: str) -> str:
    """Return the lines below a message; DuckDB has cut a long line around the caret."""
    # DuckDB counts no column for a tab or a letter beyond ASCII: its caret stands too far left.
    right = caret and line.isascii() and line.isprintable()
    return f"\nline {number}: {line}" + (f"\n{caret}" if right else "")


def _other_version(con: duckdb.DuckDBPyConnection, statement: str, message: str) -> str:
    """Return an error that names the run whose files lack a column of a view, else `message`.

    DuckDB reads files by column name, so it misses a column in files from before that column.
    """
    for branch in re.split(r" UNION ALL (?!BY NAME)", statement.partition(" AS ")[2]):
        try:
            con.execute(f"DESCRIBE {branch}")
        except duckdb.BinderException as error:
            run, column = _RUN.search(branch), _COLUMN.search(str(error))
            if run and column:
                return (
                    f"run {run[1]} was written by another version of genenv, which had no column "
                    f"{column[1]}: read it with that version, and keep newer runs in another root"
                )
        except duckdb.ParserException:  # this view is no union of runs
            break
    return f"the tables cannot be opened: {message}"


def text(value: str) -> str:
    """Return a string as SQL."""
    return "'" + value.replace("'", "''") + "'"


def name(value: str) -> str:
    """Return an identifier as SQL."""
    return '"' + value.replace('"', '""') + '"'


def create(con: duckdb.DuckDBPyConnection, setup: Setup) -> None:
    """Create the tables and views of a setup.

    Raises TablesError if a run's files do not fit, and duckdb.Error.
    """
    # Otherwise a name in a query could reach Python variables of this process.
    con.execute("SET python_enable_replacements = false")
    con.execute("CREATE SCHEMA held")
    for table, rows in setup.held.items():
        con.register("incoming", rows)
        con.execute(f"CREATE TABLE held.{name(table)} AS SELECT * FROM incoming")
        con.unregister("incoming")
    for statement in (*setup.statements, *setup.views.values()):
        try:
            con.execute(statement)
        except duckdb.BinderException as error:
            if not _made_of_older_files(con, setup.older.get(statement)):
                _check_types(con, setup.types)  # a view of another type may fail before
                raise TablesError(_other_version(con, statement, message_of(error))) from error
    _check_types(con, setup.types)


def of_files(error: Exception) -> bool:
    """Return whether DuckDB found fault with a file, and not with the question."""
    kinds = (duckdb.IOException, duckdb.InvalidInputException, duckdb.SerializationException)
    return isinstance(error, kinds)


def _check_types(con: duckdb.DuckDBPyConnection, types: dict[str, str]) -> None:
    """Raise TablesError for a column of another type than in `types`, which may be empty."""
    if not types:
        return
    named = "SELECT table_name || '.' || column_name, data_type FROM duckdb_columns()"
    for column, found in con.execute(named).fetchall():
        if types.get(column, found) != found:
            raise TablesError(
                f"the tables cannot be opened: {column} has type {found}, not {types[column]}"
            )


def _made_of_older_files(con: duckdb.DuckDBPyConnection, statement: str | None) -> bool:
    """Create a view by its statement for older files; return whether that was possible."""
    if statement is None:
        return False
    try:
        con.execute(statement)
    except duckdb.BinderException:
        return False
    return True


def _lock(con: duckdb.DuckDBPyConnection, files: tuple[str, ...]) -> None:
    """Let the connection open these files and no others, and let no query change that."""
    if files:
        con.execute(f"SET allowed_paths = [{', '.join(text(path) for path in files)}]")
    con.execute("SET enable_external_access = false")
    con.execute("SET lock_configuration = true")
