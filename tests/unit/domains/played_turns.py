"""Attempts at tasks of benchmarks with turns that a test gives, and turns of a hostile model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from genenv_core.domains.tool_calls import written
from genenv_core.types import Message, TaskDraft


def call(name: str, /, **arguments: Any) -> str:
    """Return a call as the agent writes it."""
    return written({"name": name, "arguments": arguments})


def played(domain: Any, draft: TaskDraft, turns: Sequence[str]) -> tuple[list[Message], bool]:
    """Return the transcript of these turns, and whether the episode ended with the last one.

    No turn may come after the end, and every observation that is no end is one message or more.
    """
    messages, episode, done = list(domain.agent_messages(draft)), domain.episode(draft, 0), False
    for turn in turns:
        assert not done, "the episode ended before the last turn"
        messages.append({"role": "assistant", "content": turn})
        observation = episode.step(turn)
        messages += observation.messages
        done = observation.done
        assert done or observation.messages
        json.dumps(observation.messages, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return messages, done


def hostile(tool: str) -> list[str]:
    """Return turns that no harness expects, some of which call a tool that there is."""
    deep = "[" * 50_000 + "]" * 50_000
    nested = '{"a":' * 500 + "1" + "}" * 500
    return [
        "",
        " \n\t",
        "\0",
        "\ud800 half",
        "<tool_call>",
        "</tool_call>",
        "<tool_call></tool_call>",
        "<tool_call>{</tool_call>",
        "<tool_call>[]</tool_call>",
        "<tool_call>null</tool_call>",
        "<tool_call>NaN</tool_call>",
        f"<tool_call>{deep}</tool_call>",
        f'<tool_call>{{"name": "{tool}", "arguments": {nested}}}</tool_call>',
        f'<tool_call>{{"name": "{tool}"}}</tool_call>',
        f'<tool_call>{{"name": "{tool}", "arguments": []}}</tool_call>',
        f'<tool_call>{{"name": "{tool}", "arguments": "{{}}"}}</tool_call>',
        '<tool_call>{"name": 7, "arguments": {}}</tool_call>',
        '<tool_call>{"name": "\\ud800", "arguments": {"\\ud800": "\\udfff"}}</tool_call>',
        call("no_such_tool"),
        call("no_such_tool" * 10_000, query="x"),
        call(tool),
        call(tool, query=None, x=1),
        call(tool, query={"a": [1, {"b": None}]}),
        call(tool, query="x" * 1_000_000),
        call(tool, query="9" * 5000),
        call(tool, query="\ud800"),
        call(tool, query=float("inf")),
        call(tool, query=10**400),
        call(tool, query="x") * 10_000,
        "[" * 100_000,
        "chatter " * 100_000,
    ]
