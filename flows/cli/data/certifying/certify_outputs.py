"""Where `genenv certify` writes what it found, and how it writes the page."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from flows.cli.data.query import Format, format_of
from flows.cli.options import check_output, written_to
from genenv_core.errors import ConfigError

if TYPE_CHECKING:
    from genenv_core.evidence.certified import CertifiedPage
    from genenv_core.evidence.worth import WorthCheck
    from genenv_core.play.checking.sets import FlawCount
    from genenv_core.types import JsonObject


@dataclass(frozen=True, slots=True)
class CertifyOutputs:
    """The files that a certificate is written to, each where somebody asked for it.

    `wanted` is the format of the rows, `report` a file for a report of OpenEnv's form.
    """

    wanted: Format
    rows: Path | None = None
    page: Path | None = None
    report: Path | None = None

    @classmethod
    def checked(
        cls,
        format_: Format | None,
        rows: Path | None,
        page: Path | None,
        report: Path | None = None,
    ) -> CertifyOutputs:
        """Return them; raises QueryError and ConfigError for what cannot be written."""
        if rows is None and format_ is not None:
            raise ConfigError(f"--format {format_} is that of a file: name one with -o")
        named = {"-o": rows, "--page": page, "--report": report}
        taken: dict[str, str] = {}
        for option, file in named.items():
            if file is None:
                continue
            check_output(option, file)
            place = os.path.realpath(file)  # Path.resolve() fails where links are a circle
            other = taken.setdefault(place, option)
            if other != option:
                raise ConfigError(f"{option} {file} is the file of {other} too: give each its own")
        return cls(format_of(format_, rows), rows, page, report)

    def write_rows(self, rows: Sequence[dict[str, Any]], schema: dict[str, Any]) -> None:
        """Write rows with these columns, where a file for them was named."""
        if self.rows is None:
            return
        import polars as pl

        from flows.cli.data.writing import write
        from genenv_core.storage.sql.sandbox import Answer

        frame = pl.DataFrame(rows, schema)
        write(Answer(frame, truncated=False), self.wanted.value, self.rows)

    def write_checks(self, flaws: Sequence[FlawCount], checks: Sequence[WorthCheck]) -> None:
        """Write a row for each flaw and each check of attempts, where a file was named."""
        from genenv_core.evidence.attempted import check_rows
        from schemas.registry import schema

        words = {"name": "check", "wanted": "limit"}  # which SQL has taken, and a file has not
        columns = {words.get(name, name): kind for name, kind in schema("certified_sets").items()}
        self.write_rows(check_rows(flaws, checks), columns)

    def write_page(self, made: Callable[[], CertifiedPage]) -> None:
        """Write the page, where one was asked for; it is made only then."""
        if self.page is None:
            return
        from genenv_core import __version__
        from genenv_core.evidence.certified import render

        _write("--page", self.page, render(made(), version=__version__).encode())

    def write_report(self, made: Callable[[], JsonObject]) -> None:
        """Write the report, where one was asked for; it is made only then."""
        if self.report is not None:
            data = json.dumps(made(), indent=2, ensure_ascii=False) + "\n"
            _write("--report", self.report, data.encode(errors="replace"))


def _write(option: str, file: Path, data: bytes) -> None:
    written_to(option, file, data)
    typer.echo(f"{file}: {len(data) / 1000:.0f} kB")


def command_of(*words: str | Path | int) -> str:
    """Return a command that gives this certificate, as a person would type it."""
    return shlex.join(["genenv", "certify", *map(str, words)])
