"""One step of an episode, whatever happens in it, and the form of a failure.

This module loads no chat template, because stages that only judge stored attempts use it too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

from genenv_core.canonical import said_odd
from genenv_core.domains.rewards import wrong_rewards
from genenv_core.domains.tool_calls import as_read
from genenv_core.errors import DomainError, one_line
from genenv_core.types import Cause, Message, Observation

EPISODE_TURN = -1
"""The `turn` with which a caller asks `seed_of` for the seed of the environment itself."""

NOT_STARTED = "the episode could not start"
FAILED = "the environment failed"
REFUSED = "the environment refused what the agent said"
"""How the error of an attempt begins: its episode did not start, or its steps failed."""

SHOWN = 120
"""Most characters of an agent's text that an error shows."""

LONGEST = 200_000
"""Most characters of one message, some 50,000 tokens: no attempt has room for a longer one."""

LONGER = (
    "return less, such as the first rows and how many there are, or a page that the agent asks for"
)
"""The remedy for a longer message."""

_PLACE = re.compile(r"; in (?:episode|step|agent_messages)(?:, turn \d+)? of task ")

FAILURES = (Exception, SystemExit)
"""What a domain's code may raise and end no more than its own attempt."""


class EnvironmentLost(ConnectionError):
    """The environment of an attempt gives no answer, or one that nobody can read.

    It says nothing about an agent or a task. An episode that raises it fails by its environment.
    """


def stepped(step: Callable[..., object], *action: str) -> Observation:
    """Return the environment's answer; an error in it becomes an observation too."""
    try:
        observation = step(*action)
        if not isinstance(observation, Observation):
            raise TypeError(f"step returned {type(observation).__name__}, not an Observation")
        messages = tuple(map(_whole, observation.messages))
        if said := too_long(messages):
            raise ValueError(f"{said}: {LONGER}")
        for message in messages:
            if said := wrong_rewards(message):
                raise ValueError(said)
        if said := _no_prompt(observation):
            raise ValueError(f"Observation(anew=True): {said}")
        return replace(observation, messages=messages)
    except FAILURES as error:
        return failure(error)


def _no_prompt(observation: Observation) -> str:
    """Return why an observation cannot begin the conversation anew, '' where nothing is wrong.

    An assistant's message has no place in a new prompt: the agent did not sample it there.
    """
    if not observation.anew:
        return ""
    if observation.failed:
        return "a step that failed begins nothing anew: leave out anew or failed"
    if not observation.messages:
        return "it has no messages, and they are the whole prompt that the agent reads next"
    other = {message["role"] for message in observation.messages} - {"system", "user"}
    if other:
        return (
            f"a message has the role {min(other)!r}: say in a user's message what was done and "
            "answered before; a new prompt has messages of system and user alone"
        )
    return ""


def storable(text: str) -> str:
    """Return a text with ? for halves of characters, which JSON can bring and no file can hold."""
    return text.encode(errors="replace").decode()


def _whole(message: Message) -> Message:
    """Return a message whose content, and name if it has one, a file can hold.

    Raises TypeError for a content that is no text.
    """
    content = cast(object, message["content"])
    if not isinstance(content, str):
        raise TypeError(f"a message's content is no text: {said_odd('', content)}")
    whole: Message = {**message, "content": storable(content)}
    if "name" in whole:
        whole["name"] = storable(whole["name"])
    return whole


def failure(error: BaseException) -> Observation:
    """Return the observation of tools that failed, as the agent sees it.

    A DomainError blames the agent's text; any other error is the environment's own failure.
    """
    said: Message = {"role": "tool", "content": f"error: {error_line(error)}"}
    cause = Cause.AGENT if isinstance(error, DomainError) else Cause.ENVIRONMENT
    return Observation((said,), done=False, failed=True, cause=cause)


def as_observed(observation: Observation) -> list[Message]:
    """Return an environment's messages in the form of a transcript.

    `simulated` marks messages of pi_env, `error` those of a failed step. `anew` marks the first
    message where the conversation begins anew.
    """
    answered = [message.copy() for message in observation.messages]
    for message in answered:
        if observation.simulated:
            message["simulated"] = True
        if observation.failed:
            message["error"] = True
    if observation.begins_anew and answered:
        answered[0]["anew"] = True
    return answered


def too_long(messages: Sequence[Message]) -> str:
    """Return that a message is longer than `LONGEST`, in words; '' if none is."""
    longest = max((len(message["content"]) for message in messages), default=0)
    if longest <= LONGEST:
        return ""
    return f"a message has {longest:,} characters, {LONGEST:,} at most"


def broken(observation: Observation, task_id: str, turn: int, action: str = "") -> str:
    """Return the error of an attempt that a failed observation ends, with its place.

    Args:
        observation: the failed one.
        task_id: task of the attempt.
        turn: from 1; 0 where the episode did not open.
        action: the agent's text in that turn.
    """
    what = REFUSED if observation.cause is Cause.AGENT else FAILED
    messages = observation.messages
    why = messages[-1]["content"].removeprefix("error: ") if messages else "it gave no answer"
    if not turn:
        return f"{NOT_STARTED}: {why}; in episode of task {task_id}"
    return f"{what}: {why}; in step, turn {turn} of task {task_id}, on {shortly(action)}"


def reason(error: str) -> str:
    """Return the error of an attempt without its place, so that equal errors compare equal."""
    return _PLACE.split(error, maxsplit=1)[0]


def shortly(action: str) -> str:
    """Return an agent's text for an error: on one line, with calls in readable form."""
    text = one_line(as_read(action))
    return (text if len(text) <= SHOWN else f"{text[:SHOWN]}...") or "an empty text"


def error_line(error: BaseException) -> str:
    """Return type and first line of an error, as the agent reads it and traces store it.

    This text is part of results, so it must not change; `errors.described` is for people, and may.
    """
    lines = str(error).splitlines() or [""]
    return storable(f"{type(error).__name__}: {lines[0][:200]}")
