"""Answers the questions of pages to the pools: SQL, in a confined process that stays open.

The tables are at most `FRESH_S` seconds old: when a run has written since, the next page sees it.
This module writes nothing, neither to the root nor to any other place.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

from flows.shown.spelling import spelled
from genenv_core.canonical import sha256
from genenv_core.errors import QueryError, SchemaError, TablesError
from genenv_core.storage.records.runs import is_there, left_out, list_runs
from genenv_core.storage.sql.catalog import RunSource, id_named, tables_named
from genenv_core.storage.sql.sandbox import Answer, Limits, QueryLimit, ask
from genenv_core.storage.sql.session import SqlSession
from genenv_core.storage.sql.sources import answered, sources, with_fitting_files
from genenv_core.storage.store.protocol import Store
from schemas.registry import TABLES

Row = dict[str, Any]

FRESH_S = 2.0
"""Seconds for which a look at the root's records stays current."""

PAGE = Limits(timeout_s=20.0, memory="1GB", rows=5000)
"""The limits of one question of a page."""

FEW_RUNS = 8
"""Most runs of a root whose pages share one process: each question opens the tables of all these
runs, so with a hundred of them it would take seconds."""

MOST_SINGLE = 3
"""Most processes for one run each that stay open, in a root with more runs."""

APART = 2
"""Most questions at a time with a process of their own, each of which may use all of its limits."""

LARGE = frozenset(one.name for one in TABLES.values() if one.kind == "payload")
"""Tables that a page fetches from a store elsewhere only where its question names them."""


MORE = {"memory": "4GB", "timeout": "600"}
"""For each option of `genenv sql`, a limit above that of every page, as an example."""


@contextmanager
def on_a_page() -> Generator[None]:
    """Turn the error of a question that reached a limit into one whose remedy works on a page."""
    try:
        yield
    except QueryLimit as error:
        raise QueryError(
            f"{error.what}, which is all that a page may use: ask it of one run on the page SQL, "
            f"or ask `genenv sql --{error.option} {MORE[error.option]}`"
        ) from error


@dataclass(frozen=True, slots=True)
class Panel:
    """One question of a page, its answer, and whether a limit cut the answer off.

    `sql` is the question, to the letter: `genenv sql` gives the same rows.
    """

    name: str
    title: str
    sql: str
    rows: list[Row]
    columns: list[str]
    truncated: bool = False

    @classmethod
    def of(cls, name: str, title: str, sql: str, answer: Answer) -> Panel:
        """Return the panel of an answer; values that Python lacks become text."""
        frame = spelled(answer.frame)
        return cls(name, title, sql, frame.to_dicts(), frame.columns, answer.truncated)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __bool__(self) -> bool:
        """Return True: an answer without rows is an answer."""
        return True

    @property
    def first(self) -> Row | None:
        """The first row, None without rows."""
        return self.rows[0] if self.rows else None

    def known(self, columns: Sequence[str]) -> list[str]:
        """Return those of the columns in which the first row has a value."""
        row = self.first or {}
        return [name for name in columns if row.get(name) not in (None, "", [])]


ROW = "row"
"""The parameter with the row of a long table that a page lists first."""


