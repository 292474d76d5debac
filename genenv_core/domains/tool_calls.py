"""How a policy writes tool calls into its text, and the optional CountsCalls protocol.

`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, as Hermes and Qwen models write
it. No other module knows these marks. A domain with another syntax implements `CountsCalls`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Protocol, cast, runtime_checkable

from genenv_core.domains.protocol import Domain
from genenv_core.errors import DomainError
from genenv_core.types import JsonObject, Message

OPEN, CLOSE = "<tool_call>", "</tool_call>"

CALL = re.compile(f"{OPEN}(.*?){CLOSE}", re.DOTALL)
"""A call in a text; its group is what should be JSON."""


@runtime_checkable
class CountsCalls(Protocol):
    """A domain whose agent writes tool calls into its text."""

    def count_calls(self, message: Message) -> int:
        """Return how many tool calls a message of the agent begins, well written or not."""
        ...


def written(call: JsonObject) -> str:
    """Return a tool call as a policy writes it."""
    return f"{OPEN}{json.dumps(call)}{CLOSE}"


def read_one_call(text: str) -> JsonObject:
    """Return the one call in a text as JSON; raises DomainError where there is none, or two."""
    bodies = CALL.findall(text)
    if len(bodies) != 1 or text.count(OPEN) != 1:
        raise DomainError(f"make one call between {OPEN} and {CLOSE}")
    try:
        call: object = json.loads(bodies[0])
    except (ValueError, RecursionError) as error:
        raise DomainError("the call is no JSON") from error
    if not isinstance(call, dict):
        raise DomainError("the call is no JSON object")
    return cast(JsonObject, call)


def count_calls(domain: Domain, messages: Sequence[Message]) -> int:
    """Return how many tool calls the agent made; structured ones where the domain does not say."""
    count = domain.count_calls if isinstance(domain, CountsCalls) else _structured
    return sum(count(message) for message in messages if message["role"] == "assistant")


def _structured(message: Message) -> int:
    return len(message.get("tool_calls", ()))
