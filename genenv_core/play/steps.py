"""One step of an episode, whatever happens in it: who asks for it, and what a failure looks like.

Light on purpose: stages that only judge stored attempts use it too, and load no chat template.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from genenv_core.errors import DomainError
from genenv_core.types import Cause, Message, Observation

EPISODE_TURN = -1
"""The `turn` for which `seed_of` is asked for the seed of the environment itself."""

NOT_STARTED = "the episode could not start"
FAILED = "the environment failed"
REFUSED = "the environment refused what the agent said"
"""What the error of an attempt begins with whose episode did not start, or whose steps failed."""

FAILURES = (Exception, SystemExit)
"""What a domain's code may raise without ending more than its own attempt: anything."""


def stepped(step: Callable[..., object], *action: str) -> Observation:
    """Return what an environment answers; whatever goes wrong in it is an observation too."""
    try:
        observation = step(*action)
        if not isinstance(observation, Observation):
            raise TypeError(f"step returned {type(observation).__name__}, not an Observation")
        return replace(observation, messages=tuple(map(_whole, observation.messages)))
    except FAILURES as error:
        return failure(error)


def storable(text: str) -> str:
    """Return a text without halves of characters, which JSON can bring and no file can hold."""
    return text.encode(errors="replace").decode()


def _whole(message: Message) -> Message:
    """Return a message whose content, and name if it has one, can be stored."""
    whole: Message = {**message, "content": storable(message["content"])}
    if "name" in whole:
        whole["name"] = storable(whole["name"])
    return whole


def failure(error: BaseException) -> Observation:
    """Return what the agent sees of tools that failed.

    A DomainError is about what the agent said; anything else is the environment's own failure.
    """
    said: Message = {"role": "tool", "content": f"error: {error_line(error)}"}
    cause = Cause.AGENT if isinstance(error, DomainError) else Cause.ENVIRONMENT
    return Observation((said,), done=False, failed=True, cause=cause)


def broken(observation: Observation) -> str:
    """Return the error of an attempt that a failed observation ends."""
    what = REFUSED if observation.cause is Cause.AGENT else FAILED
    messages = observation.messages
    why = messages[-1]["content"].removeprefix("error: ") if messages else "it gave no answer"
    return f"{what}: {why}"


def error_line(error: BaseException) -> str:
    """Return type and first line of an error, as the agent reads it and traces store it.

    So this text is part of results; `errors.described` is for people, and may change.
    """
    lines = str(error).splitlines() or [""]
    return storable(f"{type(error).__name__}: {lines[0][:200]}")
