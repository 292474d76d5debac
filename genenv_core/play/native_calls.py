"""Tool calls in a model's own format, rewritten to the one that domains read.

Domains read `<tool_call>` (`genenv_core.domains.tool_calls`), as Hermes and Qwen models write it.
Other models' texts are read by transformers' response templates: the tokenizer's own, else that of
those below whose mark the chat template has, else the one that TRL knows for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from genenv_core.domains.tool_calls import CLOSE, MARKS, OPEN, canonical
from genenv_core.types import JsonObject

Template = Mapping[str, Any]

JSON_MARK, XML_MARK = OPEN, "<function="
"""With the second one, `<tool_call>` holds XML and not JSON, as in Qwen3-Coder."""

_TEXT = {"content": "text"}
_CALL = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}
_WHOLE = {"defaults": {"role": "assistant"}, "start_anchor": "[never in a prompt]"}
"""Only what the model wrote is read, so there is nothing to look for in a prompt."""

MISTRAL_LIST: Template = _WHOLE | {
    "fields": {
        "tool_calls": {"open_pattern": r"\[TOOL_CALLS\]\s*(?=\[)", "content": "json"},
        "content": _TEXT,
    },
}
"""`[TOOL_CALLS][{"name": ..., "arguments": {...}}, ...]`, up to Mistral's tokenizer v7."""

MISTRAL_NAMED: Template = _WHOLE | {
    "fields": {
        "tool_calls": {
            "open_pattern": r"\[TOOL_CALLS\]\s*(?P<name>[^\[\]{}\s]+)"
            r"(?:\[CALL_ID\]\w+)?(?:\[ARGS\])?\s*(?=\{)",
            "close_pattern": r"(?=\[TOOL_CALLS\])",
            "repeats": True,
            "content": "json",
            "transform": _CALL,
        },
        "content": _TEXT,
    },
}
"""`[TOOL_CALLS]name[ARGS]{...}`, once for each call, from v11 on."""

LLAMA: Template = _WHOLE | {
    "fields": {
        "tool_calls": {
            "open_pattern": r'(?:<\|python_tag\|>)?\{\s*(?:"type":\s*"function",\s*)?"name":\s*'
            r'"(?P<name>[^"]+)",\s*"(?:parameters|arguments)":\s*',
            "close_pattern": r"\}\s*(?:;\s*(?=\{)|(?=<\|)|$)",
            "repeats": True,
            "content": "json",
            "transform": _CALL,
        },
        "content": _TEXT,
    },
}
"""`{"name": ..., "parameters": {...}}`, several with `;` between, as Llama 3.1 and later."""

_BY_MARK: tuple[tuple[str, Template], ...] = (
    ("[ARGS]", MISTRAL_NAMED),
    ("[TOOL_CALLS]", MISTRAL_LIST),
    ("<|python_tag|>", LLAMA),
    ('"parameters": dictionary of argument name', LLAMA),
)
"""Marks of chat templates, the first that is found counts."""


@dataclass(frozen=True, slots=True)
class NativeFormat:
    """How a model writes calls; `ended`: its template reads the token that ends a turn too."""

    template: Template
    ended: bool


def native_format(tokenizer: Any) -> NativeFormat | None:
    """Return how a tokenizer's model writes calls; None where it is as domains read them."""
    own = getattr(tokenizer, "response_template", None)
    chat = str(tokenizer.chat_template)
    if JSON_MARK in chat and XML_MARK not in chat:
        return None
    if not own:
        for mark, template in _BY_MARK:
            if mark in chat:
                return NativeFormat(template, ended=False)
    known = own or _known_to_trl(chat)
    return NativeFormat(known, ended=True) if known else None


def hidden_tokens(tokenizer: Any) -> Set[int] | None:
    """Return the special tokens that are no part of a turn's text.

    None where these are all special tokens, as the tokenizer's own decoding has it. Some tokenizers
    call the marks special that a text's calls and thoughts are found by.
    """
    special = {int(token) for token in tokenizer.all_special_ids}
    special |= {index for index, token in tokenizer.added_tokens_decoder.items() if token.special}
    names = {token: str(tokenizer.convert_ids_to_tokens(token)) for token in special}
    marks = {token for token, name in names.items() if any(mark in name for mark in MARKS)}
    return special - marks if marks else None


def rewritten(text: str, template: Template, tools: Sequence[JsonObject] = ()) -> str:
    """Return a turn's text with its calls as domains read them.

    `tools` have the types of arguments, for formats that write all of them as text. What the
    template cannot read is one malformed call.
    """
    from transformers.utils import chat_parsing

    parsing: Any = chat_parsing  # half untyped
    try:
        message: JsonObject = parsing.parse_response(
            text, dict(template), prefix="", tools=list(tools)
        )
    except Exception:  # whatever parsers and regular expressions raise on a model's text
        return f"{OPEN}{text}{CLOSE}"
    return canonical(str(message.get("content") or ""), message.get("tool_calls") or [])


def _known_to_trl(chat: str) -> Template | None:
    from trl.chat_template_utils import add_response_schema

    add: Any = add_response_schema
    holder = SimpleNamespace(chat_template=chat)
    with contextlib.suppress(ValueError):  # it knows templates by their whole text
        add(holder)
    return getattr(holder, "response_template", None)
