"""The compact language of desk: `+ 8 bolts 7 ; * 3 nuts 4`, its parser, its English, its answer.

A program is one line of clauses separated by `;`. A clause is an operation, a number, an item and
a number: `+ 8 bolts 7` (8 in stock, receive 7 more), `- 8 bolts 3` (8 in stock, ship 3),
`* 3 nuts 4` (3 in a box, pack 4 boxes). Each clause asks for one tool call with the new total.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import Literal, cast

from genenv_core.domains.tool_calls import written
from genenv_core.types import Rejected, Rejection

Operation = Literal["+", "-", "*"]

ITEMS = (
    "bolts",
    "nuts",
    "screws",
    "pipes",
    "cables",
    "valves",
    "gears",
    "lamps",
    "hooks",
    "springs",
    "belts",
    "tiles",
)

TOOL_NAMES: dict[Operation, str] = {"+": "receive", "-": "ship", "*": "pack"}

OPERATIONS: tuple[Operation, ...] = ("+", "-", "*")

_ENGLISH: dict[Operation, str] = {
    "+": "{left} {item} in stock, receive {right} more",
    "-": "{left} {item} in stock, ship {right} out",
    "*": "{left} {item} in a box, pack {right} boxes",
}

_REQUESTS = {
    operation: re.compile(
        re.escape(english)
        .replace(r"\{left\}", "(?P<left>[0-9]+)")
        .replace(r"\{item\}", "(?P<item>[a-z]+)")
        .replace(r"\{right\}", "(?P<right>[0-9]+)")
        # re.escape writes a blank as it is read in verbose patterns.
        .replace(r"\ ", " "),
        re.ASCII,
    )
    for operation, english in _ENGLISH.items()
}

# ASCII only, so that no other script's digits or blanks slip in. Leading zeros are refused: one
# number has one spelling.
_CLAUSE = re.compile(r"\s*([+\-*])\s*(0|[1-9][0-9]*)\s+([a-z]+)\s+(0|[1-9][0-9]*)\s*", re.ASCII)

_MAX_DIGITS = 6  # beyond every allowed operand; Python refuses to convert 4300 digits and more


@dataclass(frozen=True, slots=True)
class Clause:
    """One clause, which asks for one tool call."""

    operation: Operation
    left: int
    item: str
    right: int

    @property
    def name(self) -> str:
        """Return the name of the tool that this clause asks for."""
        return TOOL_NAMES[self.operation]

    @property
    def total(self) -> int:
        """Return the total that the tool call must state."""
        if self.operation == "+":
            return self.left + self.right
        if self.operation == "-":
            return self.left - self.right
        return self.left * self.right


Program = tuple[Clause, ...]


def parse_program(text: str, *, max_calls: int, max_operand: int) -> Program | Rejected:
    """Return the program that the text spells, or why it spells no program; never raises.

    Spelling is judged first, then ranges, then sense, so each text has one reason.
    """
    clauses: list[tuple[str, str, str, str]] = []
    for part in text.split(";"):
        match = _CLAUSE.fullmatch(part)
        if match is None:
            return Rejected(Rejection.UNPARSEABLE, f"not a clause: {part.strip()[:60]!r}")
        operation, left, item, right = match.groups()
        if item not in ITEMS:
            return Rejected(Rejection.UNPARSEABLE, f"unknown item {item[:40]!r}")
        clauses.append((operation, left, item, right))
    if len(clauses) > max_calls:
        return Rejected(Rejection.OUT_OF_RANGE, f"{len(clauses)} calls, at most {max_calls}")
    program: list[Clause] = []
    for operation, left, item, right in clauses:
        for number in (left, right):
            if len(number) > _MAX_DIGITS or not 1 <= int(number) <= max_operand:
                detail = f"operand {number[:20]} is not in 1..{max_operand}"
                return Rejected(Rejection.OUT_OF_RANGE, detail)
        program.append(Clause(cast(Operation, operation), int(left), item, int(right)))
    for clause in program:
        if clause.total < 0:
            detail = f"ships {clause.right} {clause.item} of {clause.left}"
            return Rejected(Rejection.INCONSISTENT, detail)
    return tuple(program)


def program_pattern(*, max_calls: int, max_operand: int) -> str:
    """Return a regular expression for every canonical spelling within these bounds."""
    operand = f"({'|'.join(map(str, range(1, max_operand + 1)))})"
    clause = f"[+*-] {operand} ({'|'.join(ITEMS)}) {operand}"
    return f"{clause}( ; {clause}){{0,{max_calls - 1}}}"


def render_program(program: Program) -> str:
    """Return the canonical spelling, which `parse_program` reads back to an equal program."""
    return " ; ".join(f"{c.operation} {c.left} {c.item} {c.right}" for c in program)


def render_request(program: Program) -> str:
    """Return the request in English, as the agent reads it."""
    parts = (_ENGLISH[c.operation].format(left=c.left, item=c.item, right=c.right) for c in program)
    return "; ".join(parts) + "."


def parse_request(text: str) -> str | None:
    """Return the spelling of the program behind an English request; None when it is no request."""
    clauses: list[str] = []
    for part in text.strip().removesuffix(".").split(";"):
        found = [
            f"{operation} {match['left']} {match['item']} {match['right']}"
            for operation, pattern in _REQUESTS.items()
            if (match := pattern.fullmatch(part.strip()))
        ]
        if not found:
            return None
        clauses += found
    return " ; ".join(clauses)


def render_answer(program: Program) -> str:
    """Return the right chain of tool calls, as the agent should write it."""
    return "".join(
        render_call(number, clause.name, clause.item, clause.total)
        for number, clause in enumerate(program, start=1)
    )


def render_call(number: int, name: str, item: str, total: int) -> str:
    """Return one tool call as text; `number` counts from 1."""
    call = {"id": number, "name": name, "arguments": {"item": item, "total": total}}
    return written(call)


def draw_program(rng: random.Random, calls: int, max_operand: int) -> Program:
    """Return a random valid program of this many calls."""
    return tuple(_draw_clause(rng, max_operand) for _ in range(calls))


def _draw_clause(rng: random.Random, max_operand: int) -> Clause:
    operation = rng.choice(OPERATIONS)
    left, right = rng.randint(1, max_operand), rng.randint(1, max_operand)
    if operation == "-":
        left, right = max(left, right), min(left, right)
    return Clause(operation, left, rng.choice(ITEMS), right)
