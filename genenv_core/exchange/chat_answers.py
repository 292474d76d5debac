"""Answers of chat endpoints, in the forms in which servers really write them.

All of them follow OpenAI's chat completions, and each departs in something: its words for how an
answer ended, content in parts, arguments that are an object, counts that are null, errors under
the status 200. `read_answer` ignores what does not matter for the answer. An error becomes an
`EndpointFault` with the status that it should have had. A body with neither raises ValueError.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from genenv_core.domains.steps import storable
from genenv_core.errors import one_line
from genenv_core.types import FinishReason, JsonObject

CUT_OFF = frozenset({"length", "max_tokens", "max_length", "model_length", "token_limit"})
"""Words of servers for an answer that reached its bound of tokens."""

WITHHELD = frozenset(
    [
        "content_filter",
        "content_filtered",
        "guardrail_intervened",
        "prohibited_content",
        "blocklist",
        "recitation",
        "refusal",
        "safety",
        "sensitive",
        "spii",
    ]
)
"""Words for an answer that a filter of the endpoint kept back or cut."""

BROKE_OFF = frozenset(
    [
        "abort",
        "aborted",
        "cancelled",
        "canceled",
        "error",
        "insufficient_system_resource",
        "network_error",
        "overloaded",
        "timeout",
    ]
)
"""Words for an answer that the server did not finish."""

ENDED = frozenset(
    [
        "stop",
        "eos",
        "eos_token",
        "end_turn",
        "stop_sequence",
        "stop_token",
        "complete",
        "completed",
        "function_call",
        "tool_call",
        "tool_calls",
        "tool_use",
        "malformed_function_call",
    ]
)
"""Words for an end of the model's own. Any other word ends an answer too, if there is one."""

UNKNOWN_STATUS = 500

_STATUS_OF = {
    "authentic": 401,
    "unauthor": 401,
    "api_key": 401,
    "permission": 403,
    "quota": 402,
    "payment": 402,
    "rate_limit": 429,
    "ratelimit": 429,
    "resource_exhausted": 429,
    "overload": 503,
    "unavailable": 503,
    "timeout": 408,
    "not_found": 404,
    "notfound": 404,
    "context": 400,
    "invalid": 400,
    "bad_request": 400,
    "badrequest": 400,
    "validation": 400,
}
"""Word -> status of an error that names a kind and no status: the first word in the kind counts."""

_STATUS_FIELDS = ("code", "status", "status_code", "statusCode", "http_status")
_KIND_FIELDS = ("type", "code", "status", "error_type", "name")
_MESSAGE_FIELDS = ("message", "error", "detail", "msg", "errors")
_THOUGHTS = ("thinking", "redacted_thinking", "reasoning")

_TOO_LONG = re.compile(
    r"context[ _-]?(length|size|window)|prompt (is )?too long|input is too long|too many tokens"
    r"|input token count|max_new_tokens. must be <=|.inputs. must have less than"
    r"|reduce the length of the (messages|prompt|input)",
    re.IGNORECASE,
)
"""How servers say that a prompt does not fit into the model's context. OpenAI, vLLM, SGLang,
Mistral, llama.cpp and LiteLLM name the context; Anthropic, Bedrock, Cohere, Gemini, TGI and Groq
have the other words."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What an endpoint's model answered.

    `calls` are `{"name": ..., "arguments": ...}`, arguments as they came. `error` says why a text
    is no answer (`finish` is ERROR), else ''. Token counts are 0 where unknown.
    """

    text: str
    calls: Sequence[object]
    finish: FinishReason
    error: str
    prompt_tokens: int
    tokens: int


@dataclass(frozen=True, slots=True)
class EndpointFault:
    """An endpoint's error; `inside`: of an answer with status 200, which named `status` itself."""

    status: int
    message: str
    inside: bool = False

    @property
    def too_long(self) -> bool:
        """Return whether it says that the prompt and what may follow exceed the context."""
        return self.status in (400, 413, 422, 500) and bool(_TOO_LONG.search(self.message))

    @property
    def answers(self) -> str:
        """Return what the endpoint answers, in words for an error."""
        return f"200 with an error ({self.status})" if self.inside else str(self.status)


def read_answer(status: int, data: bytes) -> Reply | EndpointFault:
    """Return what an endpoint answered; raises ValueError, with the place, for what is neither."""
    good = 200 <= status < 300
    try:
        body = _body(data)
        if not good:
            return EndpointFault(status, _shown(_message(body)))
        return _fault(body) or _reply(body)
    except (ValueError, RecursionError) as error:
        if good:
            raise ValueError(_shown(str(error))) from None
    return EndpointFault(status, _shown(data.decode(errors="replace")))


def _body(data: bytes) -> JsonObject:
    text = data.decode(json.detect_encoding(data), errors="replace").strip()
    if text.startswith(("data:", "event:")):
        raise ValueError("it is a stream: remove `stream` from the fields of the request")
    try:
        value: Any = json.loads(text)
    except ValueError as error:
        raise ValueError(f"no JSON, {error}: {text[:80]}" if text else "it is empty") from None
    if isinstance(value, list) and len(cast(list[Any], value)) == 1:
        value = cast(list[Any], value)[0]  # so Gemini's errors come
    if not isinstance(value, dict):
        kind = type(cast(object, value)).__name__
        raise ValueError(f"the whole: {kind}, expected an object")
    return cast(JsonObject, value)


