"""Writes into messages what a chat template does not show.

- Tools: their JSON schemas and the form of a call go into the system message, unless the domain
  explains the form of a call itself.
- System messages: their text goes into the first user's message.
- Calls on record (`tool_calls`): they go into the text of their message, in the same form.
- Tools' answers: they become messages of the user, between `<tool_response>` and
  `</tool_response>`.

User's messages that follow each other are then joined, as such templates want roles to alternate.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from genenv_core.domains.kit.tools import how_to_call
from genenv_core.domains.tool_calls import OPEN, canonical
from genenv_core.play.template.bootstrap import CHAT_TEMPLATE
from genenv_core.play.template.ends import ANSWER, ANSWERED, ASKED, LOOK, PLACEHOLDER, SAID
from genenv_core.play.template.rendering import Rendering, TemplateRefused
from genenv_core.types import JsonObject, Message

RULE = "genenvrule"
RULES: Message = {"role": "system", "content": RULE}

OFFER = "You can call these tools, each given as a JSON schema:"

ANSWER_OPEN, ANSWER_CLOSE = "<tool_response>", "</tool_response>"

TOOLS = "tools and the form of a call: written into the system message"
CALLS = "calls on record: written as text"
ANSWERS = "tools' answers: written as the user's messages"
SYSTEM = "system messages: written into the first user's message"


@dataclass(frozen=True, slots=True)
class Mending:
    """The parts of a conversation that genenv writes, because the template does not."""

    tools: bool = False
    calls: bool = False
    answers: bool = False
    system: bool = False

    @property
    def said(self) -> tuple[str, ...]:
        """The names of these parts, for results."""
        found = {TOOLS: self.tools, CALLS: self.calls, ANSWERS: self.answers, SYSTEM: self.system}
        return tuple(words for words, mended in found.items() if mended)

    def messages(
        self, messages: Sequence[Message], tools: Sequence[JsonObject] = ()
    ) -> list[Message]:
        """Return messages that also hold what the template would not write."""
        told = [self._with_calls(message) for message in messages]
        if self.tools and tools and not any(_explains(message) for message in told):
            told = _with_tools(told, tools)
        if self.system:
            told = [_by_user(one, one["content"], "system") for one in told]
        if self.answers:
            told = [
                _by_user(one, f"{ANSWER_OPEN}\n{one['content']}\n{ANSWER_CLOSE}", "tool")
                for one in told
            ]
        return _joined(told) if self.system or self.answers else told

    def _with_calls(self, message: Message) -> Message:
        if not self.calls or not message.get("tool_calls"):
            return message
        content = canonical(message["content"], message.get("tool_calls", []))
        return {"role": message["role"], "content": content}


LEARNED = Mending()
"""For a model that learned its tools from examples, and reads no schemas."""


def _with_tools(messages: list[Message], tools: Sequence[JsonObject]) -> list[Message]:
    schemas = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    offer = f"{OFFER}\n{schemas}\n{how_to_call(tools)}"
    if messages and messages[0]["role"] == "system":
        offer, messages = f"{messages[0]['content']}\n\n{offer}", messages[1:]
    return [{"role": "system", "content": offer}, *messages]


def mending_of(rendering: Rendering) -> Mending:
    """Return what a template does not show; the probe's `unread` tries calls."""
    if rendering.tokenizer.chat_template == CHAT_TEMPLATE:
        return LEARNED
    tool = {**LOOK, "function": {**LOOK["function"], "name": PLACEHOLDER}}
    tools = not shows(rendering, PLACEHOLDER, [ASKED], [tool])
    with_tools, without = (
        shows(rendering, ANSWER, [ASKED, SAID, ANSWERED], offered=offered)
        for offered in (not tools, False)
    )
    answers = not (with_tools and without)
    # Some write the system message into the last message alone, and only where it is the user's.
    turn = Mending(answers=answers).messages([ASKED, SAID, ANSWERED])
    system = all(shows(rendering, RULE, [RULES, *after]) for after in ([ASKED], turn))
    return Mending(tools=tools, answers=answers, system=not system)


def shows(
    rendering: Rendering,
    text: str,
    messages: Sequence[Message],
    tools: Sequence[JsonObject] = (),
    *,
    offered: bool = False,
) -> bool:
    """Return whether the template writes a text that these messages or tools contain."""
    try:
        return text in rendering.text(messages, tools, offered=offered)
    except TemplateRefused:
        return False


def _explains(message: Message) -> bool:
    return message["role"] == "system" and OPEN in message["content"]


def _by_user(message: Message, content: str, role: str) -> Message:
    """Return a message of a role as a user's message with this content; any other unchanged."""
    return {"role": "user", "content": content} if message["role"] == role else message


def _joined(messages: Sequence[Message]) -> list[Message]:
    """Return the messages with user's messages that follow each other made into one."""
    told: list[Message] = []
    for one in messages:
        if one["role"] == "user" and told and told[-1]["role"] == "user":
            told[-1] = {"role": "user", "content": f"{told[-1]['content']}\n\n{one['content']}"}
        else:
            told.append(one)
    return told
