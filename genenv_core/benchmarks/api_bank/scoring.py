"""Compares a call in a text with a recorded call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from genenv_core.benchmarks.api_bank.parsing.finding import find_call, plain_arguments
from genenv_core.benchmarks.api_bank.parsing.reading import UnreadableError, full_arguments
from genenv_core.benchmarks.api_bank.rules import ToolRules
from genenv_core.benchmarks.api_bank.state import ApiState
from genenv_core.benchmarks.api_bank.values import LOOSE, anything, exact, typed

PREFIX = "API-Request:"
"""What the official prompts ask for before a call, and the official test files have there."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool's name, the declared types of its arguments, and how it compares them."""

    name: str
    types: Mapping[str, str]
    rules: ToolRules = field(default_factory=ToolRules)

    def current(self, names: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments under today's names, unless these occur beside the old ones."""
        renamed = {old: new for old, new in self.rules.renamed.items() if new not in names}
        return {renamed.get(name, name): value for name, value in names.items()}


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A gold call; its arguments have their declared types and today's names."""

    tool: Tool
    arguments: Mapping[str, Any]

    @property
    def has_list(self) -> bool:
        """Return whether an argument is a list, which the official harness cannot read."""
        return any(isinstance(value, list) for value in self.arguments.values())


@dataclass(frozen=True, slots=True)
class CallVerdict:
    """`error` is '' for a right call; the names are those of arguments that differ from gold."""

    error: str = ""
    text: str = ""
    missing: Sequence[str] = ()
    extra: Sequence[str] = ()
    wrong: Sequence[str] = ()


def recorded(tool: Tool, arguments: Mapping[str, Any]) -> RecordedCall:
    """Return the gold call; raises UnreadableError when a value lacks its declared type."""
    current = tool.current(arguments)
    found = {name: typed(value, tool.types.get(name, "str")) for name, value in current.items()}
    return RecordedCall(tool, found)


def judge_call(text: str, gold: RecordedCall, state: ApiState, strict: bool) -> CallVerdict:
    """Return the verdict on the first call of a text; strict wants the text to be the call."""
    found = find_call(text)
    alone = found is not None and found.text == text.strip().removeprefix(PREFIX).lstrip()
    if found is None or (strict and not alone):
        return CallVerdict("no_call")
    if found.name != gold.tool.name:
        return CallVerdict("wrong_api", found.text)
    try:
        inside = found.inside
        said = full_arguments(inside) if gold.has_list else plain_arguments(inside)
    except UnreadableError:
        return CallVerdict("unreadable_arguments", found.text)
    said = gold.tool.current(said)
    missing = [name for name in gold.arguments if name not in said]
    extra = [name for name in said if name not in gold.arguments]
    wrong: Sequence[str] = ()
    if not missing and not extra:
        wrong = _wrong(said, gold, state, strict)
    error = "wrong_arguments" if missing or extra or wrong else ""
    return CallVerdict(error, found.text, missing, extra, wrong)


def _wrong(
    said: Mapping[str, Any], gold: RecordedCall, state: ApiState, strict: bool
) -> Sequence[str]:
    """Return the names of the arguments that do not count as the gold ones."""
    rules, need = gold.tool.rules.rules, gold.tool.rules.need
    wanted = state.found(need, gold.arguments) if need else None
    values: dict[str, Any] = {}
    wrong: list[str] = []
    for name, right in gold.arguments.items():
        rule = rules.get(name, exact)
        # Where the recorded call fails on this state, no result vouches for uncompared arguments.
        unvouched = rule is anything and wanted is None
        if unvouched or (strict and rule in LOOSE):
            rule = exact
        try:
            values[name] = typed(said[name], gold.tool.types.get(name, "str"))
        except UnreadableError:
            wrong.append(name)
            continue
        if not rule(values[name], right):
            wrong.append(name)
    if wrong or need is None or wanted is None:
        return wrong
    if state.reached(need, values, wanted):
        return []
    return [name for name in gold.arguments if rules.get(name) in LOOSE]
