"""The prompt of `genenv sql`: a query ends with a semicolon; history and completion."""

# pygments has no types.
# pyright: reportMissingTypeStubs=false

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import typer
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer

from flows.cli.data.query import Format, run_query, show_schema
from genenv_core.errors import GenenvError
from genenv_core.pools import Limits
from schemas.relations import Relation, describe

KEYWORDS = re.findall(
    r"\w+",
    "SELECT FROM WHERE GROUP BY ORDER LIMIT JOIN LEFT USING ON AS AND OR NOT NULL IS IN BETWEEN "
    "LIKE CASE WHEN THEN ELSE END WITH DISTINCT HAVING QUALIFY UNION ALL ASC DESC count sum avg "
    "min max median quantile_cont arg_max list DESCRIBE SUMMARIZE SHOW EXPLAIN PIVOT",
)
HELP = """\
a query ends with ; and may have many lines
  .schema [NAME]     tables, views and their columns
  .format FORMAT     table, csv or json
  .quit              or Ctrl-D
Tab completes, the arrow keys and Ctrl-R search earlier queries, Ctrl-C clears the line"""

_AFTER_FROM = re.compile(r"\b(from|join|describe|summarize)\s+\w*$|\.schema\s+\w*$", re.I)


class Names(Completer):
    """Completes tables and views after FROM, else columns of those named so far, and keywords."""

    def __init__(self, relations: Sequence[Relation]) -> None:
        self._relations = relations

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """Yield what may stand at the cursor, with what it is."""
        word = document.get_word_before_cursor(pattern=re.compile(r"\w+"))
        for name, what in suggest(document.text_before_cursor, document.text, self._relations):
            if name.lower().startswith(word.lower()):
                yield Completion(name, start_position=-len(word), display_meta=what)


def suggest(before: str, whole: str, relations: Sequence[Relation]) -> list[tuple[str, str]]:
    """Return (name, what it is) of everything that fits after `before` in the text `whole`."""
    tables = [(relation.name, relation.description) for relation in relations]
    if _AFTER_FROM.search(before):
        return tables
    words = set(re.findall(r"\w+", whole.lower()))
    named = [relation for relation in relations if relation.name in words] or relations
    columns = {column.name: column.description for relation in named for column in relation.columns}
    return [*columns.items(), *((word, "") for word in KEYWORDS), *tables]


def history_path() -> Path:
    """Return where the prompt's history is kept: the user's state folder, never the pool."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "genenv" / "sql_history"


def prompt(root: str, format_: Format, limits: Limits) -> None:
    """Read and run queries until the end of input."""
    session: PromptSession[str] = PromptSession(
        history=_history(),
        completer=Names(describe()),
        lexer=PygmentsLexer(SqlLexer),
        key_bindings=_keys(),
        multiline=True,
        prompt_continuation="   ...> ",
        enable_history_search=False,
    )
    typer.echo(f"{root}: read-only SQL, .help for help, Ctrl-D ends")
    while True:
        try:
            line = session.prompt("genenv> ").strip()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        try:
            if line in (".quit", ".exit", "quit", "exit"):
                return
            if line.startswith("."):
                format_ = _command(line, format_)
            elif line.rstrip("; \n"):
                run_query(root, line, format_, limits)
        except GenenvError as error:
            typer.secho(str(error), fg="red", err=True)
        except KeyboardInterrupt:
            typer.secho("interrupted", fg="red", err=True)


def complete(text: str) -> bool:
    """Return whether Enter ends the input: a command, a semicolon at the end, or nothing."""
    text = text.strip()
    return not text or text.startswith(".") or text.endswith(";") or text in ("quit", "exit")


def _command(line: str, format_: Format) -> Format:
    command, _, argument = line.partition(" ")
    argument = argument.strip().rstrip(";")
    if command == ".schema":
        show_schema(argument)
    elif command == ".format" and argument in ("table", "csv", "json"):
        return Format(argument)
    else:
        typer.echo(HELP)
    return format_


def _history() -> History:
    path = history_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        with path.open("ab"):
            return FileHistory(str(path))
    except OSError:  # the home cannot be written: the history lasts as long as this prompt
        return InMemoryHistory()


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @Condition
    def whole() -> bool:
        from prompt_toolkit.application import get_app

        return complete(get_app().current_buffer.text)

    @keys.add("enter", filter=whole)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    return keys
