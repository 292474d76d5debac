"""The calls of a transcript and their answers as data, beside the agent's text.

A message of the agent keeps its text, word for word, and names the calls in it: `tool_calls` in
OpenAI's form, each with its place in the text (`span`, in characters) and whether it can be read
(`well_formed`). A message that answers a call has its id (`tool_call_id`). The `role` stays as the
agent saw it. No chat template sees these fields, and pi_env's prompts do not either.

Answers belong to the calls before them in the order in which `ReadsCalls` gives them. Two things
follow where a domain does not say how its agent writes calls, or in what role it answers them:

- a tool's answer to a text without a known call shows that the text was one: the call is then the
  whole text, and `well_formed` is null, because nobody read it. A step that failed shows nothing;
- a user's message that comes where a call waits, and no tool speaks, is its answer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from genenv_core.domains.protocol import Domain
from genenv_core.domains.steps import FAILURES, error_line, storable
from genenv_core.domains.tool_calls import Reader, SaidCall, calls_said, reader_of
from genenv_core.types import Cause, FinishReason, JsonObject, Message, Rollout


def with_calls_of(rollout: Rollout, domain: Domain) -> Rollout:
    """Return a finished attempt whose messages name their calls.

    Where the domain's `read_calls` fails, the attempt ends in an error.
    """
    try:
        messages = with_calls(rollout.messages, reader_of(domain))
    except FAILURES as error:
        why = rollout.error or f"domain {domain.name}: read_calls failed: {error_line(error)}"
        cause = rollout.cause or Cause.ENVIRONMENT
        return replace(rollout, finish_reason=FinishReason.ERROR, error=why, cause=cause)
    return replace(rollout, messages=tuple(messages))


def with_calls(
    messages: Sequence[Message], read: Reader = calls_said, *, infer: bool = True
) -> list[Message]:
    """Return a transcript that names its calls; one that does so already stays as it is.

    Calls that a message carries outside of its text, as recorded conversations do, stay as they
    are.

    Args:
        messages: the transcript.
        read: returns the calls in a text of the agent.
        infer: whether answers show calls, as the module says.
    """
    if any(call for message in messages for call in said_calls(message)):
        return list(messages)
    found: list[Message] = []
    start = 0
    for place in [i for i, m in enumerate(messages) if m["role"] == "assistant"] + [len(messages)]:
        found += _exchange(messages[start:place], start, read, infer)
        start = place
    return found


def said_calls(message: Message) -> list[JsonObject]:
    """Return the calls in the text of a message of a transcript that names them."""
    return [call for call in message.get("tool_calls", ()) if "span" in call]


def as_said(messages: Sequence[Message]) -> list[Message]:
    """Return a transcript without the additions of `with_calls`: as domain and agent wrote it."""
    ids = {call["id"] for message in messages for call in said_calls(message)}
    found: list[Message] = []
    for message in messages:
        plain = message.copy()
        if said_calls(message):
            del plain["tool_calls"]
        if plain.get("tool_call_id") in ids:
            del plain["tool_call_id"]
        found.append(plain)
    return found


def calls_made(messages: Sequence[Message], turns: int) -> int:
    """Return how many calls the agent made in the last `turns` of its messages."""
    own = [message for message in messages if message["role"] == "assistant"]
    return sum(len(said_calls(message)) for message in own[len(own) - turns :])


def _exchange(messages: Sequence[Message], place: int, read: Reader, infer: bool) -> list[Message]:
    """Return one turn of the agent, whose place in the transcript is `place`, and its answers."""
    if not messages or messages[0]["role"] != "assistant" or messages[0].get("tool_calls"):
        return list(messages)
    said, *answers = messages
    # What the agent reads anew is a prompt and answers nothing, whoever says it.
    end = next((i for i, message in enumerate(answers) if message.get("anew")), len(answers))
    text, read_ones = said["content"], read(said["content"])
    calls = [_entry(call, text, f"call_{place}_{i}") for i, call in enumerate(read_ones)]
    role = "tool" if not infer or any(m["role"] == "tool" for m in answers) else "user"
    answering = [i for i, message in enumerate(answers[:end]) if message["role"] == role]
    if infer and not calls and role == "tool":
        answering = [i for i in answering if not answers[i].get("error")]
        shown = [f"call_{place}_{i}" for i in range(len(answering))]
        calls = [_entry(SaidCall(0, len(text)), text, ident, known=False) for ident in shown]
    for call, index in zip(calls, answering, strict=False):
        answer = answers[index].copy()
        answer["tool_call_id"] = call["id"]
        answers[index] = answer
        call["function"]["name"] = call["function"]["name"] or answer.get("name", "")
    spoken = said.copy()
    if calls:
        spoken["tool_calls"] = calls
    return [spoken, *answers]


def _entry(call: SaidCall, text: str, ident: str, *, known: bool = True) -> JsonObject:
    """Return a call in OpenAI's form; for an unreadable call, its text is the arguments.

    `known` says whether somebody tried to read it.
    """
    unread = call.arguments is None
    arguments = text[call.start : call.end] if unread else _json(call.arguments)
    return {
        "id": ident,
        "type": "function",
        "function": {"name": storable(call.name), "arguments": arguments},
        "span": [call.start, call.end],
        "well_formed": not unread if known else None,
    }


def _json(arguments: JsonObject | None) -> str:
    return storable(json.dumps(arguments, ensure_ascii=False))
