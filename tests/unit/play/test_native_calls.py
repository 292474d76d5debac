"""Calls in the formats of several model families become those that domains read."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trl.chat_template_utils as known

from genenv_core.domains.tool_calls import MARKS, said
from genenv_core.play.call_formats import GPT_OSS, LLAMA, MISTRAL_LIST, MISTRAL_NAMED
from genenv_core.play.native_calls import (
    TRIAL_TOOLS,
    TRIALS,
    _known_to_trl,
    native_format,
    read_turn,
    rewritten,
    written_turn,
)
from genenv_core.play.template.bootstrap import CHAT_TEMPLATE
from genenv_core.types import Call, Said
from tests.mutations import mutation
from tests.unit.builders_engine import tiny_tokenizer

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
    "return text[:begin] + between_marks(text[begin:])", "return text",
)  # fmt: skip
@pytest.mark.parametrize(
    "text",
    [
        "",
        "so",
        '[TOOL_CALLS][{"name": "f", "argu',
        "[TOOL_CALLS]" + "[" * 100_000,
        "[TOOL_CALLS][1]",
        '[TOOL_CALLS][{"name": "f", "arguments": 1}]',
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


@mutation(
    "a tiny model's engine loads TRL for nothing", "genenv_core/play/native_calls.py",
    '    if "tool" not in chat:\n        return None\n', "",
)  # fmt: skip
def test_a_template_without_tools_is_judged_without_loading_trl(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "trl.chat_template_utils", None)
    assert native_format(SimpleNamespace(chat_template=CHAT_TEMPLATE)) is None


@mutation(
    "templates that TRL knows count as those without tools", "genenv_core/play/native_calls.py",
    '"tool" not in chat', '"tools" in chat',
)  # fmt: skip
def test_every_template_that_trl_knows_is_read_as_trl_reads_it() -> None:
    for name, chat in vars(known).items():
        holder = SimpleNamespace(chat_template=chat)
        with contextlib.suppress(ValueError):
            known.add_response_schema(cast(Any, holder))
        if template := getattr(holder, "response_template", None):
            assert _known_to_trl(chat) == template, name


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


TEMPLATES = Path(known.__file__).parent / "chat_templates"

FENCE = "\n```<｜tool▁call▁end｜>"
_XML, _QUOTES = frozenset({"</parameter>"}), frozenset({"it's"})
READ = {
    **dict.fromkeys(["qwen2_5", "qwen3", "qwen3_instruct_2507", "qwen3_vl"], frozenset[str]()),
    **dict.fromkeys(["llama3_1", "llama3_2", "gptoss"], frozenset[str]()),
    **dict.fromkeys(["deepseekv3", "muse_glimmer"], frozenset[str]()),
    **dict.fromkeys(["qwen3_5_nothink", "qwen3_5_think", "qwen3_6", "qwen3_8"], _XML),
    **dict.fromkeys(["nemotron_3_nano", "nemotron_3_super", "nemotron_3_ultra"], _XML),
    "nemotron_3_5_lightning": _XML,
    "glm4moe": frozenset({"</arg_value>"}),
    **dict.fromkeys(["gemma4", "gemma4_v2", "gemma4_v3", "gemma4_v4"], frozenset({'<|"|>'})),
    **dict.fromkeys(["gemma4_v5", "diffusion_gemma"], frozenset({'<|"|>'})),
    **dict.fromkeys(["lfm2_2_5", "lfm2_2_5_v2"], _QUOTES),
    **dict.fromkeys(["lfm2_2_5_vl", "lfm2_v2"], _QUOTES | {'"x" \\ ', "a\nb", FENCE}),
}
"""Templates that TRL has and that write calls, with the texts that their own format cannot hold."""

ONE_A_TURN = {"llama3_1", "llama3_2", "gptoss"}

TEXTS = [
    *MARKS, '"x" \\ ', "it's", "a\nb", "} ; {", "}<|eot_id|>", "[TOOL_CALLS]", "<|im_end|>",
    "</parameter>", "</arg_value>", "</function>", '<|"|>', "<tool_call|>", "<|call|>", "1,2)]",
    FENCE, "é\U0001f600",
]  # fmt: skip


def tokenizer_of(name: str) -> Any:
    tokenizer = tiny_tokenizer((TEMPLATES / f"{name}.jinja").read_text("utf-8"))
    tokenizer.bos_token = "<s>"
    return tokenizer


NATIVE = "genenv_core/play/native_calls.py"


def read_back(tokenizer: Any, calls: tuple[Call, ...]) -> tuple[Call, ...] | None:
    """Return the calls read in what the chat template writes for some; None where it is nothing."""
    turn = written_turn(tokenizer, calls, TRIAL_TOOLS)
    return None if turn is None else read_turn(turn, native_format(tokenizer), TRIAL_TOOLS)


@mutation(
    "marks alone choose the format", NATIVE, "        if equal > most:\n", "        if False:\n",
)  # fmt: skip
@mutation(
    "a mark in a string ends a native call", "genenv_core/play/quoted_marks.py",
    "    if not places:\n", "    if True:\n",
)  # fmt: skip
@pytest.mark.parametrize("name", sorted(READ))
def test_what_a_template_writes_is_read_back(name: str) -> None:
    """Without arguments, with texts, and with every mark in a text."""
    tokenizer = tokenizer_of(name)
    for calls in TRIALS:
        found = read_back(tokenizer, calls)
        assert found == (None if len(calls) > 1 and name in ONE_A_TURN else calls)
    native = native_format(tokenizer)
    unread = set[str]()
    for text in TEXTS:
        calls = (Call("look_up", {"place": f"a {text} b", "days": 3}),)
        turn = written_turn(tokenizer, calls, TRIAL_TOOLS)
        assert turn is not None
        if read_turn(turn, native, TRIAL_TOOLS) != calls:
            unread.add(text)
    assert unread == READ[name]


@pytest.mark.parametrize(
    "name",
    sorted(
        path.stem
        for path in TEMPLATES.glob("*.jinja")
        if path.stem not in READ and not path.stem.endswith("_training")
    ),
)
def test_a_template_that_writes_no_call_is_known_as_one(name: str) -> None:
    assert read_back(tokenizer_of(name), TRIALS[0]) is None


def test_blanks_around_an_argument_stay() -> None:
    calls = (Call("look_up", {"place": "\n x\n\n", "days": 3}),)
    for name in ("qwen3_5_think", "glm4moe", "muse_glimmer", "llama3_1"):
        assert read_back(tokenizer_of(name), calls) == calls


def test_calls_of_gpt_oss_are_read_on_either_side_of_the_channel() -> None:
    text = (
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary "
        'to=functions.go <|constrain|>json<|message|>{"a": 1}<|call|>'
    )
    assert said(rewritten(text, GPT_OSS)) == Said("", (Call("go", {"a": 1}),), ())
    assert rewritten("<|channel|>final<|message|>so<|return|>", GPT_OSS) == "so"


@pytest.mark.parametrize(
    ("template", "form"),
    [
        (LLAMA, '{{"name": "go", "parameters": {0}}}'),
        (MISTRAL_NAMED, "[TOOL_CALLS]go[ARGS]{0}"),
        (MISTRAL_LIST, '[TOOL_CALLS][{{"name": "go", "arguments": {0}}}]'),
        (GPT_OSS, "to=functions.go<|channel|>commentary json<|message|>{0}<|call|>"),
    ],
)
@pytest.mark.parametrize("arguments", ["{}", "null", '""', '"{}"', '"null"', ""])
def test_each_spelling_of_no_arguments_in_a_native_call(
    template: Any, form: str, arguments: str
) -> None:
    found = said(rewritten(form.format(arguments), template))
    if arguments or template in (MISTRAL_NAMED, GPT_OSS):
        assert found.calls == (Call("go", {}),)


@mutation(
    "calls in a thought that the template opened are made", NATIVE,
    "            safe[begin:], dict(template)", "            safe, dict(template)",
)  # fmt: skip
def test_a_native_call_in_a_thought_is_none() -> None:
    call = '[TOOL_CALLS]go[ARGS]{"a": "</think>"}'
    maybe = "[TOOL_CALLS]go[ARGS]{}"
    for thought in (f"<think>maybe {maybe}</think>", f"maybe {maybe}</think>"):
        found = rewritten(thought + call, MISTRAL_NAMED)
        assert found.startswith(thought)
        assert said(found) == Said("", (Call("go", {"a": "</think>"}),), ())
