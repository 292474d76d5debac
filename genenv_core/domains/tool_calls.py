"""How a policy writes tool calls into its text, and the optional CountsCalls protocol.

`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, as Hermes and Qwen models write
it. No other module knows these marks. A domain with another syntax implements `CountsCalls`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, cast, runtime_checkable

from genenv_core.benchmarks.protocol import Call, Said
from genenv_core.domains.protocol import Domain
from genenv_core.errors import DomainError
from genenv_core.types import JsonObject, Message

OPEN, CLOSE = "<tool_call>", "</tool_call>"

_CALL = re.compile(f"{OPEN}(.*?){CLOSE}", re.DOTALL)


THOUGHT = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)


@runtime_checkable
class CountsCalls(Protocol):
    """A domain whose agent writes tool calls into its text."""

    def count_calls(self, message: Message) -> int:
        """Return how many tool calls a message of the agent begins, well written or not."""
        ...


def marked(text: str) -> Iterator[re.Match[str]]:
    """Return what stands between the marks, in order; group 1 should be JSON.

    In linear time, as nothing is looked for behind the last closing mark.
    """
    return _CALL.finditer(text, 0, max(0, text.rfind(CLOSE) + len(CLOSE)))


def written(call: JsonObject) -> str:
    """Return a tool call as a policy writes it."""
    return f"{OPEN}{json.dumps(call)}{CLOSE}"


def read_one_call(text: str) -> JsonObject:
    """Return the one call in a text as JSON; raises DomainError where there is none, or two."""
    bodies = [match[1] for match in marked(text)]
    if len(bodies) != 1 or text.count(OPEN) != 1:
        raise DomainError(f"make one call between {OPEN} and {CLOSE}")
    try:
        call: object = json.loads(bodies[0])
    except (ValueError, RecursionError) as error:
        raise DomainError("the call is no JSON") from error
    if not isinstance(call, dict):
        raise DomainError("the call is no JSON object")
    return cast(JsonObject, call)


def canonical(text: str, calls: Iterable[object]) -> str:
    """Return a turn as policies write it, out of a text and calls in OpenAI's form.

    A call that is none, such as one whose arguments are no JSON, becomes a malformed one.
    """
    return "\n".join([*([text] if text else []), *(_written(call) for call in calls)])


def _written(call: object) -> str:
    inner = cast(JsonObject, call).get("function", call) if isinstance(call, dict) else call
    found = read_call(inner)
    if found is None:
        return f"{OPEN}{json.dumps(inner, ensure_ascii=False, default=str)}{CLOSE}"
    return written({"name": found.name, "arguments": found.arguments})


def said(text: str) -> Said:
    """Return a turn's text and calls; what only looks like a call is in `malformed`.

    What a reasoning model thinks first is neither.
    """
    text = THOUGHT.sub("", text, count=1)
    calls: list[Call] = []
    malformed: list[str] = []
    rest: list[str] = []
    end = 0
    for match in marked(text):
        rest.append(text[end : match.start()])
        end = match.end()
        call = read_call(parsed(match[1]))
        if call is None:
            malformed.append(match[1])
        else:
            calls.append(call)
    last, opened, unclosed = text[end:].partition(OPEN)
    if opened:
        malformed.append(unclosed)
    return Said("".join([*rest, last]).strip(), tuple(calls), tuple(malformed))


def read_call(value: object) -> Call | None:
    """Return a call out of parsed JSON, None where it is none.

    Arguments are an object, or an object written as JSON text, as OpenAI-style APIs have it.
    """
    if not isinstance(value, dict):
        return None
    record = cast(JsonObject, value)
    name, arguments = record.get("name"), record.get("arguments")
    if isinstance(arguments, str):
        arguments = parsed(arguments)
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return None
    return Call(name, cast(JsonObject, arguments))


def parsed(text: str) -> object:
    """Return the value of a JSON text, None where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def count_calls(domain: Domain, messages: Sequence[Message]) -> int:
    """Return how many tool calls the agent made; structured ones where the domain does not say."""
    count = domain.count_calls if isinstance(domain, CountsCalls) else _structured
    return sum(count(message) for message in messages if message["role"] == "assistant")


def _structured(message: Message) -> int:
    return len(message.get("tool_calls", ()))
