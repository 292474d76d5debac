"""Chat formats: the text of a template around an agent's tokens; templates that are refused."""

from __future__ import annotations

import inspect
import json
import random
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from tokenizers import AddedToken, Tokenizer, models
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.utils.chat_template_utils import render_jinja_template

from genenv_core.config.sections.models import TEMPLATE_ARGUMENTS
from genenv_core.domains.tool_calls import MARKS, said, written
from genenv_core.errors import ModelError
from genenv_core.play.chat import ChatFormat
from genenv_core.play.template.control import BREAK, Breaker
from genenv_core.play.template.rendering import Rendering
from genenv_core.types import Call, Message
from tests.mutations import mutation
from tests.unit.builders_engine import CHATML, END, spell, tiny_tokenizer

END_ID = 1
NOTHING: Mapping[str, bool] = {}


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


def ends(
    template: str, added: Mapping[str, bool] = NOTHING, *, eos: str = "<|pad|>"
) -> tuple[list[str], Any]:
    """Return the tokens that end a turn by their texts; `added` says which tokens are special."""
    tokenizer: Any = tiny_tokenizer(template)
    tokenizer.add_tokens([AddedToken(name, special=special) for name, special in added.items()])
    tokenizer.eos_token = eos
    chat = ChatFormat(tokenizer, name="base")
    return [tokenizer.decode([one]) for one in chat.stop_token_ids], chat


OPENS = "{% if add_generation_prompt %}<|im_start|>a {% endif %}"
PLAIN = "{% for m in messages %}<|im_start|>{{ m.role }} {{ m.content }}CLOSING{% endfor %}" + OPENS


@mutation(
    "only a token that the tokenizer names can end a turn", "genenv_core/play/template/ends.py",
    "    return tuple(dict.fromkeys([*tokens,", "    return tuple(dict.fromkeys([*declared,",
)  # fmt: skip
@mutation(
    "a closing token counts only right behind the text", "genenv_core/play/template/ends.py",
    "looked_at = ids if anywhere else rendering.leading_marks(ids)", "looked_at = ids[:1]",
)  # fmt: skip
@pytest.mark.parametrize(
    ("closing", "added", "found"),
    [
        (END, {}, [END]),  # special in tokenizer.json alone, as the end token is another
        ("\n" + END + "\n", {}, [END]),
        ("<|x|><|y|>\n", {"<|x|>": False, "<|y|>": True}, ["<|x|>"]),
        ("", {}, ["<|im_start|>"]),  # as GLM: the next role closes a turn
    ],
)
def test_the_templates_closing_token_is_a_stop_token(
    closing: str, added: dict[str, bool], found: list[str]
) -> None:
    assert ends(PLAIN.replace("CLOSING", closing), added)[0] == [*found, "<|pad|>"]


@mutation(
    "a closing that is plain text is nobody's fault", "genenv_core/play/template/ends.py",
    "    if not found:\n", "    if not found and not declared:\n",
)  # fmt: skip
@pytest.mark.parametrize("closing", ["<|im_fin|>", "\n\n", ""])
def test_a_template_that_closes_turns_by_text_is_refused(closing: str) -> None:
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}" + closing + "{% endfor %}"
    with pytest.raises(ModelError, match=r"base: .* ends a turn .*write the tokenizer's end token"):
        ends(template)


@mutation(
    "a token inside of a turn ends it", "genenv_core/play/template/ends.py",
    "and token not in inside]", "]",
)  # fmt: skip
def test_a_token_between_a_thought_and_an_answer_ends_no_turn() -> None:
    """As in gpt-oss: each part of a turn closes with one token, the last one with another."""
    part = "{% for m in messages %}{% if m.thinking %}<|im_start|>{{ m.thinking }}<|x|>{% endif %}"
    last = "{{ m.content }}{% if loop.last and not add_generation_prompt %}<|y|>{% else %}<|x|>"
    template = part + "<|im_start|>" + last + "{% endif %}{% endfor %}" + OPENS
    assert ends(template, {"<|x|>": True, "<|y|>": True})[0] == ["<|y|>", "<|pad|>"]


@mutation(
    "turns of calls close as texts do", "genenv_core/play/template/ends.py",
    "*_of_call(rendering, {*tokens})", "",
)  # fmt: skip
def test_a_turn_of_calls_that_closes_otherwise_has_its_own_end() -> None:
    call = "<|c|>{{ c.function.arguments.at }}<|d|>"
    calls = "{% for c in m.tool_calls or [] %}" + call + "{% endfor %}"
    closing = "{% if m.tool_calls %}<|x|>{% else %}" + END + "{% endif %}"
    template = PLAIN.replace("CLOSING", calls + closing)
    added = {"<|c|>": False, "<|d|>": False, "<|x|>": True}
    assert ends(template, added, eos=END)[0] == [END, "<|x|>"]


