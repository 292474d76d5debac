"""The logprobs of stored rows under a frozen reference, which scores each row once an update."""

# torch has partial types only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Rows = tuple[int, ...]


class ReferenceScores:
    """Scores of rows, stored for the passes after the first.

    The rows in one forward pass decide how it rounds. So `of` always scores a row together with its
    micro-batch in the first pass, whichever pass asks, and a resumed update ends on the same bits.

    Args:
        micro_batches: those of the first pass, indices of stored rows; they have every row.
        score: returns the logprobs of such rows, (rows, tokens), 0 behind a completion.
    """

    def __init__(self, micro_batches: Sequence[Rows], score: Callable[[Rows], Any]) -> None:
        self._together = {row: rows for rows in micro_batches for row in rows}
        self._score = score
        self._known: dict[int, Any] = {}

    def of(self, rows: Rows, tokens: int) -> Any:
        """Return the logprobs of these rows, (rows, tokens), in nats, 0 behind each completion.

        `tokens` is at least the length of the longest of these completions.
        """
        for row in rows:
            if row not in self._known:
                together = self._together[row]
                self._known |= zip(together, self._score(together), strict=True)
        found = self._known[rows[0]].new_zeros(len(rows), tokens)
        for place, row in enumerate(rows):
            known = self._known[row][:tokens]
            found[place, : len(known)] = known
        return found
