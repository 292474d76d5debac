"""Finds the tokens that end a turn of the agent, in what a chat template writes after one.

The template renders a turn before a user's message, one before a tool's, and one at the end of a
conversation, each as a text and as a call. genenv stops at one token. In a closing of several
tokens, the first one that stands for itself counts, if only blanks come before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from genenv_core.errors import ModelError
from genenv_core.play.template.rendering import CALL_ID, Rendering, TemplateRefused
from genenv_core.types import JsonObject, Message

PLACEHOLDER = "genenvplaceholder"
"""Stands for the agent's text while the template renders; no template would rewrite it."""

THOUGHT = "genenvthought"
ANSWER = "genenvanswer"

ASKED: Message = {"role": "user", "content": "."}
SAID: Message = {"role": "assistant", "content": PLACEHOLDER}
ANSWERED: Message = {"role": "tool", "content": ANSWER, "name": "look"}

LOOK: JsonObject = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Looks.",
        "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
    },
}
"""A tool for conversations that only a template reads."""

SHOWN = 60


def called(*values: str) -> Message:
    """Return a turn that calls `look` once for each value, as templates read calls."""
    calls = [
        {
            "id": CALL_ID,
            "type": "function",
            "function": {"name": "look", "arguments": {"at": value}},
        }
        for value in values
    ]
    return cast(Message, {"role": "assistant", "content": "", "tool_calls": calls})


def ends_of(rendering: Rendering, declared: Sequence[int]) -> tuple[int, ...]:
    """Return the tokens that end a turn, first the one that closes a turn of text.

    `declared` are those that the checkpoint names. Raises ModelError where the template closes
    turns with text that is no token.
    """
    inside = _inside(rendering)
    last = _after(rendering, [ASKED, SAID], opening=False)
    follows = _after(rendering, [ASKED, SAID, ASKED])
    if last is None and follows is None:
        rendering.text([ASKED, SAID])  # says so where the template refuses it
        raise ModelError(
            f"checkpoint {rendering.name}: its chat template drops the text of an assistant "
            "message, so the turns of an episode cannot be joined; repair chat_template.jinja"
        )
    answers = _after(rendering, [ASKED, SAID, ANSWERED])
    closing = [_first(rendering, last or "", anywhere=True)]
    closing += [_first(rendering, text or "") for text in (follows, answers)]
    found = [token for token in closing if token is not None and token not in inside]
    if not found:
        raise ModelError(_no_end(rendering, last or follows or ""))
    tokens = [*found, *declared]
    return tuple(dict.fromkeys([*tokens, *_of_call(rendering, {*tokens})]))


def _no_end(rendering: Rendering, closing: str) -> str:
    spelt = len(rendering.ids(closing))
    how = (
        f"by {closing[:SHOWN]!a}, {spelt} tokens of which none stands for itself"
        if closing
        else "by nothing"
    )
    return (
        f"checkpoint {rendering.name}: its chat template ends a turn of the agent {how}, so genenv "
        "could not see where a turn ends: write the tokenizer's end token there in "
        "chat_template.jinja, or add the closing to the tokenizer as a special token"
    )


def _of_call(rendering: Rendering, known: set[int]) -> list[int]:
    """Return the token that ends a turn of calls, [] where a known token ends it."""
    after = _after(rendering, [ASKED, called(PLACEHOLDER), ANSWERED], [LOOK])
    if after is None:
        after = _after(rendering, [ASKED, called(PLACEHOLDER)], [LOOK], opening=False) or ""
    ids = [token for token in rendering.ids(after.partition(ANSWER)[0]) if token in rendering.marks]
    if not ids or known & {*ids}:
        return []
    twice = _after(rendering, [ASKED, called(PLACEHOLDER, THOUGHT), ANSWERED], [LOOK]) or ""
    between = {*rendering.ids(twice.partition(THOUGHT)[0])} if THOUGHT in twice else set[int]()
    return [token for token in ids if token not in between][:1]


def _inside(rendering: Rendering) -> set[int]:
    """Return the tokens between a thought and the text after it, in one turn."""
    thinks = cast(Message, {**SAID, "reasoning_content": THOUGHT})
    try:
        text = rendering.text([ASKED, thinks], opening=False)
    except TemplateRefused:
        return set()
    between = text.partition(THOUGHT)[2].partition(PLACEHOLDER)
    return {*rendering.ids(between[0])} if between[1] else set()


def _after(
    rendering: Rendering,
    messages: Sequence[Message],
    tools: Sequence[JsonObject] = (),
    *,
    opening: bool = True,
) -> str | None:
    """Return the text behind the placeholder, None where the template drops the placeholder."""
    try:
        text = rendering.text(messages, tools, opening=opening)
    except TemplateRefused:
        return None
    _, found, after = text.partition(PLACEHOLDER)
    return after if found else None


def _first(rendering: Rendering, text: str, *, anywhere: bool = False) -> int | None:
    """Return the first token that stands for itself, behind blanks only, or `anywhere`."""
    ids = rendering.ids(text)
    looked_at = ids if anywhere else rendering.leading_marks(ids)
    return next((token for token in looked_at if token in rendering.marks), None)
