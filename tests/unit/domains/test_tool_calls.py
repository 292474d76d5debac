"""Tool calls in a policy's text.

Invariants: one module knows the marks, and finds what it writes; a domain counts the calls of its
own syntax, else structured ones count; only the agent makes calls; a turn is text, calls and what
was meant as a call, whatever it holds.
"""

from __future__ import annotations

import pytest

from genenv_core.benchmarks.protocol import Call, Said
from genenv_core.domains.desk import DeskDomain
from genenv_core.domains.tool_calls import canonical, count_calls, marked, said, written
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
    assert [match[1] for match in marked(f"so {text}{text}</tool_")] == [text[11:-12]] * 2


def test_a_domain_counts_what_its_agent_begins() -> None:
    assert count_calls(DeskDomain(), MESSAGES) == 2  # the one that was never closed, too


def test_structured_calls_count_where_a_domain_does_not_say() -> None:
    assert count_calls(EchoDomain(), MESSAGES) == 3


def test_a_turn_has_text_calls_and_what_was_meant_as_one() -> None:
    text = (
        f"<think>maybe {written(SHIP)}</think> a {written(SHIP)} b <tool_call>[]</tool_call>"
        '<tool_call>{"name": "x", "arguments": "{\\"y\\": 1}"}</tool_call><tool_call>{"name'
    )
    assert said(text) == Said(
        "a  b",
        (Call("ship", {"item": "gears", "total": 5}), Call("x", {"y": 1})),
        ("[]", '{"name'),
    )


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{",
        "null",
        '"ship"',
        '[{"name": "x", "arguments": {}}]',
        "{}",
        '{"name": "x"}',
        '{"arguments": {}}',
        '{"name": 1, "arguments": {}}',
        '{"name": "x", "arguments": []}',
        '{"name": "x", "arguments": null}',
        '{"name": "x", "arguments": "[]"}',
        '{"name": "x", "arguments": "{"}',
    ],
)
def test_what_is_no_call_is_malformed(body: str) -> None:
    whole, last = f"a <tool_call>{body}</tool_call> b", f"a <tool_call>{body}"
    assert said(whole) == Said("a  b", (), (body,))
    assert said(last) == Said("a", (), (body,))


def test_a_call_that_is_never_closed_is_malformed_and_those_before_it_count() -> None:
    right = Call("ship", dict(SHIP["arguments"]))
    text = f"a {written(SHIP)} b {written(SHIP)[:-1]}"
    assert said(text) == Said("a  b", (right,), (written(SHIP)[11:-1],))
    assert said(written(SHIP)[11:]) == Said(written(SHIP)[11:], (), ())  # never opened


def test_calls_in_openais_form_become_a_turn() -> None:
    call = {"type": "function", "function": {"name": "go", "arguments": '{"to": "é"}'}}
    broken = {"function": {"name": "go", "arguments": "{"}}
    found = said(canonical("well", [call, SHIP, broken, 3]))
    assert found.text == "well"
    assert found.calls == (Call("go", {"to": "é"}), Call("ship", dict(SHIP["arguments"])))
    assert len(found.malformed) == 2


def test_hostile_texts_take_no_time() -> None:
    """A quadratic search would take hours here."""
    found = said("<tool_call>" * 300_000)
    assert (found.calls, len(found.malformed)) == ((), 1)
    assert len(said("<tool_call>{}" * 100_000 + "</tool_call>").malformed) == 1
    deep = "[" * 100_000
    assert said(f"<tool_call>{deep}</tool_call>").malformed == (deep,)
