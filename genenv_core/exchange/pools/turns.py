"""Cuts a transcript to what others may train on: whole turns of the agent, to the last of them.

A transcript often ends with a tool's answer, because the episode ended with the call. An agent has
nothing to learn there, and a program that trains on all that follows the prompt would learn the
tool's words. So genenv cuts a transcript after the agent's last whole turn. A turn that a bound of
length cut off is no whole turn: it would teach to stop in the middle.

Fine-tuning files of OpenAI's kind have rules beyond those of chats
(https://platform.openai.com/docs/guides/supervised-fine-tuning): the last message is the
assistant's, no message is empty, each call is answered by its id before anybody else speaks, but
for calls of the last message. A turn of the prompt that is the assistant's has weight 0, and so has
one whose call nobody could read: what stands for it there is not what the agent wrote.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from genenv_core.play.calls import said_calls
from genenv_core.play.transcript import TOOL_NAME, openai_messages
from genenv_core.types import FinishReason, JsonObject, Message

NO_ANSWER = "(no answer)"
"""Stands for an answer that the environment did not give, or that was empty."""

AFTER = "messages after the agent's last turn left out"
CUT = "turns left out that a bound of length had cut off"
EMPTY = "rollouts left out without a whole turn of the agent"
UNSPEAKABLE = "rollouts left out with a turn or a tool's name that the format forbids"
ANSWERED = f"calls without an answer given {NO_ANSWER!r}"
UNREAD = "turns given weight 0, as a call in them could not be read"


def whole_turns(
    messages: Sequence[Message], turns: int, finish_reason: str, changes: Counter[str]
) -> list[int]:
    """Return the places of the agent's whole turns, the last `turns` assistant messages.

    `changes` also counts the turns that it leaves out.
    """
    places = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    own = places[len(places) - turns :]
    if own and own[-1] == len(messages) - 1 and finish_reason == FinishReason.LENGTH.value:
        own.pop()
        changes[CUT] += 1
    if not own:
        changes[EMPTY] += 1
    else:
        changes[AFTER] += sum(m["role"] != "assistant" for m in messages[own[-1] + 1 :])
    return own


def conversation_start(messages: Sequence[Message], place: int) -> int:
    """Return where the conversation begins that the agent had before it at this place.

    0, or the last place before it at which the conversation began anew.
    """
    return next((i for i in range(place, 0, -1) if messages[i].get("anew")), 0)


def fine_tuning(
    messages: Sequence[Message], own: Sequence[int], changes: Counter[str]
) -> list[JsonObject] | None:
    """Return a transcript by the rules of fine-tuning files; None where they cannot hold it.

    `messages` name their calls; `own` are the places of the agent's turns, at least one; `changes`
    counts the changes by kind.
    """
    spoken = openai_messages(messages[: own[-1] + 1])
    found: list[JsonObject] = []
    waiting: list[str] = []
    for place, message in enumerate(spoken):
        role = message["role"]
        if role == "tool" and message["tool_call_id"] in waiting:
            waiting.remove(message["tool_call_id"])
        elif role == "tool":  # its call has an answer already, since somebody else spoke
            role, message = "user", {"role": "user", "content": message["content"]}
        else:
            found += [_answer(call, changes) for call in waiting]
            waiting = [call["id"] for call in message.get("tool_calls", ())]
        if not message["content"] and role in ("tool", "user"):
            changes[ANSWERED] += role == "tool"
            message = {**message, "content": NO_ANSWER}
        unread = _is_unread(messages[place], message)
        changes[UNREAD] += unread
        if role == "assistant" and (unread or place not in own):
            message = {**message, "weight": 0}
        if not _fits(message):
            changes[UNSPEAKABLE] += 1
            return None
        found.append(message)
    return found


def _answer(call_id: str, changes: Counter[str]) -> JsonObject:
    changes[ANSWERED] += 1
    return {"role": "tool", "tool_call_id": call_id, "content": NO_ANSWER}


def _fits(message: JsonObject) -> bool:
    calls = message.get("tool_calls", ())
    named = all(TOOL_NAME.fullmatch(call["function"]["name"]) for call in calls)
    return named and bool(calls or message["content"])


def _is_unread(message: Message, spoken: JsonObject) -> bool:
    """Return whether a call of a message that could not be read is a call where it is spoken."""
    unread = {call["id"] for call in said_calls(message) if not call["well_formed"]}
    return any(call["id"] in unread for call in spoken.get("tool_calls", ()))
