"""Writes the rows of a question to the terminal, or into the file that `-o` names."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

from flows.cli.options import written_to
from flows.shown.rows import counted, encode, show, wide
from flows.shown.tables import console
from genenv_core.pools import Answer


def write(answer: Answer, format_: str, output: Path | None = None) -> None:
    """Write rows as table, csv, json or parquet, to a file or to standard output."""
    if format_ == "table" and output is None:
        out = console()
        show(answer, out if out.is_terminal else wide())
        return
    data = encode(answer, format_)
    if output is None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    else:
        written_to("-o", output, data)
    if output is not None or answer.truncated or answer.remark:
        _say(answer, output)


def _say(answer: Answer, output: Path | None) -> None:
    text = Text(counted(answer, output), style="dim")
    Console(stderr=True, highlight=False).print(text, soft_wrap=True)
