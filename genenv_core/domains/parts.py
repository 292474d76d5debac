"""Parts that domains share: options, shares of difficulties, draws, and pi_env's request.

A hash of a task's fingerprint, often its program in its canonical spelling, decides whether it is
held out. So base and seed data never meet the held-out tasks, whatever the seeds.
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from genenv_core.errors import ConfigError
from genenv_core.machine.plugin_failures import wrong_options
from genenv_core.types import Message, TaskDraft

HELDOUT_ONE_IN = 5  # one program in five can only ever be a held-out task
TRIES = 400  # draws without a new task before a difficulty counts as used up

AIM = (
    "You are told the success of the agent on its recent tasks (none: not known yet) and a base "
    "program to vary. Aim for tasks that it solves half of the time: harder ones where it solves "
    "more, easier ones where it solves less. Write a new program, no copy of the base and none of "
    "this example:"
)
"""What pi_env's rules say about `env_request`; an example request and program follow."""

Options = TypeVar("Options", bound=BaseModel)


def read_options(model: type[Options], options: Mapping[str, Any], domain: str) -> Options:
    """Return the options of a domain from a configuration; raises ConfigError on bad ones."""
    try:
        return model.model_validate(dict(options))
    except ValidationError as error:
        raise ConfigError(
            f"{wrong_options(error, 'domain')} "
            f"(options of {domain}: {', '.join(model.model_fields)})"
        ) from error


def in_heldout(fingerprint: str) -> bool:
    """Return whether the hash of a fingerprint holds its task out: one task in five."""
    return hashlib.sha256(fingerprint.encode()).digest()[0] % HELDOUT_ONE_IN == 0


def distinct(
    count: int,
    hardest: int,
    pick: Callable[[Sequence[int]], int],
    draw: Callable[[int], TaskDraft],
    *,
    heldout: bool,
    domain: str,
    bounds: str = "",
    more: str = "raise the options",
) -> list[TaskDraft]:
    """Return `count` distinct tasks, all inside or all outside of the held-out bucket.

    Fingerprints decide which tasks are equal, and which are held out.

    Args:
        count: how many tasks.
        hardest: the highest difficulty; they begin with 1.
        pick: chooses a difficulty among those that still have new tasks.
        draw: draws a task of a difficulty.
        heldout: whether the tasks are of the held-out bucket.
        domain: the domain's name, for the error.
        bounds: the options that bound its tasks, for the error; '' for none.
        more: how to get more tasks, for the error.

    Raises:
        ConfigError: there are fewer than `count` tasks.
    """
    left = list(range(1, hardest + 1))
    drafts: dict[str, TaskDraft] = {}
    while len(drafts) < count:
        if not left:
            found = f"{domain} has only about {len(drafts)}"
            has = len(drafts)
            raise too_few(found, has, count, heldout=heldout, bounds=bounds, more=more)
        difficulty = pick(left)
        for _ in range(TRIES):
            draft = draw(difficulty)
            if in_heldout(draft.fingerprint) == heldout and draft.fingerprint not in drafts:
                drafts[draft.fingerprint] = draft
                break
        else:
            left.remove(difficulty)
    return list(drafts.values())


def draw_open(
    rng: random.Random,
    weights: Sequence[float],
    draw: Callable[[int], TaskDraft],
) -> TaskDraft:
    """Return a task outside of the held-out bucket, of a difficulty drawn by weight.

    Raises ConfigError when `TRIES` draws in a row are held out.
    """
    held = ""
    for _ in range(TRIES):
        drawn = draw(rng.choices(range(1, len(weights) + 1), weights)[0])
        held = drawn.fingerprint
        if not in_heldout(held):
            return drawn
    raise ConfigError(
        f"{TRIES} draws made tasks of the held-out bucket alone, such as {held[:80]!r}: "
        "raise domain.options, so that there are more tasks"
    )


class TooFewTasks(ConfigError):
    """A domain has fewer distinct tasks than are wanted.

    `has` is how many it found: a call for so many gets them, or hears a smaller number.
    """

    def __init__(self, message: str, has: int) -> None:
        super().__init__(message)
        self.has = has


