"""Reads a line of a file of predictions as JSON, whatever a model wrote into it.

Python reads neither values of any depth nor integers of any length. No item has such an answer, so
this module replaces both by something near, and still finds the line's id and key.
"""

from __future__ import annotations

import json
import re
from typing import Any

DEEPEST = 300
"""Levels of lists and objects to read; deeper values become null. Gold has eight at most. Python
gives up at about 900, or sooner within many function calls."""

_MARK = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|["\[\]{}]', re.S)


def read_line(line: bytes) -> Any:
    """Return the JSON value of a line; raises ValueError for a line that is not JSON.

    An integer of more digits than Python reads becomes infinite.
    """
    if line.count(b"[") + line.count(b"{") <= DEEPEST:
        return json.loads(line, parse_int=_integer)
    text = line.decode(json.detect_encoding(line), "surrogatepass")
    return json.loads(_shallow(text), parse_int=_integer)


def _integer(digits: str) -> int | float:
    try:
        return int(digits)
    except ValueError:
        return float(digits)


def _shallow(text: str) -> str:
    """Return the text of a JSON value with null for values that lie too deep."""
    kept: list[str] = []
    depth = begun = 0
    for mark in _MARK.finditer(text):
        if mark[0] in ("[", "{"):
            depth += 1
            if depth == DEEPEST + 1:
                kept += (text[begun : mark.start()], "null")
        elif mark[0] in ("]", "}"):
            if depth == DEEPEST + 1:
                begun = mark.end()
            depth -= 1
        elif mark[0] == '"':
            raise ValueError(f"a text has no end: char {mark.start()}")
    if depth > 0:
        raise ValueError(f"{depth} lists or objects have no end")
    return "".join((*kept, text[begun:]))
