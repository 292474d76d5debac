"""Questions that are ready to ask: those of README.md and docs/sql.md, each a title and its SQL.

`questions.sql` holds them, and a test compares it with both pages.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_QUESTION = re.compile(r"^-- (?P<title>.+\?)\n(?P<sql>[^;]+);$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Question:
    """A question in words, and the statement that answers it."""

    title: str
    sql: str


@cache
def questions() -> tuple[Question, ...]:
    """Return the questions in the order of the pages."""
    text = files("schemas").joinpath("questions.sql").read_text(encoding="utf-8")
    return tuple(Question(found["title"], found["sql"]) for found in _QUESTION.finditer(text))
