"""Tool calls in a policy's text.

Invariants: one module knows the marks, and finds what it writes; a domain counts the calls of its
own syntax, else structured ones count; only the agent makes calls.
"""

from __future__ import annotations

from genenv_core.domains.desk import DeskDomain
from genenv_core.domains.tool_calls import CALL, count_calls, written
from genenv_core.types import Message
from tests.unit.builders_rollout import EchoDomain

SHIP = {"name": "ship", "arguments": {"item": "gears", "total": 5}}
MESSAGES: list[Message] = [
    {"role": "user", "content": written(SHIP)},
    {"role": "assistant", "content": f"{written(SHIP)} and <tool_call>{{ and <tool_call"},
    {"role": "tool", "content": written(SHIP)},
    {"role": "assistant", "content": "", "tool_calls": [SHIP, SHIP, SHIP]},
]


def test_what_is_written_is_found() -> None:
    text = written(SHIP)
    assert text == (
        '<tool_call>{"name": "ship", "arguments": {"item": "gears", "total": 5}}</tool_call>'
    )
    assert CALL.findall(f"so {text}{text}") == [text[11:-12]] * 2


def test_a_domain_counts_what_its_agent_begins() -> None:
    assert count_calls(DeskDomain(), MESSAGES) == 2  # the one that was never closed, too


def test_structured_calls_count_where_a_domain_does_not_say() -> None:
    assert count_calls(EchoDomain(), MESSAGES) == 3
