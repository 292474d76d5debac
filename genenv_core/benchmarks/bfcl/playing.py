"""BFCL's single-turn items as a model plays them: one turn, whose calls are the prediction.

A turn with a call that cannot be read is wrong in every category. The official scorer agrees where
calls are right; elsewhere it takes whatever it cannot decode for no call. Here such a turn is wrong
there too: a model that tries to call has not seen that nothing fits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from genenv_core.benchmarks.bfcl.calls import are_calls
from genenv_core.benchmarks.bfcl.categories import Matching
from genenv_core.benchmarks.bfcl.rows import Row
from genenv_core.benchmarks.bfcl.tools import tool_names, tools_of
from genenv_core.benchmarks.protocol import ItemVerdict
from genenv_core.types import JsonObject, Message, Observation, Said

NO_FUNCTION = "No function"
"""How an answer begins that says that no function fits; only training tasks ask for it."""

RULES = (
    "You answer requests with calls of functions, all of them in one turn: one call for each thing "
    "that is asked for, with the values that the request says or that follow from it. Leave out "
    "optional arguments that the request says nothing about. If no function can do what is asked, "
    "or a value is missing that it needs, call nothing and answer with a sentence that begins with "
    f'"{NO_FUNCTION}".'
)


class SingleTurn:
    """An item as a model plays it; `judged` returns the verdict on a prediction in a mode."""

    def __init__(self, row: Row, judged: Callable[[Any, str], ItemVerdict]) -> None:
        self._row = row
        self._judged = judged

    @property
    def messages(self) -> Sequence[Message]:
        """Return genenv's rules and the item's messages; the rules precede its system message."""
        return opened(RULES, self._row.messages)

    @property
    def tools(self) -> Sequence[JsonObject]:
        """Return the item's functions."""
        return self._tools

    @cached_property
    def _tools(self) -> list[JsonObject]:
        return tools_of(self._row.functions, self._row.category.language)

    def begin(self, seed: int) -> OneTurn:
        """Return an attempt, in which nothing is random."""
        return OneTurn()

    def prediction(self, said: Sequence[Said]) -> Any:
        """Return the calls of the first turn under the item's own names of functions.

        With a call that cannot be read, the prediction is a wrong one: a text where the item wants
        calls, a call where it wants no call.
        """
        if not said:
            return []
        if said[0].malformed:
            text = said[0].malformed[0]
            return [{text: {}}] if self._row.category.kind is Matching.IRRELEVANCE else text
        return [{self._names.get(call.name, call.name): call.arguments} for call in said[0].calls]

    def judge(self, prediction: Any, mode: str) -> ItemVerdict:
        """Return the verdict on a prediction; how it spells dots makes no difference to it."""
        if mode == "underscores" and are_calls(prediction):
            prediction = [
                {name.replace(".", "_"): arguments for name, arguments in call.items()}
                for call in prediction
            ]
        return self._judged(prediction, mode)

    @cached_property
    def _names(self) -> dict[str, str]:
        """The function of each tool; a model may also say a function's own name."""
        names: list[str] = [function["name"] for function in self._row.functions]
        return dict(zip(tool_names(names), names, strict=True))


class OneTurn:
    """An attempt that the first turn ends, whatever it says."""

    def answer(self, said: Said) -> Observation:
        """Return the end."""
        return Observation(done=True)


def opened(rules: str, messages: Sequence[Message]) -> list[Message]:
    """Return messages after our rules, in one system message."""
    first = messages[0] if messages else None
    if first is not None and first["role"] == "system":
        return [{"role": "system", "content": f"{rules}\n\n{first['content']}"}, *messages[1:]]
    return [{"role": "system", "content": rules}, *messages]