def test_a_closing_of_two_tokens_is_written_once() -> None:
    template = PLAIN.replace("CLOSING", "<|x|><|y|>\n")
    _, chat = ends(template, {"<|x|>": True, "<|y|>": True}, eos="<|y|>")
    first, second = (chat.stop_token_ids[place] for place in (0, 1))
    after = chat.continuation(())
    assert after[:2] == (first, second)
    assert chat.continuation((), (5, first)) == after[1:]
    assert chat.continuation((), (5, second)) == after[2:]


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
    "a chat template is rendered without its variables", "genenv_core/play/template/rendering.py",
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


TODAY = "  {{ strftime_now('%d %b %Y') }}"
HI: list[Message] = [{"role": "user", "content": "hi"}]


@mutation(
    "a chat template is told today's date", "genenv_core/play/template/rendering.py",
    "chat_template=answered(str(tokenizer.chat_template), self._date)", "chat_template=None",
)  # fmt: skip
def test_a_template_that_asks_for_the_date_gets_the_one_that_is_set() -> None:
    template = CHATML + TODAY
    with pytest.raises(
        ModelError, match=r"today's date.*agent_chat_template_kwargs=\{strftime_now"
    ):
        chat_of(template)
    tokenizer = tiny_tokenizer(template)
    chat = ChatFormat(tokenizer, name="tiny", variables={"strftime_now": "2024-07-26"})
    said = chat.decode(chat.first_prompt(HI))
    assert said == chat_of().decode(chat_of().first_prompt(HI)) + "  26 Jul 2024"


def test_a_template_whose_own_variable_says_the_date_is_not_refused() -> None:
    template = "{% if not day %}{% set day = strftime_now('%d') %}{% endif %}{{ day }}" + CHATML
    tokenizer = tiny_tokenizer(template)
    with pytest.raises(ModelError, match="today's date"):
        ChatFormat(tokenizer, name="tiny")
    chat = ChatFormat(tokenizer, name="tiny", variables={"day": "26"})
    assert chat.decode(chat.first_prompt(HI)).startswith("26")


@pytest.mark.parametrize("form", ["'%' ~ 'd'", "'%s'"])
def test_a_date_in_a_form_that_cannot_be_known_is_refused(form: str) -> None:
    tokenizer = tiny_tokenizer(CHATML + f"{{{{ strftime_now({form}) }}}}")
    with pytest.raises(ModelError, match="the date is asked for in a form"):
        ChatFormat(tokenizer, name="tiny", variables={"strftime_now": "2024-07-26"})


@mutation(
    "a chat template draws at random", "genenv_core/play/template/rendering.py",
    "if drawn := draws(source):", "if drawn := draws(''):",
)  # fmt: skip
@pytest.mark.parametrize("drawn", ["{{ [1, 2] | random }}", "{{ lipsum(n=1) }}"])
def test_a_template_that_draws_at_random_is_refused(drawn: str) -> None:
    with pytest.raises(
        ModelError, match=r"tiny: its chat template draws at random \((random|lipsum)"
    ):
        chat_of(CHATML + drawn)


@mutation(
    "a date before a template moves its first line", "genenv_core/play/template/surroundings.py",
    "{%- endmacro %}}\\n{template}", "{%- endmacro -%}}{template}",
)  # fmt: skip
@pytest.mark.parametrize("start", ["\n", "  ", "  {% if true %}\n x{% endif %}", "x"])
def test_a_date_leaves_the_text_of_a_template_as_it_is(start: str) -> None:
    template = start + CHATML
    asks = template + "{% if false %}{{ strftime_now('%d') }}{% endif %}"
    assert chat_of(asks).first_prompt(HI) == chat_of(template).first_prompt(HI)


SPECIAL = ("<|pad|>", END, "<|im_start|>")
PIECES = [*SPECIAL, "<", "|", "im_end", "|>", "hi ", "ab", "\n", BREAK]


@mutation(
    "a system message becomes control tokens", "genenv_core/play/template/rendering.py",
    "if role in OTHERS else self._lenient\n", "if role in OTHERS else Breaker(())\n",
    by="unit/play/test_chat.py::test_what_neither_template_nor_agent_wrote_is_text[system]",
)  # fmt: skip
@mutation(
    "a user's text becomes control tokens", "genenv_core/play/template/rendering.py",
    "mark = self._strict if role in OTHERS else", "mark = Breaker(()) if role in OTHERS else",
    by="unit/play/test_chat.py::test_what_neither_template_nor_agent_wrote_is_text[user]",
)  # fmt: skip
@pytest.mark.parametrize("role", ["user", "tool", "system"])
def test_what_neither_template_nor_agent_wrote_is_text(role: str) -> None:
    """Whatever a message spells, the ids hold the template's own control tokens alone."""
    chat, tokenizer = chat_of(), tiny_tokenizer()
    special = {*tokenizer.all_special_ids}
    draw = random.Random(role)
    for length in range(1, 40):
        text = "".join(draw.choice(PIECES) for _ in range(length))
        said: list[Message] = [*HI, {"role": role, "content": text}, *HI]
        empty: list[Message] = [*HI, {"role": role, "content": ""}, *HI]
        ids = chat.first_prompt(said)
        own = [one for one in ids if one in special]
        assert own == [one for one in chat.first_prompt(empty) if one in special]
        if BREAK not in text:
            assert text in tokenizer.decode(list(ids))


