"""One attempt as a sample of Inspect's, and the summary of it that a list of samples shows."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, cast

from genenv_core.domains.tool_calls import parsed
from genenv_core.exchange.inspect_logs.archive import to_json
from genenv_core.play.transcript import openai_messages
from genenv_core.types import FinishReason, JsonObject, Message, TaskSource

Row = dict[str, Any]

SHOWN = 1000
"""Characters of a text in a summary; Inspect shortens longer ones itself."""

DEEPEST = 100
"""Levels of arguments that are written as data; Inspect's own models fail far below Python's."""

_STOPPED = {
    FinishReason.STOP.value: "stop",
    FinishReason.LENGTH.value: "max_tokens",
    FinishReason.ERROR.value: "unknown",
}
_MEASURED = TaskSource.BENCHMARK.value
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.\-]{0,119}")
_FACTS = (
    "run_id",
    "epoch",
    "source",
    "mode",
    "task_id",
    "trace_id",
    "group_id",
    "sample_index",
    "policy_version",
    "family",
    "difficulty",
    "n",
    "p_hat",
    "r_env",
    "advantage",
    "agent_updates",
    "benchmark",
    "item",
    "category",
)


def file_safe(text: str) -> str:
    """Return a name without what separates folders or the parts of a log's name.

    Equal texts give equal names, other texts others.
    """
    if _NAME.fullmatch(text):
        return text
    plain = re.sub(r"[^A-Za-z0-9.\-]+", "-", text).strip("-.")[:80]
    return f"{plain or 'id'}-{short_digest(text)[:8]}"


def short_digest(*parts: object) -> str:
    """Return 22 letters and digits that stand for these parts, as Inspect's ids are long."""
    return sha256(json.dumps(parts).encode()).hexdigest()[:22]


def sample_of(row: Row, messages: Sequence[Message], model: str) -> JsonObject:
    """Return an attempt as a sample.

    Args:
        row: a row of the attempts, as `reading` gives it.
        messages: its transcript, which names its calls.
        model: what made it.
    """
    turns = row["turns"]
    places = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    own = places if turns is None else places[len(places) - turns :]
    chat = chat_messages(messages, own, _ident(row), model)
    opening = chat[: own[0]] if own else chat
    usage = _usage(row)
    last = chat[own[-1]] if own else None
    return {
        "id": file_safe(row["item"] if row["source"] == _MEASURED else row["task_id"]),
        "epoch": row["sample_index"] + 1,
        "input": _input(opening),
        "target": row["ground_truth"] or "",
        "messages": chat,
        "output": {
            "model": model,
            "choices": [{"message": last, "stop_reason": _stop_reason(row)}] if last else [],
            "completion": last["content"] if last else "",
            "usage": usage,
        },
        "scores": _scores(row, messages[own[-1]]["content"] if own else ""),
        "metadata": {name: row[name] for name in _FACTS if row.get(name) is not None},
        "model_usage": {model: usage},
        "uuid": _ident(row),
        "turn_count": len(own),
        **({"error": _error(row["error"])} if row["error"] else {}),
    }


def summary_of(sample: JsonObject) -> JsonObject:
    """Return what a list of samples shows of one: no messages, and short texts."""
    given = sample["input"]
    said = given if isinstance(given, str) else _last_said(cast("list[JsonObject]", given))
    scores = {
        name: {key: _short(part) if isinstance(part, str) else part for key, part in score.items()}
        for name, score in sample["scores"].items()
    }
    for score in scores.values():
        if len(to_json(score.get("metadata"))) > SHOWN:
            del score["metadata"]
    return {
        **{name: sample[name] for name in ("id", "epoch", "metadata", "model_usage", "uuid")},
        "input": _short(said),
        "target": _short(sample["target"]),
        "scores": scores,
        "completed": True,
        "message_count": len(sample["messages"]),
        "turn_count": sample["turn_count"],
        **({"error": _short(sample["error"]["message"])} if "error" in sample else {}),
    }


