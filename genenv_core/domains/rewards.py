"""Rewards that an environment gives during an attempt, stored with its answers.

Some environments judge as they go, and nobody can judge a transcript of theirs later. Their answers
carry rewards: the message that answers an action has them by name under `rewards`. So the evidence
lies beside the text in every stored trace, and `Domain.score` stays a function of stored data. The
agent does not read it: no chat template gets this field.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

from genenv_core.errors import DomainError
from genenv_core.types import Message

REWARD = "reward"
"""The name of the reward itself; an environment may give others beside it."""


class RewardedMessage(Message, total=False):
    """A message of an environment, with the rewards of the step that it answers.

    None stands for a step without a reward; most steps have none where the reward comes at the end.
    """

    rewards: dict[str, float | None]


def rewarded(messages: Sequence[Message], rewards: Mapping[str, float | None]) -> list[Message]:
    """Return the messages of an answer, at least one, with its rewards on the last one."""
    *before, last = messages
    marked: RewardedMessage = {**last, "rewards": dict(rewards)}
    return [*before, marked]


def unrewarded(message: Message) -> Message:
    """Return a message without its rewards, as the agent reads it."""
    plain: dict[str, Any] = {**message}
    plain.pop("rewards", None)
    return cast(Message, plain)


def earned(message: Message) -> str:
    """Return the rewards of a message in words; '' for a message without any."""
    given = cast(RewardedMessage, message).get("rewards", {})
    return ", ".join(f"{name} {value:.3g}" for name, value in given.items() if value is not None)


def wrong_rewards(message: Message) -> str:
    """Return what is wrong with the rewards of a message; '' for right or missing ones."""
    given = cast(Mapping[str, object], message).get("rewards", {})
    if not isinstance(given, Mapping):
        return f"rewards is {given!r:.60}: give a mapping of names to numbers"
    for name, value in cast(Mapping[object, object], given).items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not isinstance(name, str) or not (
            value is None or (number and math.isfinite(cast(float, value)))
        ):
            return f"the reward {name!r:.60} is {value!r:.60}: give a finite number, or None"
    return ""


def rewards_given(messages: Sequence[Message]) -> list[dict[str, float | None]]:
    """Return the rewards of each action of a transcript that the environment answered, in order.

    A step that failed (`error`) did not happen and has no rewards. A last turn without an answer,
    as where an attempt was cut, has none either. Raises DomainError for an answer without rewards:
    somebody else played this transcript, so nobody can judge it.
    """
    steps: list[dict[str, float | None]] = []
    turns = [place for place, one in enumerate(messages) if one["role"] == "assistant"]
    for place, end in zip(turns, [*turns[1:], len(messages)], strict=True):
        answer = messages[place + 1 : end]
        if not answer or any(message.get("error") for message in answer):
            continue
        found = (cast(RewardedMessage, one).get("rewards") for one in answer)
        given = [one for one in found if one is not None]
        if not given:
            raise DomainError(
                "the environment judges attempts while they are played, and this transcript has "
                f"no rewards at turn {turns.index(place) + 1}: let the task be attempted again"
            )
        steps += given
    return steps