@mutation(
    "a control token that overlaps a broken one stays", "genenv_core/play/template/control.py",
    "            start = match.start() + 1\n", "            start = match.end()\n",
)  # fmt: skip
def test_tokens_that_overlap_are_all_broken() -> None:
    broken = Breaker(["<a>", ">b", "a>b", "x"])("<a>b x")
    assert broken.replace(BREAK, "") == "<a>b x"
    assert all(token not in broken for token in ("<a>", ">b", "a>b"))
    assert Breaker(["<a>"])({"<a>": ["<a>", 1, None]}) == {f"<{BREAK}a>": [f"<{BREAK}a>", 1, None]}


def test_ordinary_messages_have_the_ids_of_the_tokenizers_own_rendering() -> None:
    chat, tokenizer = chat_of(), cast(Any, tiny_tokenizer())
    draw = random.Random(0)
    for length in range(1, 60):
        texts = ["".join(draw.choice(PIECES[3:9]) for _ in range(length)) for _ in range(4)]
        messages: list[Message] = [
            {"role": role, "content": text}
            for role, text in zip(("system", "user", "assistant", "user"), texts, strict=True)
        ]
        if any(token in text for text in texts for token in SPECIAL):
            continue
        own = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        assert chat.first_prompt(messages) == tuple(own)


@mutation(
    "a tool's schema holds control tokens", "genenv_core/play/template/rendering.py",
    "tools=[self._strict(tool) for tool in tools] or none", "tools=list(tools) or None",
)  # fmt: skip
def test_tools_hold_no_control_tokens_in_texts_and_names() -> None:
    tool = {"type": "function", "function": {"name": "f" + END, "parameters": {END: [END]}}}
    plain = {"type": "function", "function": {"name": "f", "parameters": {"g": ["h"]}}}
    template = "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}" + CHATML
    shown = Rendering(tiny_tokenizer(template), name="tiny", variables={})
    for prompt in (chat_of().first_prompt, lambda *said: shown.ids(shown.text(*said))):
        with_marks, without, none = (list(prompt(HI, tools)) for tools in ([tool], [plain], []))
        assert with_marks.count(END_ID) == without.count(END_ID)
        assert len(with_marks) > len(without) > len(none)


@pytest.mark.parametrize(
    ("role", "kept"), [("user", 0), ("tool", 0), ("system", 1), ("assistant", 1)]
)
def test_marks_of_calls_are_tokens_where_the_domain_or_the_agent_wrote_them(
    role: str, kept: int
) -> None:
    tokenizer: Any = tiny_tokenizer()
    tokenizer.add_tokens([AddedToken("<tool_call>", special=True)])
    chat = ChatFormat(tokenizer, name="tiny")
    messages: list[Message] = [*HI, {"role": role, "content": "a <tool_call>"}, *HI]
    mark = tokenizer.convert_tokens_to_ids("<tool_call>")
    assert chat.first_prompt(messages).count(mark) == kept
    assert chat.completion("<tool_call>").count(mark) == 1


@mutation(
    "a control token is encoded whole",
    "genenv_core/play/template/control.py",
    "parts.append(text[start : match.start() + 1])", "parts.append(text[start : match.start()])",
)  # fmt: skip
def test_a_token_that_the_tokenizer_makes_of_plain_letters_is_spelt_in_two() -> None:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=unigram(), eos_token="</s>")
    tokenizer.chat_template = CHATML.replace("<|im_end|>", "</s>")
    chat = ChatFormat(tokenizer, name="unigram")
    ids = chat.first_prompt([{"role": "user", "content": "a</s>b"}])
    assert ids.count(int(tokenizer.eos_token_id)) == chat.first_prompt(HI).count(1) == 1
    assert "a</s>b" in str(tokenizer.decode(list(ids))).replace(" ", "")


def unigram() -> Tokenizer:
    """Return a tokenizer whose model itself has the end token, as Unigram models have it."""
    pieces = [("<unk>", 0.0), ("</s>", -1.0), *((chr(code), -9.0) for code in range(32, 127))]
    core = Tokenizer(models.Unigram([*pieces, ("\n", -9.0)], unk_id=0))
    core.add_special_tokens([AddedToken("</s>", special=True)])
    return core


def test_no_variable_can_shadow_an_argument_of_transformers() -> None:
    for function in (PreTrainedTokenizerBase.apply_chat_template, render_jinja_template):
        assert set(inspect.signature(function).parameters) - {"kwargs"} <= TEMPLATE_ARGUMENTS


def test_unusable_chat_formats_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no chat template.*chat_template\.jinja"):
        chat_of(None)
    with pytest.raises(ModelError, match="drops the text"):
        chat_of("{% for m in messages %}{{ m.role }}{% endfor %}")
    with pytest.raises(ModelError, match=r"refused the roles \(user, assistant\).*no agents"):
        chat_of("{{ raise_exception('no agents') if messages | length > 1 }}" + CHATML)
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
