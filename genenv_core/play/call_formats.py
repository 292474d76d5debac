"""How families of models write tool calls, as response templates of transformers.

Where none of these formats fits, genenv takes TRL's template for a whole chat template. A format
stands here where TRL lacks it, or where TRL's reads less than the models write.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Template = Mapping[str, Any]

_TEXT = {"content": "text"}
_CALL = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}
_WHOLE = {"defaults": {"role": "assistant"}, "start_anchor": "[never in a prompt]"}
"""The parser reads only what the model wrote, so nothing in a prompt may match."""

_JSON = {"content": "json", "content_args": {"allow_non_json": True}, "transform": _CALL}
"""Arguments as JSON; any other text stays text, and the call is malformed."""


def _template(calls: Mapping[str, Any], content: Mapping[str, Any] = _TEXT) -> Template:
    return _WHOLE | {"fields": {"tool_calls": {"repeats": True, **calls}, "content": content}}


MISTRAL_LIST = _template(
    {"open_pattern": r"\[TOOL_CALLS\]\s*(?=\[)", "content": "json", "repeats": False}
)
"""`[TOOL_CALLS][{"name": ..., "arguments": {...}}, ...]`, up to Mistral's tokenizer v7."""

MISTRAL_NAMED = _template(
    {
        "open_pattern": r"\[TOOL_CALLS\]\s*(?P<name>[^\[\]{}\s]+)"
        r"(?:\[CALL_ID\]\w+)?(?:\[ARGS\]\s*|\s*(?=\{))",
        "close_pattern": r"(?=\[TOOL_CALLS\])",
        **_JSON,
    }
)
"""`[TOOL_CALLS]name[ARGS]{...}`, once for each call, from v11 on."""

LLAMA = _template(
    {
        "open_pattern": r'(?:<\|python_tag\|>)?\{\s*(?:"type":\s*"function",\s*)?"name":\s*'
        r'"(?P<name>[^"]+)",\s*"(?:parameters|arguments)":\s*',
        "close_pattern": r"\}\s*(?:;\s*(?=\{)|(?=<\|)|$)",
        **_JSON,
    }
)
"""`{"name": ..., "parameters": {...}}`, several with `;` between, as Llama 3.1 and later."""

GLM = _template(
    {
        "open_pattern": r"<tool_call>\s*(?P<name>[^\s<{]+)\s*",
        "close_pattern": r"</tool_call>\s*",
        "content": "xml-inline",
        "content_args": {
            "tag_pattern": r"<arg_key>(?P<key>.+?)</arg_key>\s*"
            r"<arg_value>(?P<value>.*?)</arg_value>",
        },
        "transform": _CALL,
    },
    {"close_pattern": r"<\|(?:user|observation)\|>\s*|$", "content": "text"},
)
"""`<tool_call>name<arg_key>...</arg_key><arg_value>...</arg_value></tool_call>`, GLM 4.5 to 4.7."""

DEEPSEEK = _template(
    {
        "open_pattern": "(?:<｜tool▁calls▁begin｜>)?\\s*<｜tool▁call▁begin｜>function<｜tool▁sep｜>"
        r"(?P<name>\S+)\s*```json\n",
        "close_pattern": r"\n```\s*<｜tool▁call▁end｜>\s*(?:<｜tool▁calls▁end｜>)?",
        **_JSON,
    }
)
"""JSON in a fence behind `<｜tool▁sep｜>name`, as DeepSeek V3 and R1."""

ATEM = _template(
    {
        "open_pattern": r"(?:to=\S+<\|message\|>\s*)?(?:<atem:function_calls>\s*)?"
        r'<atem:invoke name="(?P<name>[^"]+)">',
        "close_pattern": r"</atem:invoke>\s*(?:</atem:function_calls>)?",
        "content": "xml-inline",
        "content_args": {
            "tag_pattern": r'<atem:parameter name="(?P<key>[^"]+)">(?P<value>.*?)</atem:parameter>'
        },
        "transform": _CALL,
    }
)
"""`<atem:invoke name="..."><atem:parameter name="...">...</atem:parameter></atem:invoke>`."""

QWEN_XML = _template(
    {
        "open_pattern": r"<tool_call>\s*<function=(?P<name>[^\n>]+)>",
        "close_pattern": r"</function>\s*</tool_call>\s*",
        "content": "xml-inline",
        "content_args": {
            "tag_pattern": r"<parameter=(?P<key>[^>\n]+)>\n?(?P<value>.*?)\n?</parameter>"
        },
        "transform": _CALL,
    }
)
"""`<tool_call><function=name><parameter=key>...`, as Qwen3-Coder, Qwen3.5 and Nemotron 3."""

GPT_OSS = _template(
    {
        "open_pattern": r"(?:<\|start\|>assistant)?\s*(?:<\|channel\|>commentary)?\s*"
        r"to=functions\.(?P<name>[^\s<]+)\s*(?:<\|channel\|>commentary)?\s*"
        r"(?:<\|constrain\|>)?(?:json)?\s*<\|message\|>",
        "close_pattern": r"<\|call\|>\s*",
        **_JSON,
    },
    {
        "open_pattern": r"(?:<\|start\|>assistant)?<\|channel\|>(?:final|commentary)<\|message\|>",
        "close_pattern": r"<\|(?:return|end)\|>\s*",
        "repeats": True,
        "join": "\n",
        "content": "text",
    },
)
"""JSON behind `to=functions.name`, before or after the channel, as gpt-oss. Text in channels other
than those for answers, such as thoughts, is no part of the answer."""

BY_MARK: tuple[tuple[str, Template], ...] = (
    ("[ARGS]", MISTRAL_NAMED),
    ("[TOOL_CALLS]", MISTRAL_LIST),
    ("<|python_tag|>", LLAMA),
    ('"parameters": dictionary of argument name', LLAMA),
    ("<arg_key>", GLM),
    ("<function=", QWEN_XML),
    ("<|channel|>", GPT_OSS),
    ("<｜tool▁sep｜>", DEEPSEEK),
    ("<atem:invoke", ATEM),
)
"""Formats by a mark in the chat template; the first mark found counts."""
