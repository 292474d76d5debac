"""Chat formats: the text of a template around an agent's tokens; templates that are refused."""

from __future__ import annotations

import inspect
import json
import shutil
from pathlib import Path

import pytest
from tokenizers import AddedToken
from transformers import PreTrainedTokenizerBase
from transformers.utils.chat_template_utils import render_jinja_template

from genenv_core.benchmarks.protocol import Call
from genenv_core.config.sections.models import TEMPLATE_ARGUMENTS
from genenv_core.domains.tool_calls import MARKS, said, written
from genenv_core.errors import ModelError
from genenv_core.play.chat import ChatFormat
from genenv_core.types import Message
from tests.mutations import mutation
from tests.unit.builders_engine import CHATML, END, spell, tiny_tokenizer

END_ID = 1


def chat_of(template: str | None = CHATML) -> ChatFormat:
    return ChatFormat(tiny_tokenizer(template), name="tiny")


def test_completion_and_continuation_spell_the_templates_own_text() -> None:
    chat, tokenizer = chat_of(), tiny_tokenizer()
    after: list[Message] = [{"role": "tool", "content": "ok abba"}]
    start: list[Message] = [{"role": "user", "content": "hi"}]
    spoken: list[Message] = [{"role": "assistant", "content": "abc"}]
    whole = chat.first_prompt([*start, *spoken, *after])
    for completion in (spell("abc"), (*spell("abc"), END_ID)):
        joined = chat.first_prompt(start) + completion + chat.continuation(after, completion)
        assert tokenizer.decode(joined) == tokenizer.decode(whole)
    assert chat.decode((*spell("abc"), END_ID)) == "abc"


def test_a_foreign_stop_token_keeps_the_templates_closing() -> None:
    chat = ChatFormat(tiny_tokenizer(), name="tiny", extra_stop_ids=(0,))
    assert chat.stop_token_ids == (END_ID, 0)
    assert chat.continuation((), (5, 0))[0] == END_ID
    assert chat.continuation((), (5, END_ID))[0] != END_ID


def test_the_templates_closing_token_is_a_stop_token() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.eos_token = "<|pad|>"
    tokenizer.add_special_tokens({"extra_special_tokens": [END, "<|im_start|>"]})
    assert ChatFormat(tokenizer, name="base").stop_token_ids == (0, END_ID)


@mutation(
    "marks that are special tokens are not read", "genenv_core/play/native_calls.py",
    "    return special - marks if marks else None\n", "    return None\n",
)  # fmt: skip
def test_marks_that_are_special_tokens_are_read() -> None:
    """Named by the tokenizer's configuration, or called special by tokenizer.json alone."""
    tokenizer = tiny_tokenizer()
    tokenizer.add_special_tokens(
        {"extra_special_tokens": ["<|im_start|>", "<tool_call>", "<think>"]}
    )
    tokenizer.add_tokens(
        [AddedToken(mark, special=True) for mark in ("</tool_call>", "</think>", "<|own|>")]
    )
    call = written({"name": "count", "arguments": {"n": 1}})
    text = f"<think>a</think>{call}"
    ids = tokenizer(f"{text}<|own|>{END}", add_special_tokens=False)["input_ids"]
    assert {tokenizer.convert_tokens_to_ids(mark) for mark in MARKS} < set(ids)
    found = ChatFormat(tokenizer, name="special").said(ids)
    assert found == text and said(found).calls == (Call("count", {"n": 1}),)


def test_tools_reach_the_first_prompt_only() -> None:
    chat, tokenizer = chat_of(), tiny_tokenizer()
    tool = {"type": "function", "function": {"name": "stock"}}
    prompt = chat.first_prompt([{"role": "user", "content": "hi"}], [tool])
    assert "stock" in tokenizer.decode(prompt)
    assert chat.first_prompt([{"role": "user", "content": "hi"}]) != prompt


def test_a_kept_first_prompt_is_that_of_the_same_messages_and_tools() -> None:
    chat = chat_of()
    one: list[Message] = [{"role": "user", "content": "hi"}]
    tools = [{"name": "a", "b": 1}]
    first = chat.first_prompt(one, tools)
    tools[0] = {"b": 1, "name": "a"}  # a template writes fields in their order
    assert chat.first_prompt(one, tools) != first
    one[0]["content"] = "abc"
    assert chat.first_prompt(one) == chat_of().first_prompt([{"role": "user", "content": "abc"}])


THINKING = CHATML.replace(
    "<|im_start|>assistant\n",
    "<|im_start|>assistant\n{% if enable_thinking is false %}<think></think>{% endif %}",
)
"""As Qwen3's: an empty thought opens each turn of a model that is told not to think."""


@mutation(
    "a chat template is rendered without its variables", "genenv_core/play/chat.py",
    "                    **self._variables,\n", "",
)  # fmt: skip
def test_variables_of_the_template_are_in_every_rendering() -> None:
    tokenizer = tiny_tokenizer(THINKING)
    plain = ChatFormat(tokenizer, name="tiny")
    told = ChatFormat(tokenizer, name="tiny", variables={"enable_thinking": False})
    start: list[Message] = [{"role": "user", "content": "hi"}]
    after: list[Message] = [{"role": "tool", "content": "ok"}]
    thought = spell("<think></think>")
    assert told.first_prompt(start) == (*plain.first_prompt(start), *thought)
    assert told.continuation(after) == (*plain.continuation(after), *thought)
    assert plain.first_prompt(start) == chat_of().first_prompt(start)
    with pytest.raises(ModelError, match="no variable 'enable_thinkng'"):
        ChatFormat(tokenizer, name="tiny", variables={"enable_thinkng": False})


def test_no_variable_can_shadow_an_argument_of_transformers() -> None:
    for function in (PreTrainedTokenizerBase.apply_chat_template, render_jinja_template):
        assert set(inspect.signature(function).parameters) - {"kwargs"} <= TEMPLATE_ARGUMENTS


def test_unusable_chat_formats_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no chat template.*chat_template\.jinja"):
        chat_of(None)
    with pytest.raises(ModelError, match="drops the text"):
        chat_of("{% for m in messages %}{{ m.role }}{% endfor %}")
    with pytest.raises(ModelError, match=r"refused the roles \(user, assistant, tool\)"):
        chat_of(
            "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}"
            "{% endif %}{{ m.content }}{% endfor %}"
        ).continuation([{"role": "tool", "content": "x"}])
    with pytest.raises(ModelError, match="no tokenizer there"):
        ChatFormat.load(tmp_path)
    whole = tmp_path / "whole"
    tiny_tokenizer().save_pretrained(whole)
    (whole / "generation_config.json").write_text(json.dumps({"eos_token_id": [END_ID, 2]}))
    assert ChatFormat.load(whole).stop_token_ids == (END_ID, 2)
    torn = Path(shutil.copytree(whole, tmp_path / "torn"))
    (torn / "tokenizer.json").write_text('{"model": {')
    with pytest.raises(ModelError, match="cannot be read"):
        ChatFormat.load(torn)
    (whole / "generation_config.json").write_text("[]")
    with pytest.raises(ModelError, match=r"generation_config\.json"):
        ChatFormat.load(whole)
