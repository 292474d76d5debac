"""Checks that the databases of Prefect and MLflow fit the installed versions.

Both tools write the name of their last migration into the table `alembic_version`. This module
reads the migrations that an installed version knows from its files, without importing it.
"""

# asyncpg has no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import ast
import contextlib
import re
import sqlite3
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from genenv_core.errors import ConfigError, StorageError, one_line

PREFECT_MIGRATIONS = ("prefect", "server/database/_migrations/versions")
MLFLOW_MIGRATIONS = ("mlflow", "store/db_migrations/versions")


@dataclass(frozen=True)
class ToolDatabase:
    """One database: its tool, its place (without a password), and its last migration, if any."""

    tool: str
    place: str
    revision: str | None
    path: Path | None
    migrations: tuple[str, str]

    def state(self) -> str:
        """Return new, current, older or newer."""
        order = _revisions(*self.migrations)
        if self.revision is None:
            return "new"
        if self.revision not in order:
            return "newer"
        return "older" if order[self.revision] else "current"


def sqlite(tool: str, path: Path, migrations: tuple[str, str]) -> ToolDatabase:
    """Read an SQLite file, which may not exist; raises StorageError."""
    revision = None
    if path.exists() and path.stat().st_size:
        try:
            with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as opened:
                tables = opened.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
                names = {name for (name,) in tables}
                if "alembic_version" in names:
                    rows = opened.execute("SELECT version_num FROM alembic_version").fetchall()
                    revision = rows[0][0] if rows else None
        except sqlite3.Error as error:
            raise StorageError(
                f"the database of {tool}, {path}, cannot be read: {error}; restore a copy, or move "
                "it away to start with an empty one"
            ) from error
        if revision is None and names:
            raise StorageError(f"{path} is no database of {tool}: move it away")
    return ToolDatabase(tool, str(path), revision, path, migrations)


def postgresql(url: str) -> ToolDatabase:
    """Read Prefect's PostgreSQL database; raises ConfigError or StorageError."""
    import asyncio

    import asyncpg

    async def ask() -> str | None:
        opened = await asyncpg.connect(url.replace("+asyncpg", ""), timeout=10)
        try:
            if await opened.fetchval("SELECT to_regclass('alembic_version')") is None:
                return None
            return await opened.fetchval("SELECT version_num FROM alembic_version")
        finally:
            await opened.close()

    try:
        revision = asyncio.run(ask())
    except (OSError, asyncpg.PostgresError, TimeoutError) as error:
        text = one_line(error)
        raise StorageError(f"{without_password(url)} does not answer: {text}") from error
    except (ValueError, asyncpg.InterfaceError) as error:
        raise ConfigError(f"--database-url {without_password(url)}: {error}") from error
    tool, folder = PREFECT_MIGRATIONS
    return ToolDatabase(
        "Prefect", without_password(url), revision, None, (tool, f"{folder}/postgresql")
    )


def check(database: ToolDatabase, *, upgrade: bool) -> str:
    """Return a line on the upgrade of a database, or ''; raises ConfigError.

    It allows the upgrade of an older database only with `upgrade`, and copies an SQLite file first.
    It refuses a newer database, and one of another tool.
    """
    tool = database.tool
    state = database.state()
    if state == "newer":
        raise ConfigError(
            f"the database of {tool}, {database.place}, has migration {database.revision}, which "
            f"{tool} {version(tool.lower())} does not know: it was written by a newer version. "
            f"Install that, or choose another root"
        )
    if state != "older":
        return ""
    if not upgrade:
        copy = "a copy is kept beside it" if database.path else "make a dump first"
        raise ConfigError(
            f"the database of {tool}, {database.place}, is of an older version than {tool} "
            f"{version(tool.lower())}: run `genenv up --upgrade` ({copy}; older versions cannot "
            "read it afterwards)"
        )
    if database.path is None:
        return f"{tool}: {database.place} is upgraded"
    return f"{tool}: {database.path} is upgraded, copy: {_copied(database.path, database.revision)}"


def connection_url(given: str | None) -> str | None:
    """Return a PostgreSQL URL as Prefect wants it, None for None; raises ConfigError."""
    if given is None:
        return None
    scheme, separator, rest = given.partition("://")
    if scheme not in ("postgresql", "postgres", "postgresql+asyncpg") or not rest:
        raise ConfigError(
            f"--database-url {without_password(given)!r} is no PostgreSQL URL: write "
            "postgresql://user:password@host:5432/name, or leave it out for SQLite"
        )
    return f"postgresql+asyncpg{separator}{rest}"


def without_password(url: str) -> str:
    """Return the URL with its password, if any, hidden."""
    return re.sub(r"(://[^:/@]*):[^@]*@", r"\1:***@", url)


def _copied(path: Path, revision: str | None) -> Path:
    """Return a consistent copy of an SQLite file, also of one with a write-ahead log."""
    copy = path.with_name(f"{path.name}.{revision}.bak")
    with (
        contextlib.closing(sqlite3.connect(path)) as source,
        contextlib.closing(sqlite3.connect(copy)) as target,
    ):
        source.backup(target)
    return copy


@cache
def _revisions(tool: str, folder: str) -> dict[str, int]:
    """Return migration -> how many follow on it directly, 0 for the last one."""
    spec = find_spec(tool)
    assert spec and spec.origin
    links: dict[str, Any] = {}
    for path in (Path(spec.origin).parent / folder).glob("*.py"):
        names = _assigned(path)
        if isinstance(names.get("revision"), str):
            links[str(names["revision"])] = names.get("down_revision")
    followers = dict.fromkeys(links, 0)
    for before in links.values():
        for one in before if isinstance(before, tuple) else (before,):
            if one in followers:
                followers[one] += 1
    return followers


def _assigned(path: Path) -> dict[str, Any]:
    """Return the constants that a module assigns at its top level."""
    found: dict[str, Any] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(target, ast.Name):
            with contextlib.suppress(ValueError, TypeError):
                found[target.id] = ast.literal_eval(node.value) if node.value else None
    return found