@dataclass(frozen=True, slots=True)
class Paged:
    """The first row of a long table that a page lists, and the other parameters of the page."""

    first: int = 0
    asked: Mapping[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def of(cls, asked: Mapping[str, str]) -> Self:
        """Return the parameters of an address; raises QueryError for a wrong row."""
        others = {name: value for name, value in asked.items() if name != ROW}
        return cls(whole_number(asked, ROW) or 0, others)

    def at(self, row: int) -> dict[str, str]:
        """Return the parameters of the page that begins with this row."""
        return {**self.asked, ROW: str(max(0, row))}


class Reader:
    """The pools of a root, or of one of its runs, for many pages at once; `close` it at the end."""

    def __init__(self, store: Store, run: str | None = None) -> None:
        """Take a store, or one run of it, and ask nothing yet."""
        self.store = store
        self._run = run
        self._single = OrderedDict[str, Reader]()
        self._lock = threading.Lock()
        self._apart = threading.BoundedSemaphore(APART)
        self._session: SqlSession | None = None
        self._seen = ""
        self._runs = set[str]()
        self._misfits = set[str]()
        self._looked = -FRESH_S
        self._retired = False
        self._here = "://" not in store.uri
        self._small = set(TABLES) if self._here else set(TABLES) - LARGE

    def of(self, run: str) -> Reader:
        """Return a reader of one run, which opens no files of the others.

        In a root with few runs their pages share this reader, and so does a run that is not there.
        """
        runs = len(self._runs) or len(list_runs(self.store))
        if runs <= FEW_RUNS or not is_there(self.store, run):
            return self
        with self._lock:
            reader = self._single.pop(run, None) or Reader(self.store, run)
            self._single[run] = reader
            over = self._single.popitem(last=False)[1] if len(self._single) > MOST_SINGLE else None
        if over is not None:
            over.retire()
        return reader

    def retire(self) -> None:
        """End the process after its present answer; later questions get a process each."""
        with self._lock:
            self._retired = True
            if self._session is not None:
                self._session.retire()
            self._session = None

    def panel(self, name: str, title: str, sql: str) -> Panel:
        """Ask one question, and return its panel; raises QueryError."""
        return Panel.of(name, title, sql, self.ask(sql))

    @on_a_page()
    def ask(self, sql: str) -> Answer:
        """Return the answer to one question; raises QueryError."""
        # A question about large tables of a store elsewhere gets a process that fetches them.
        if self._retired or not tables_named(sql) <= self._small:
            return self.apart(sql, PAGE)
        session = self._current()
        try:
            return session.ask(sql)
        except QueryError as error:
            newer = self._current(suspicious=isinstance(error, TablesError))
            if newer is session:
                raise
        return newer.ask(sql)  # the first one has ended, or held a run that is now left out

    @on_a_page()
    def apart(self, sql: str, limits: Limits, run: str | None = None) -> Answer:
        """Return the answer of a new process within these limits; raises QueryError.

        With `run`, the tables have only the rows of that run. At most `APART` such questions run at
        a time, so that many at once do not take the machine's memory.
        """
        run = run or self._run
        with self._apart:
            return answered(
                self.store,
                () if run is None else (run,),
                lambda found: ask(found, sql, limits),
                tables=tables_named(sql),
                only=id_named(sql),
            )

    def left_out(self) -> dict[str, str]:
        """Return the runs that the answers leave out, each with the reason."""
        with self._lock:
            known = left_out(self.store).items()
            return {
                run: why
                for run, why in known
                if run not in self._runs and is_there(self.store, run)
            }

    def close(self) -> None:
        """End the processes that answer."""
        with self._lock:
            if self._session is not None:
                self._session.close()
            self._session = None
            while self._single:
                self._single.popitem()[1].close()

    def _current(self, *, suspicious: bool = False) -> SqlSession:
        """Return a session over the present tables; with `suspicious`, check each file first."""
        with self._lock:
            session, now = self._session, time.monotonic()
            if session is not None and not session.alive:
                session = None
            if session and now - self._looked < FRESH_S and not suspicious:
                return session
            found = self._found(check=suspicious)
            seen = _signature(found)
            self._looked = now
            if session and seen == self._seen:
                return session
            try:
                newer = SqlSession(found, PAGE)
            except (TablesError, SchemaError):
                found = self._found(check=True)
                if _signature(found) == seen:
                    raise
                newer = SqlSession(found, PAGE)
            if self._session is not None:
                self._session.retire()
            self._session, self._seen = newer, _signature(found)
            self._runs = {one.run_id for one in found}
            return newer

    def _found(self, *, check: bool) -> list[RunSource]:
        """Return the runs, without those whose files failed the last check."""
        only = () if self._run is None else (self._run,)
        found = sources(self.store, only, tables=self._small)
        if check:
            fitting = {one.run_id for one in with_fitting_files(self.store, found)}
            self._misfits = {_signature([one]) for one in found if one.run_id not in fitting}
        if self._misfits:
            found = [one for one in found if _signature([one]) not in self._misfits]
        return found


def _signature(found: list[RunSource]) -> str:
    """Return a digest that changes when a run has written."""
    said = [
        (
            source.run_id,
            sorted((table, paths) for table, paths in source.files.items()),
            {name: frame.hash_rows().sum() for name, frame in source.frames.items()},
        )
        for source in found
    ]
    return sha256(repr(said).encode())


def parameter(values: Mapping[str, str], name: str, allowed: Mapping[str, str]) -> str:
    """Return a parameter with a value among `allowed`, by default the first; raises QueryError."""
    given = values.get(name) or next(iter(allowed))
    if given not in allowed:
        raise QueryError(f"{name}={given!r}: write one of {', '.join(allowed)}")
    return given


def whole_number(values: Mapping[str, str], name: str) -> int | None:
    """Return a parameter that is a whole number from 0 on, None without it; raises QueryError."""
    given = values.get(name, "")
    if not given:
        return None
    if not given.isascii() or not given.isdigit() or len(given) > 9:
        raise QueryError(f"{name}={given!r}: write a whole number from 0 on")
    return int(given)
