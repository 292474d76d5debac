"""A checkpoint is asked before it is used: what templates do not show is written, calls come back.

Invariants: the table of docs/checkpoints.md is what the probe answers for each template that ships
with TRL; tools, calls on record and answers of tools reach the prompt whatever the template does;
what genenv writes is read back equal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trl
from tokenizers import AddedToken, normalizers

from genenv_core.domains.kit.tools import how_to_call
from genenv_core.domains.tool_calls import said, written
from genenv_core.errors import ModelError
from genenv_core.play.chat import ChatFormat
from genenv_core.play.template.bootstrap import CHAT_TEMPLATE
from genenv_core.play.template.mending import ANSWERS, CALLS, SYSTEM, TOOLS
from genenv_core.types import Call, JsonObject, Message, Policy
from tests.mutations import mutation
from tests.unit.builders_engine import CHATML, byte_tokenizer

MENDING = "genenv_core/play/template/mending.py"
CHAT = "genenv_core/play/chat.py"

TEMPLATES = Path(str(trl.__file__)).parent / "chat_templates"
SHIPPED = sorted(
    path.stem for path in TEMPLATES.glob("*.jinja") if not path.stem.endswith("_training")
)
TABLE = Path("docs/checkpoints.md").read_text(encoding="utf-8")

TOKEN = re.compile(
    r'<\|[^|<>\s]+\|>|<\|[a-z_"]+>|<[a-z_"]+\|>|<｜[^｜]+｜>|</?[a-z_]+>|\[/?[A-Z_]+\]'
)

HIDES = "{% for m in messages %}{% if m.role in ('system', 'user', 'assistant') %}" + (
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Knows three roles, and neither tools nor calls."""

LOOK: JsonObject = {"type": "function", "function": {"name": "look", "description": "Looks é."}}
HI: Message = {"role": "user", "content": "hi"}


def chat_of(template: str, **variables: Any) -> ChatFormat:
    """Return a chat format whose tokenizer has the tokens that a template writes."""
    tokenizer: Any = byte_tokenizer(template)
    found = dict.fromkeys([*TOKEN.findall(template), "<s>", "</s>", "<|im_end|>"])
    tokenizer.add_tokens([AddedToken(token, special="|" in token) for token in found])
    tokenizer.bos_token, tokenizer.eos_token = "<s>", "</s>"
    return ChatFormat(tokenizer, name="tiny", variables=variables)


