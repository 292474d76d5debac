"""Reads a generation of pi_env: a request, the functions it offers, and the calls that answer it.

It is one JSON object, `{"question": ..., "functions": [...], "calls": [...]}`. A function is the
name of one in the catalogue, or an object that describes a new one as BFCL does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from genenv_core.benchmarks.bfcl.calls import check_calls
from genenv_core.benchmarks.bfcl.categories import Language, Matching
from genenv_core.benchmarks.bfcl.shapes import is_list, is_object
from genenv_core.benchmarks.bfcl.training.catalogue import CATALOGUE
from genenv_core.benchmarks.bfcl.training.descriptions import described, gold_of, misfit
from genenv_core.domains.tool_calls import OPEN, parsed, read_call
from genenv_core.types import Call, JsonObject, Rejected, Rejection

LONGEST = 20_000
"""Most characters of a generation."""

LONGEST_QUESTION = 2_000
FIELDS = ("question", "functions", "calls")


@dataclass(frozen=True, slots=True)
class Program:
    """A well-formed request: each call is of an offered function, and its values fit."""

    question: str
    functions: Sequence[JsonObject]
    calls: Sequence[Call]

    @property
    def family(self) -> str:
        """Return the category of BFCL that such a request belongs to."""
        return family_of(len(self.functions), len(self.calls))

    @property
    def difficulty(self) -> int:
        """Return the number of calls, plus the number of functions that no call uses."""
        called = {call.name for call in self.calls}
        return len(self.calls) + len(self.functions) - len(called)

    @property
    def gold(self) -> list[JsonObject]:
        """Return the calls in BFCL's form, with the accepted values of each parameter."""
        functions = {function["name"]: function for function in self.functions}
        return [{call.name: gold_of(functions[call.name], call)} for call in self.calls]

    def spelled(self) -> str:
        """Return the canonical spelling of the program."""
        functions = [
            name if _is_ours(function) else function
            for name, function in ((one["name"], one) for one in self.functions)
        ]
        calls = [{"name": call.name, "arguments": call.arguments} for call in self.calls]
        value = {"question": self.question, "functions": functions, "calls": calls}
        return json.dumps(value, ensure_ascii=False)


def family_of(functions: int, calls: int) -> str:
    """Return BFCL's category of a request, by the numbers of its functions and of its calls."""
    if calls == 0:
        return "irrelevance"
    if calls == 1:
        return "simple" if functions == 1 else "multiple"
    return "parallel" if functions == 1 else "parallel_multiple"


KINDS: Mapping[str, Matching] = {
    "irrelevance": Matching.IRRELEVANCE,
    "simple": Matching.SIMPLE,
    "multiple": Matching.MULTIPLE,
    "parallel": Matching.PARALLEL,
    "parallel_multiple": Matching.PARALLEL,
}
"""How BFCL compares the calls of each family with gold."""


def read_program(text: str, hardest: int) -> Program | Rejected:
    """Return the program of a text, or the first thing that is wrong with it; never raises.

    `hardest` is the largest difficulty.
    """
    if len(text) > LONGEST:
        return _out(f"{len(text)} characters, at most {LONGEST} are read")
    try:
        return _read(parsed(text), hardest)
    except RecursionError:
        return Rejected(Rejection.UNPARSEABLE, "nested too deep")


def _read(value: object, hardest: int) -> Program | Rejected:
    if not is_object(value):
        return Rejected(Rejection.UNPARSEABLE, "no JSON object")
    if sorted(value) != sorted(FIELDS):
        return Rejected(Rejection.UNPARSEABLE, f"the fields are not {', '.join(FIELDS)}")
    question, functions, calls = (value[name] for name in FIELDS)
    if not isinstance(question, str) or not is_list(functions) or not is_list(calls):
        why = "question is no text, or functions or calls no list"
        return Rejected(Rejection.UNPARSEABLE, why)
    if not 0 < len(question.strip()) <= LONGEST_QUESTION:
        return _out(f"the question has no characters, or more than {LONGEST_QUESTION}")
    if not functions or len(functions) > hardest or len(calls) > hardest:
        most = f"{len(functions)} functions and {len(calls)} calls"
        return _out(f"{most}; there is one function at least, and {hardest} of each at most")
    offered = _functions(functions)
    if isinstance(offered, Rejected):
        return offered
    read = _calls(calls, offered)
    if isinstance(read, Rejected):
        return read
    return _checked(Program(question.strip(), offered, read), hardest)


def _functions(functions: Sequence[object]) -> list[JsonObject] | Rejected:
    found: list[JsonObject] = []
    for place, one in enumerate(functions):
        if isinstance(one, str):
            if one not in CATALOGUE:
                return _inconsistent(f"function {place} is no name of the catalogue: {one[:60]!r}")
            found.append(CATALOGUE[one].function)
            continue
        function = described(one)
        if isinstance(function, str):
            return _inconsistent(f"function {place}: {function}")
        found.append(function)
    names = {function["name"] for function in found}
    if len(names) < len(found):
        return _inconsistent("two functions have one name")
    return found


def _calls(calls: Sequence[object], functions: Sequence[JsonObject]) -> list[Call] | Rejected:
    offered = {function["name"]: function for function in functions}
    found: list[Call] = []
    for place, one in enumerate(calls):
        call = read_call(one)
        if call is None:
            why = f"call {place} is no object with a name and arguments"
            return Rejected(Rejection.UNPARSEABLE, why)
        if call.name not in offered:
            why = f"call {place} is of no function that is offered: {call.name[:60]!r}"
            return Rejected(Rejection.UNKNOWN_TOOL, why)
        why = misfit(offered[call.name], call)
        if why:
            return _inconsistent(f"call {place}, {why}")
        if call in found:
            return _inconsistent(f"call {place} is there twice")
        found.append(call)
    return found


def _checked(program: Program, hardest: int) -> Program | Rejected:
    """Return the program if its range is right, it says no call, and BFCL accepts its calls."""
    if program.difficulty > hardest:
        return _out(f"the difficulty is {program.difficulty}, the largest {hardest}")
    try:
        program.spelled().encode()
    except UnicodeEncodeError:
        return Rejected(Rejection.UNPARSEABLE, "half of a surrogate pair")
    says = told(program)
    if says:
        return Rejected(Rejection.LEAKS_ANSWER, says)
    if program.calls:
        prediction = [{call.name: call.arguments} for call in program.calls]
        kind = KINDS[program.family]
        fault = check_calls(prediction, program.functions, program.gold, kind, Language.PYTHON)
        if fault is not None:
            return Rejected(Rejection.REJECTS_GROUND_TRUTH, f"{fault.type}: {fault.reason}")
    return program


def told(program: Program) -> str:
    """Return which call the request spells out, '' without one.

    It looks for a call's mark, and for a function's name before a sign that follows it in a call.
    """
    if OPEN in program.question:
        return f"the request says {OPEN}"
    for call in program.calls:
        if re.search(rf"\b{re.escape(call.name)}[\"']?\s*[({{:,]", program.question):
            return f"the request spells a call of {call.name!r}"
    return ""


def _is_ours(function: JsonObject) -> bool:
    entry = CATALOGUE.get(function["name"])
    return entry is not None and entry.function == function


def _inconsistent(why: str) -> Rejected:
    return Rejected(Rejection.INCONSISTENT, why)


def _out(why: str) -> Rejected:
    return Rejected(Rejection.OUT_OF_RANGE, why)
