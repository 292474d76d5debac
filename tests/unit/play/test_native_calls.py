"""Calls in the formats of several model families become those that domains read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trl.chat_template_utils as known

from genenv_core.benchmarks.protocol import Call
from genenv_core.domains.tool_calls import said
from genenv_core.play.native_calls import (
    LLAMA,
    MISTRAL_LIST,
    MISTRAL_NAMED,
    native_format,
    rewritten,
)
from tests.mutations import mutation

ONE = Call("find.it", {"a": {"b": "} [x]; \u00e9"}, "n": 2})
TWO = Call("go", {})
ARGUMENTS = '{"a": {"b": "} [x]; \u00e9"}, "n": 2}'


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (
            MISTRAL_LIST,
            f'[TOOL_CALLS] [{{"name": "find.it", "arguments": {ARGUMENTS}}}, '
            '{"name": "go", "arguments": {}}]',
        ),
        (MISTRAL_NAMED, f"[TOOL_CALLS]find.it[ARGS]{ARGUMENTS}[TOOL_CALLS]go[ARGS]{{}}"),
        (MISTRAL_NAMED, f"[TOOL_CALLS]find.it{ARGUMENTS}[TOOL_CALLS]go{{}}"),
        (
            LLAMA,
            f'<|python_tag|>{{"name": "find.it", "parameters": {ARGUMENTS}}}; '
            '{"name": "go", "parameters": {}}',
        ),
        (
            LLAMA,
            f'{{"type": "function", "name": "find.it", "parameters": {ARGUMENTS}}}; '
            '{"name": "go", "arguments": {}}',
        ),
    ],
)
def test_each_format_says_the_same_calls(template: Any, text: str) -> None:
    found = said(rewritten(text, template))
    assert (found.calls, found.malformed, found.text) == ((ONE, TWO), (), "")


@pytest.mark.parametrize("template", [MISTRAL_LIST, MISTRAL_NAMED, LLAMA])
def test_text_stays_and_calls_come_after_it(template: Any) -> None:
    assert rewritten('I think {"a": 1} is it.', template) == 'I think {"a": 1} is it.'


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (MISTRAL_LIST, '[TOOL_CALLS][{"name": "f", "argu'),
        (MISTRAL_LIST, '[TOOL_CALLS][{"name": 3, "arguments": {}}]'),
        (MISTRAL_NAMED, '[TOOL_CALLS]f[ARGS]{"a": '),
        (LLAMA, '{"name": "f", "parameters": {"a": {"b": 1'),
        (LLAMA, '{"name": "f", "parameters": [1]}'),
    ],
)
def test_a_call_that_cannot_be_read_is_malformed(template: Any, text: str) -> None:
    found = said(rewritten(text, template))
    assert (found.calls, len(found.malformed)) == ((), 1)


@mutation(
    "a native text that cannot be read is a turn without calls", "genenv_core/play/native_calls.py",
    'return f"{OPEN}{text}{CLOSE}"', "return text",
)  # fmt: skip
@pytest.mark.parametrize(
    "text",
    [
        "",
        "so",
        '[TOOL_CALLS][{"name": "f", "argu',
        "[TOOL_CALLS]" + "[" * 100_000,
        "[TOOL_CALLS][1]",
        '[TOOL_CALLS][{"name": "f"}]',
        '[TOOL_CALLS][{"name": "f", "arguments": [1]}]',
        "[TOOL_CALLS][\ud800]",
    ],
    ids=range(8),
)
def test_a_text_that_cannot_be_read_is_a_malformed_call(text: str) -> None:
    """What has no mark of a call is text; else one call was meant, and none is made."""
    found = said(rewritten(text, MISTRAL_LIST))
    assert found.calls == () and len(found.malformed) == ("[TOOL_CALLS]" in text)
    assert found.text == ("" if found.malformed else text)


@pytest.mark.parametrize(
    "chat", [known.qwen2_5_chat_template, known.qwen3_chat_template, "no marks at all"]
)
def test_texts_of_hermes_and_qwen_stay_as_they_are(chat: str) -> None:
    assert native_format(SimpleNamespace(chat_template=chat)) is None


@pytest.mark.parametrize(
    ("chat", "template"),
    [
        (known.llama3_1_chat_template, LLAMA),
        (known.llama3_2_chat_template, LLAMA),
        ("... [TOOL_CALLS] ...", MISTRAL_LIST),
        ("... [TOOL_CALLS] ... [ARGS] ...", MISTRAL_NAMED),
    ],
)
def test_the_chat_template_chooses_the_format(chat: str, template: Any) -> None:
    native = native_format(SimpleNamespace(chat_template=chat))
    assert native is not None
    assert (native.template, native.ended) == (template, False)


def test_a_format_of_xml_takes_the_types_from_the_tools() -> None:
    native = native_format(SimpleNamespace(chat_template=known.qwen3_5_think_chat_template))
    assert native is not None
    tool = {
        "type": "function",
        "function": {"name": "f", "parameters": {"properties": {"a": {"type": "integer"}}}},
    }
    text = (
        "<think>\nhm\n</think>\n\nok\n<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n"
        "</function>\n</tool_call><|im_end|>"
    )
    assert said(rewritten(text, native.template, [tool])).calls == (Call("f", {"a": 1}),)


def test_the_tokenizers_own_template_comes_first() -> None:
    own = known.qwen3_5_template
    tokenizer = SimpleNamespace(chat_template="[TOOL_CALLS]", response_template=own)
    native = native_format(tokenizer)
    assert native is not None
    assert (native.template, native.ended) == (own, True)
