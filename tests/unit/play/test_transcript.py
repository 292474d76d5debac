"""Transcripts for readers.

Invariants: calls are found in order with the text around them, whether they were written into the
text or beside it; text that only looks like a call stays text, and nothing raises; in OpenAI's
shape each observation answers an earlier call; a model's text cannot steer a terminal.
"""

from __future__ import annotations

import json

import pytest

from genenv_core.hiding import visible
from genenv_core.play.calls import with_calls
from genenv_core.play.transcript import ToolCall, openai_messages, turns
from genenv_core.types import Message

SHIP = (
    '<tool_call>{"id": 1, "name": "ship", "arguments": {"item": "gears", "total": 5}}</tool_call>'
)


def said(content: str) -> Message:
    return {"role": "assistant", "content": content}


def test_calls_and_text_keep_their_order() -> None:
    turn = turns([said(f"first {SHIP} then {SHIP}")])[0]
    call = ToolCall("ship", {"item": "gears", "total": 5})
    assert turn.parts == ("first ", call, " then ", call)
    assert str(call) == 'ship(item="gears", total=5)'


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>{</tool_call>",
        "<tool_call>[1]</tool_call>",
        '<tool_call>{"name": 3, "arguments": {}}</tool_call>',
        '<tool_call>{"name": "ship", "arguments": "{"}</tool_call>',
        f"<tool_call>{'[' * 100_000}</tool_call>",
        SHIP.removesuffix("</tool_call>"),
    ],
)
def test_what_is_no_call_stays_text(text: str) -> None:
    assert turns([said(text)])[0].parts == (text,)


def test_a_user_cannot_forge_a_call() -> None:
    assert turns([{"role": "user", "content": SHIP}])[0].calls == []


def test_openai_messages_pair_calls_and_observations() -> None:
    tool: Message = {"role": "tool", "name": "ship", "content": "recorded"}
    found = openai_messages(
        with_calls([{"role": "user", "content": "go"}, said(SHIP + SHIP), tool, tool, tool])
    )
    calls = found[1]["tool_calls"]
    assert found[1]["content"] is None
    assert json.loads(calls[0]["function"]["arguments"]) == {"item": "gears", "total": 5}
    assert [m["tool_call_id"] for m in found[2:4]] == [call["id"] for call in calls]
    assert found[4] == {"role": "user", "content": "recorded"}  # it answers no call
    again = turns([{"role": "assistant", "content": "", "tool_calls": calls}])[0]
    assert again.calls == turns([said(SHIP + SHIP)])[0].calls


def test_characters_that_steer_are_replaced() -> None:
    assert visible("a\x1b[31m\u202eb\n\tä→") == "a\ufffd[31m\ufffdb\n\tä→"