def row(name: str) -> str:
    """Return the row of the table in the docs for a template that ships with TRL."""
    template = (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")
    date = ""
    try:
        try:
            chat = chat_of(template)
        except ModelError as error:
            if "today's date" not in str(error):
                raise
            date, chat = (
                "date: `strftime_now` to be set; ",
                chat_of(template, strftime_now="2026-01-31"),
            )
        probe = chat.probe(Policy.AGENT)
    except ModelError as error:
        why = str(error).partition(": ")[2].partition(";")[0].partition(", so")[0]
        return f"| {name} | | refused: {why} | |"
    ends = " ".join(f"`{one}`" for one in probe.ends if one != "</s>")
    words = ends.replace("|", "\\|"), "; ".join(probe.mended), "; ".join(probe.unread)
    return f"| {name} | {words[0]} | {(date + words[1]).removesuffix('; ')} | {words[2]} |"


@pytest.mark.parametrize("name", SHIPPED)
def test_the_docs_say_what_each_template_of_trl_answers(name: str) -> None:
    assert row(name) in TABLE


def test_the_table_has_no_other_templates() -> None:
    assert len(SHIPPED) == 41
    assert re.findall(r"^\| (\w+) \|", TABLE, re.MULTILINE)[1:] == SHIPPED


def prompt(chat: ChatFormat, messages: Sequence[Message]) -> str:
    return chat.decode(chat.first_prompt(messages, [LOOK]))


@mutation(
    "tools that a template does not show stay hidden", MENDING,
    "tools = not shows(rendering, PLACEHOLDER, [ASKED], [tool])", "tools = False",
)  # fmt: skip
def test_hidden_tools_are_written_with_the_form_of_a_call() -> None:
    chat = chat_of(HIDES)
    assert TOOLS in chat.probe(Policy.AGENT).mended
    shown = prompt(chat, [{"role": "system", "content": "Rules."}, HI])
    assert shown.index("Rules.") < shown.index(json.dumps(LOOK, ensure_ascii=False))
    assert how_to_call([LOOK]) in shown and shown.count("system\n") == 1
    assert "system\n" in prompt(chat, [HI])
    assert "look" not in chat.decode(chat.first_prompt([HI]))
    writes = "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>"
    knows_calls = HIDES.replace("<|im_end|>", writes + "{% endfor %}<|im_end|>")
    assert TOOLS in chat_of(knows_calls).probe(Policy.AGENT).mended


@mutation(
    "tools are explained twice", MENDING,
    "if self.tools and tools and not any(_explains(message) for message in told):",
    "if self.tools and tools:",
)  # fmt: skip
def test_a_domain_that_explains_calls_itself_keeps_its_prompt() -> None:
    rules: Message = {"role": "system", "content": how_to_call([LOOK])}
    assert "Looks" not in prompt(chat_of(HIDES), [rules, HI])


@mutation(
    "calls on record stay hidden", CHAT,
    "replace(mending, tools=True, calls=True)", "replace(mending, tools=True)",
)  # fmt: skip
@mutation(
    "answers of tools stay hidden", MENDING,
    "answers = not (with_tools and without)", "answers = with_tools and without",
)  # fmt: skip
def test_hidden_calls_and_answers_are_written_as_text() -> None:
    chat = chat_of(HIDES)
    assert {CALLS, ANSWERS} <= {*chat.probe(Policy.AGENT).mended}
    call = {"function": {"name": "look", "arguments": {"at": "x"}}}
    shown = prompt(
        chat,
        [
            HI,
            {"role": "assistant", "content": "so", "tool_calls": [call]},
            {"role": "tool", "content": "seen"},
            {"role": "tool", "content": "again"},
        ],
    )
    assert f"so\n{written({'name': 'look', 'arguments': {'at': 'x'}})}" in shown
    assert "user\n<tool_response>\nseen\n</tool_response>\n\n<tool_response>\nagain" in shown
    after = chat.decode(chat.continuation([{"role": "tool", "content": "seen"}]))
    assert "user\n<tool_response>\nseen" in after


@mutation(
    "calls in a form that is not read are played in silence", CHAT,
    "if ONE not in missed and not mending.tools:", "if not mending.tools:",
)  # fmt: skip
def test_a_template_whose_calls_are_not_read_gets_the_form_that_is() -> None:
    foreign = (
        "{% for t in tools or [] %}{{ t.function.name }}{% endfor %}{% for m in messages %}"
        "<|im_start|>{{ m.role }} {{ m.content }}{% for c in m.tool_calls or [] %}CALL "
        "{{ c.function.name }} WITH {{ c.function.arguments | tojson }}{% endfor %}<|im_end|>"
        "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant {% endif %}"
    )
    chat = chat_of(foreign)
    assert {TOOLS, CALLS} <= {*chat.probe(Policy.AGENT).mended}
    assert how_to_call([LOOK]) in prompt(chat, [HI])
    text = chat.said(chat.completion(written({"name": "look", "arguments": {}})), [LOOK])
    assert said(text).calls == (Call("look", {}),)


def test_the_models_of_bootstrap_and_complete_templates_are_left_as_they_are() -> None:
    tiny = CHAT_TEMPLATE.replace("<|end|>", "<|im_end|>")
    chat = chat_of(CHAT_TEMPLATE)
    assert chat.probe(Policy.AGENT).mended == () and "look" not in prompt(chat, [HI])
    assert chat_of(tiny).probe(Policy.AGENT).mended != ()
    assert ANSWERS not in chat_of(CHATML).probe(Policy.AGENT).mended


@mutation(
    "a tokenizer that cannot spell a call is taken", CHAT,
    "if policy is Policy.AGENT and ONE in self._unread:", "if policy is None:",
)  # fmt: skip
def test_a_tokenizer_that_cannot_spell_a_call_serves_pi_env_alone() -> None:
    tokenizer: Any = byte_tokenizer(CHATML)
    tokenizer.backend_tokenizer.normalizer = normalizers.Replace("{", "(")
    tokenizer.add_tokens([AddedToken("<|im_end|>", special=True)])
    chat = ChatFormat(tokenizer, name="tiny")
    assert chat.probe(Policy.ENV).ends == ("<|im_end|>",)
    with pytest.raises(ModelError, match="tiny: its tokenizer does not read back a call"):
        chat.probe(Policy.AGENT)


@mutation(
    "a model writes the head of its own turn", CHAT,
    "        check_opening(self._rendering)\n", "",
)  # fmt: skip
@mutation(
    "a template that needs no head is refused", "genenv_core/play/template/probe.py",
    "if head != before and head.strip():", "if head != before:",
)  # fmt: skip
def test_a_template_that_does_not_open_the_agents_turn_is_refused() -> None:
    opens = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    assert opens in CHATML and chat_of(CHATML).probe(Policy.ENV)
    with pytest.raises(ModelError, match=r"writes '<\|im_start\|>assistant\\n' before a turn"):
        chat_of(CHATML.replace(opens, "")).probe(Policy.ENV)
    instructions = (
        "{% for m in messages %}{% if m.role == 'assistant' %} {{ m.content }}</s>{% else %}"
        "[INST] {{ m.content }} [/INST]{% endif %}{% endfor %}"
    )
    assert chat_of(instructions).probe(Policy.ENV).ends == ("</s>",)


LAST = (
    "{% if messages[0].role == 'system' %}{% set rules = messages[0].content %}"
    "{% set messages = messages[1:] %}{% endif %}{% for m in messages %}{% if m.role == 'user' %}"
    "[INST]{% if rules is defined and loop.last %}{{ rules }}\n\n{% endif %}{{ m.content }}[/INST]"
    "{% elif m.role == 'tool' %}[RESULT]{{ m.content }}{% else %} {{ m.content }}</s>{% endif %}"
    "{% endfor %}"
)
"""As Mistral's from v3 on: the system message stands in the last message, if that is the user's."""


@mutation(
    "a system message that only a last message shows gets lost", MENDING,
    "for after in ([ASKED], turn))", "for after in ([ASKED],))",
)  # fmt: skip
def test_a_system_message_that_would_move_stays_in_the_first_users_message() -> None:
    chat = chat_of(LAST)
    assert SYSTEM in chat.probe(Policy.AGENT).mended
    rules: Message = {"role": "system", "content": "Rules."}
    assert chat.decode(chat.first_prompt([rules, HI])) == "[INST]Rules.\n\nhi[/INST]"
    later = prompt(chat, [rules, HI, {"role": "tool", "content": "seen"}])
    assert later.startswith("[INST]Rules.\n\n") and "seen" in later