def chat_messages(
    messages: Sequence[Message], own: Sequence[int], ident: str, model: str
) -> list[JsonObject]:
    """Return a transcript that names its calls as Inspect's chat messages, one for one.

    Calls stand beside the text and not in it, as OpenAI-style APIs have them.
    """
    unread = {
        call["id"]
        for message in messages
        for call in message.get("tool_calls", ())
        if call.get("well_formed") is False
    }
    named: dict[str, str] = {}
    found: list[JsonObject] = []
    first = own[0] if own else len(messages)
    for place, message in enumerate(openai_messages(messages)):
        role = message["role"]
        made: JsonObject = {
            "id": f"{ident}-{place}",
            "role": role,
            "content": message["content"] or "",
        }
        if place < first:
            made["source"] = "input"
        elif role == "assistant":
            made |= {"source": "generate", "model": model}
        if calls := message.get("tool_calls"):
            named = {call["id"]: call["function"]["name"] for call in calls}
            made["tool_calls"] = [_call(call, call["id"] in unread) for call in calls]
        if messages[place].get("anew"):
            made["metadata"] = {"anew": True}
        if role == "tool":
            made |= _answer(message, messages[place], named)
        found.append(made)
    return found


def _call(call: JsonObject, unread: bool) -> JsonObject:
    written = call["function"]["arguments"]
    arguments = parsed(written)
    if not isinstance(arguments, dict) or not _is_writable(cast(object, arguments)):
        arguments = {"text": written}
    made: JsonObject = {
        "id": call["id"],
        "function": call["function"]["name"],
        "arguments": arguments,
        "type": "function",
    }
    return made | {"parse_error": "the call could not be read"} if unread else made


def _answer(message: JsonObject, stored: Message, named: dict[str, str]) -> JsonObject:
    ident = message["tool_call_id"]
    made: JsonObject = {"tool_call_id": ident, "function": named.get(ident)}
    if stored.get("error"):
        made["error"] = {"type": "unknown", "message": message["content"]}
    if stored.get("simulated"):
        made["metadata"] = {"simulated": True}
    return made


def _is_writable(value: object, level: int = 0) -> bool:
    """Return whether every reader of JSON gets a value: no NaN, no endless depth."""
    if level > DEEPEST:
        return False
    match value:
        case dict():
            parts: list[object] = list(cast("dict[str, object]", value).values())
        case list():
            parts = cast("list[object]", value)
        case float():
            return math.isfinite(value)
        case _:
            return True
    return all(_is_writable(part, level + 1) for part in parts)


def _scores(row: Row, said: str) -> JsonObject:
    """Return R_agent, and the success where it could be judged."""
    found: JsonObject = {}
    if row["success"] is not None:
        found["success"] = {
            "value": "C" if row["success"] else "I",
            "answer": said,
            "explanation": row["failure"] or "",
        }
        parts = parsed(row["parts"] or "")
        if parts and _is_writable(parts):
            found["success"]["metadata"] = {"parts": parts}
    if row["reward"] is not None:
        found["reward"] = {"value": row["reward"]}
    return found


def _usage(row: Row) -> JsonObject:
    read, wrote = row["prompt_tokens"] or 0, row["response_tokens"] or 0
    return {"input_tokens": read, "output_tokens": wrote, "total_tokens": read + wrote}


def _error(text: str) -> JsonObject:
    return {"message": text, "traceback": "", "traceback_ansi": ""}


def _stop_reason(row: Row) -> str:
    return _STOPPED.get(row["finish_reason"], "stop" if row["finish_reason"] is None else "unknown")


def _ident(row: Row) -> str:
    names = ("run_id", "epoch", "source", "mode", "task_id", "sample_index")
    return short_digest(*(row[name] for name in names))


def _input(opening: list[JsonObject]) -> str | list[JsonObject]:
    """Return what was asked: the text of a single request, else the messages."""
    if len(opening) == 1 and opening[0]["role"] == "user":
        return opening[0]["content"]
    return opening


def _last_said(opening: Sequence[JsonObject]) -> str:
    asked = [message["content"] for message in opening if message["role"] == "user"]
    return asked[-1] if asked else ""


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."
