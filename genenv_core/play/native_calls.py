"""Rewrites tool calls in a model's own format to the format that domains read.

Domains read `<tool_call>` (`genenv_core.domains.tool_calls`), as Hermes and Qwen models write it.
Response templates of transformers read other models' texts. A trial decides which one: the chat
template writes calls, and genenv takes the first format that reads them back equal. Where the chat
template writes no calls, its marks decide.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from genenv_core.domains.tool_calls import (
    MARKS,
    OPEN,
    after_thought,
    between_marks,
    canonical,
    said,
)
from genenv_core.play.call_formats import BY_MARK, Template
from genenv_core.play.quoted_marks import shielded
from genenv_core.play.template.control import special_ids
from genenv_core.types import Call, JsonObject

XML_MARKS = ("<function=", "<arg_key>")
"""Marks of chat templates whose `<tool_call>` holds XML and not JSON, as in Qwen3-Coder and GLM."""

_OF_TRL = ("gemma4_template", "lfm2_2_5_template")

_ANSWER = "genenvanswer"

TRIAL_TOOLS: Sequence[JsonObject] = tuple(
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "Looks.",
            "parameters": {"type": "object", "properties": properties, "required": [*properties]},
        },
    }
    for name, properties in (
        (
            "look_up",
            {
                "place": {"type": "string", "description": "Where."},
                "days": {"type": "integer", "description": "How many."},
            },
        ),
        ("list_all", {}),
    )
)

_LOOK = Call("look_up", {"place": "Oslo, Norway", "days": 2})
TRIALS = ((_LOOK,), (Call("list_all", {}),), (_LOOK, Call("list_all", {})))
"""Turns of calls that a chat template writes, so that they show its format."""


@dataclass(frozen=True, slots=True)
class NativeFormat:
    """How a model writes calls; `ended`: the template also reads the token that ends a turn."""

    template: Template
    ended: bool


@dataclass(frozen=True, slots=True)
class WrittenTurn:
    """A turn of calls as a chat template writes it, and the text that ends the turn."""

    text: str
    ending: str


def native_format(tokenizer: Any) -> NativeFormat | None:
    """Return how a tokenizer's model writes calls; None for the format that domains read."""
    usual = _by_marks(tokenizer)
    turns = [(calls, written_turn(tokenizer, calls, TRIAL_TOOLS)) for calls in TRIALS]
    texts = [(calls, turn) for calls, turn in turns if turn is not None]
    best, most = usual, 0
    for native in _candidates(usual) if texts else ():
        equal = sum(read_turn(turn, native, TRIAL_TOOLS) == calls for calls, turn in texts)
        if equal > most:
            best, most = native, equal
        if most == len(texts):
            break
    return best


def written_turn(
    tokenizer: Any, calls: Sequence[Call], tools: Sequence[JsonObject]
) -> WrittenTurn | None:
    """Return a turn of calls as the chat template writes it; None where it writes no calls.

    The text may begin with what opens the turn. Some templates take arguments as JSON text alone.
    """

    def render(*messages: JsonObject, opening: bool = False) -> str:
        return str(
            tokenizer.apply_chat_template(
                [{"role": "user", "content": "."}, *messages],
                tools=list(tools) or None,
                add_generation_prompt=opening,
                tokenize=False,
            )
        )

    for spell in (dict[str, Any], json.dumps):
        entries = [_entry(i, call.name, spell(call.arguments)) for i, call in enumerate(calls)]
        # Whatever jinja2 raises, and whatever a template raises on purpose.
        with contextlib.suppress(Exception):
            turn = render({"role": "assistant", "content": "", "tool_calls": entries})
            before, opened = render(), render(opening=True)
            answer = render({"role": "assistant", "content": _ANSWER})
            text = turn.removeprefix(before).removeprefix(opened.removeprefix(before))
            if all(call.name in text for call in calls):
                return WrittenTurn(text, answer.partition(_ANSWER)[2])
    return None


def _entry(place: int, name: str, arguments: object) -> JsonObject:
    function = {"name": name, "arguments": arguments}
    # Nine letters and digits, as Mistral's templates demand it.
    return {"id": f"genenv{place:03}", "type": "function", "function": function}


def read_turn(
    turn: WrittenTurn, native: NativeFormat | None, tools: Sequence[JsonObject]
) -> tuple[Call, ...]:
    """Return the calls that a format reads in a turn of a chat template."""
    if native is None:
        return said(turn.text).calls
    text = turn.text if native.ended else turn.text.removesuffix(turn.ending)
    return said(rewritten(text, native.template, tools)).calls


def _candidates(usual: NativeFormat | None) -> Iterator[NativeFormat | None]:
    yield None
    if usual is not None:
        yield usual
    for _, template in BY_MARK:
        yield NativeFormat(template, ended=False)
    import trl.chat_template_utils as known

    for name in _OF_TRL:
        yield NativeFormat(getattr(known, name), ended=True)


def _by_marks(tokenizer: Any) -> NativeFormat | None:
    own = getattr(tokenizer, "response_template", None)
    chat = str(tokenizer.chat_template)
    if OPEN in chat and not any(mark in chat for mark in XML_MARKS):
        return None
    if not own:
        for mark, template in BY_MARK:
            if mark in chat:
                return NativeFormat(template, ended=False)
    known = own or _known_to_trl(chat)
    return NativeFormat(known, ended=True) if known else None


def hidden_tokens(tokenizer: Any) -> Set[int] | None:
    """Return the special tokens that are no part of a turn's text.

    None where these are all special tokens, as in the tokenizer's own decoding. Some tokenizers
    have special tokens for the marks of calls and thoughts, which the text must keep.
    """
    special = special_ids(tokenizer)
    names = {token: str(tokenizer.convert_ids_to_tokens(token)) for token in special}
    marks = {token for token, name in names.items() if any(mark in name for mark in MARKS)}
    return special - marks if marks else None


def rewritten(text: str, template: Template, tools: Sequence[JsonObject] = ()) -> str:
    """Return a turn's text with its calls in the format that domains read.

    `tools` have the types of arguments, for formats that write all of them as text. The thought of
    a reasoning model stays as it is. A text that the template cannot read becomes one malformed
    call.
    """
    from transformers.utils import chat_parsing

    parsing: Any = chat_parsing  # half untyped
    try:
        safe, restored = shielded(text, template)
        begin = after_thought(safe)
        message: JsonObject = parsing.parse_response(
            safe[begin:], dict(template), prefix="", tools=list(tools)
        )
    except Exception:  # whatever parsers and regular expressions raise on a model's text
        begin = after_thought(text)
        return text[:begin] + between_marks(text[begin:])
    content, calls = restored([message.get("content") or "", message.get("tool_calls") or []])
    return canonical(text[:begin] + str(content), calls)


def _known_to_trl(chat: str) -> Template | None:
    """Return TRL's response template for a chat template, None where TRL knows none.

    TRL knows no template without tools, and takes .3 CPU-seconds to import.
    """
    if "tool" not in chat:
        return None
    from trl.chat_template_utils import add_response_schema

    add: Any = add_response_schema
    holder = SimpleNamespace(chat_template=chat)
    with contextlib.suppress(ValueError):  # it knows templates by their whole text
        add(holder)
    return getattr(holder, "response_template", None)
