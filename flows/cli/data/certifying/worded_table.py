"""A table of numbers whose rows have a sentence or more each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.measure import Measurement
from rich.text import Text

from flows.shown.tables import plain_table

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table

ROOM = 30
"""Fewest characters of a column of sentences; in a narrower one they would be a word a line."""

WHOLE = 1000
"""More characters than the numbers of a row take."""


@dataclass(frozen=True, slots=True)
class WordedTable:
    """A table with its sentences in the last column, or below it in a narrow terminal.

    Args:
        titles: the columns from left to right; the first one names the row.
        numbers: those of them that hold numbers.
        words: title of the column of sentences.
        rows: the cells of each row, and its sentences, empty for none.
    """

    titles: Sequence[str]
    numbers: Sequence[str]
    words: str
    rows: Sequence[tuple[Sequence[str | Text], Text]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table, and the sentences of each row below it where it has no room for them."""
        some = any(words for _, words in self.rows)
        bare = self._table(with_words=False)
        wide = Measurement.get(console, options.update_width(WHOLE), bare).maximum
        if not some or options.max_width - wide > ROOM:
            yield self._table(with_words=some)
            return
        yield bare
        yield Text()
        for (name, *_), words in self.rows:
            if words:
                yield Text.assemble(name, ": ", words)

    def _table(self, *, with_words: bool) -> Table:
        table = plain_table()
        for title in self.titles:
            justify = "right" if title in self.numbers else "left"
            table.add_column(title, justify=justify, no_wrap=True)
        if with_words:
            table.add_column(self.words, overflow="fold")
        for cells, words in self.rows:
            table.add_row(*cells, *([words] if with_words else []))
        return table