def too_few(
    found: str, has: int, count: int, *, heldout: bool, bounds: str, more: str
) -> TooFewTasks:
    """Return the error of a domain with fewer tasks than wanted.

    Args:
        found: the domain and how many tasks it has, in words.
        has: how many it has.
        count: how many are wanted.
        heldout: whether they are of the held-out bucket.
        bounds: the options that bound its tasks; '' for none.
        more: how to get more tasks.
    """
    which, setting = (
        ("held-out", "data.validation_tasks or data.test_tasks")
        if heldout
        else ("base", "data.base_tasks")
    )
    given = f" with {bounds}" if bounds else ""
    message = f"{found} {which} tasks{given}, {count} wanted: lower {setting}, or {more}"
    return TooFewTasks(message, has)


def in_turn() -> Callable[[Sequence[int]], int]:
    """Return a function that picks difficulties one after the other, for held-out tasks."""
    turn = itertools.count()
    return lambda left: left[next(turn) % len(left)]


def by_weight(rng: random.Random, weights: Sequence[float]) -> Callable[[Sequence[int]], int]:
    """Return a function that picks difficulties by weight, for base tasks.

    Weight i is that of difficulty i + 1.
    """
    return lambda left: rng.choices(left, [weights[difficulty - 1] for difficulty in left])[0]


def mixed_weights(hardest: int) -> list[float]:
    """Return the shares of difficulties 1, 2, ... in base tasks and the agent's seed data.

    For 6 of them about .38 .25 .16 .10 .07 .04.
    """
    return _geometric(hardest, 0.65)


def env_weights(hardest: int, easy_skew: float) -> list[float]:
    """Return the shares of difficulties 1, 2, ... in pi_env's seed data.

    For 6 of them at skew 1 about .75 .16 .04 .02 .01 .01. A uniform part of 8 % keeps every
    difficulty possible, so that reward-weighted regression has something to reinforce.
    """
    return skewed_weights(_kept_possible(_geometric(hardest, 0.2), 0.08), easy_skew)


def steep_weights(hardest: int) -> list[float]:
    """Return the shares of difficulties 1, 2, ..., nearly all of which the easiest fifth has.

    For 12 of them .48 .48 .003 .003 and so on: harder tasks are rare, but possible.
    """
    easiest = max(1, round(hardest / 5))
    return _kept_possible([(place < easiest) / easiest for place in range(hardest)], 0.04)


def even_weights(hardest: int) -> list[float]:
    """Return equal shares of difficulties 1, 2, ...."""
    return [1 / hardest] * hardest


def skewed_weights(easy: Sequence[float], easy_skew: float) -> list[float]:
    """Return the shares of difficulties in pi_env's seed data: `easy` at skew 1, equal at 0."""
    uniform = 1 / len(easy)
    return [easy_skew * share + (1 - easy_skew) * uniform for share in easy]


def drawn_rate(rng: random.Random) -> float | None:
    """Return a success of the agent for an example of pi_env: tenths, or None once in ten."""
    return None if rng.random() < 0.1 else rng.randint(0, 10) / 10


def env_request(rate: float | None, base: str) -> str:
    """Return pi_env's request: the agent's success in tenths, and a program to vary."""
    success = "none" if rate is None else f"{round(rate * 10)}/10"
    return f"success {success}; base: {base} ; new:"


def with_rules(rules: str, content: str) -> list[Message]:
    """Return a user message with `content`; the rules, if any, come first as a system message."""
    user: Message = {"role": "user", "content": content}
    return [{"role": "system", "content": rules}, user] if rules else [user]


def _kept_possible(shares: Sequence[float], uniform: float) -> list[float]:
    """Return the shares mixed with equal shares, which have the part `uniform` of the result."""
    each = 1 / len(shares)
    return [(1 - uniform) * share + uniform * each for share in shares]


def _geometric(hardest: int, ratio: float) -> list[float]:
    raw = [ratio**index for index in range(hardest)]
    return [value / sum(raw) for value in raw]