def _fault(body: JsonObject) -> EndpointFault | None:
    """Return the error in an answer with the status 200, of the whole or of its choice."""
    choice = _first(body)
    for holder in (body, choice):
        if error := holder.get("error"):
            inner = cast(JsonObject, error) if isinstance(error, dict) else {}
            message = _message(holder if error is True else error)
            return EndpointFault(_status(inner, holder), _shown(message), inside=True)
    if not choice and (body.get("object") == "error" or set(_MESSAGE_FIELDS) & set(body)):
        return EndpointFault(_status(body), _shown(_message(body)), inside=True)
    word = _word(choice)
    return EndpointFault(503, f"ended with {word}", inside=True) if word in BROKE_OFF else None


def _first(body: JsonObject) -> JsonObject:
    choices = body.get("choices")
    first: Any = cast(list[Any], choices)[0] if isinstance(choices, list) and choices else None
    return cast(JsonObject, first) if isinstance(first, dict) else {}


def _status(*holders: Mapping[str, Any]) -> int:
    for holder in holders:
        for name in _STATUS_FIELDS:
            text = str(holder.get(name))
            if re.fullmatch("[45][0-9][0-9]", text):
                return int(text)
    kind = " ".join(str(holder.get(name, "")) for holder in holders for name in _KIND_FIELDS)
    return next((s for word, s in _STATUS_OF.items() if word in kind.lower()), UNKNOWN_STATUS)


def _message(value: Any) -> str:
    if isinstance(value, dict):
        found = cast(JsonObject, value)
        inner = next((found[name] for name in _MESSAGE_FIELDS if found.get(name)), None)
        return json.dumps(found) if inner is None or inner is True else _message(inner)
    if isinstance(value, list) and value:
        return _message(cast(list[Any], value)[0])
    return value if isinstance(value, str) else json.dumps(value)


def _shown(text: str) -> str:
    return storable(one_line(text))


def _reply(body: JsonObject) -> Reply:
    choice = _first(body)
    if not choice:
        raise ValueError("choices: there is none")
    message: Any = choice.get("message")
    if message is None and isinstance(choice.get("text"), str):
        message = {"content": choice["text"]}
    if not isinstance(message, dict):
        raise ValueError("choices.0.message: there is none")
    text, calls = _content(cast(JsonObject, message))
    finish, error = _finish(_word(choice), bool(text or calls))
    counts: Any = body.get("usage")
    usage = cast(JsonObject, counts) if isinstance(counts, dict) else {}
    return Reply(
        storable(text),
        calls,
        finish,
        error,
        _count(usage, "prompt_tokens", "input_tokens"),
        _count(usage, "completion_tokens", "output_tokens"),
    )


def _word(choice: JsonObject) -> str:
    word = choice.get("finish_reason")
    return storable(word).lower() if isinstance(word, str) else ""


def _finish(word: str, answered: bool) -> tuple[FinishReason, str]:
    if word in CUT_OFF:
        return FinishReason.LENGTH, ""
    if word in WITHHELD:
        return FinishReason.ERROR, f"ended with {word}"
    if answered or word in ENDED:
        return FinishReason.STOP, ""
    raise ValueError(f"choices.0: no content, and finish_reason is {word!r}")


def _content(message: JsonObject) -> tuple[str, list[object]]:
    """Return text and calls of a message; thoughts in fields or parts of their own are neither."""
    content: Any = message.get("content")
    calls: list[object] = []
    if isinstance(content, list | dict):
        given = cast(Any, content)
        parts: list[Any] = list(given) if isinstance(content, list) else [given]
        text = "".join(_parts(parts, calls))
    elif content is None or isinstance(content, str):
        text = content or ""
    else:
        kind = type(content).__name__
        raise ValueError(f"choices.0.message.content: {kind}, expected a text")
    calls.extend(_calls(message))
    refusal = message.get("refusal")
    if not text and not calls and isinstance(refusal, str):
        text = refusal  # the model's own words
    return text.removeprefix("\ufeff"), calls


def _parts(parts: Sequence[Any], calls: list[object]) -> Iterator[str]:
    """Yield the texts of content in parts, and add its calls."""
    strange = ""
    for part in parts:
        if isinstance(part, str):
            yield part
            continue
        record = cast(JsonObject, part) if isinstance(part, dict) else {}
        kind = record.get("type")
        text = record.get("text", record.get("refusal"))
        if kind in ("tool_use", "tool_call", "function_call"):
            given = record.get("input", record.get("arguments"))
            calls.append({"name": record.get("name"), "arguments": given})
        elif kind not in _THOUGHTS and isinstance(text, str):
            yield text
        elif kind not in _THOUGHTS:
            strange = f"a part of type {kind!r}"
    if strange and len(parts) == 1:
        raise ValueError(f"choices.0.message.content: {strange}, expected a text")


def _calls(message: JsonObject) -> Iterator[object]:
    """Yield the calls of a message, those of OpenAI's older field `function_call` too."""
    given: Any = message.get("tool_calls") or message.get("function_call") or []
    listed = cast(list[Any], given) if isinstance(given, list) else [given]
    for call in listed:
        inner: Any = (
            cast(JsonObject, call).get("function", call) if isinstance(call, dict) else call
        )
        if isinstance(inner, dict):
            record = cast(JsonObject, inner)
            if record.get("name") or record.get("arguments"):
                yield {"name": record.get("name"), "arguments": record.get("arguments")}
        elif call is not None:
            yield inner


def _count(usage: JsonObject, *names: str) -> int:
    """Return a count of tokens under the first of its names that has one, 0 for none."""
    for name in names:
        value = usage.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**53:
            return int(value)
    return 0
