"""Warns of an epoch that teaches little or nothing, and stops the run after two that teach nothing.

A stage puts the warning into its facts, under a name of `TROUBLES`. The terminal, the Prefect UI
and `genenv status` show it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from genenv_core.config.sections.rollout import RolloutConfig
from genenv_core.domains.steps import reason
from genenv_core.epoch.attempting.choosing import chosen_tasks
from genenv_core.errors import StageError
from genenv_core.types import FinishReason, Rejection

NO_TASK, BROKEN, BREAKING = "no_task", "all_broken", "half_broken"
ENDLESS, NARROW, SHORT = "endless", "narrow", "warm_start_short"

TROUBLES = {
    NO_TASK: "The epoch before had none either, so the run stops: change the domain's prompt for "
    "pi_env, the section generation, or the model of pi_env, or teach a given one first "
    "(warm_start.steps)",
    BROKEN: "So did those of the epoch before, and nothing can be learned from them, so the run "
    "stops: mend the domain (`genenv domain check` plays it without models), its tools or the "
    "engine",
}
"""By name of the fact: the error, with what to do, when two epochs in a row have it."""

MANY = 0.5
"""The epoch warns from this share of attempts that end in an error."""

NEARLY_ALL = 0.9
"""The epoch warns from this share of attempts that a bound cuts off."""

BOUNDS = ("max_tokens", "max_turns", "max_length")

ONE_FAMILY = 0.9
"""The epoch warns from this share of its attempted tasks in one family."""

SAME_REQUESTS = 0.75
"""The epoch warns from this share of attempted tasks whose request repeats another's.

Requests of `trails`, whose worlds differ behind equal words, repeat in .7 of the tasks of runs that
gain, and in .84 of those of a run that wrote little else and did not gain."""

REPEATS = 0.5
"""The epoch warns from this share of pi_env's texts that were tasks before."""

SAME_WORD, MORE_OFTEN = 0.5, 4.0
"""The epoch warns of a word that this share of its attempted tasks has, and that is this many times
as frequent in their requests as in those of the base tasks.

In runs that gain, a word that common is at most 2.4 times as frequent. Where pi_env ended up with
one word, it was 4 to 9 times as frequent."""

LEAST_TASKS = 10
"""Fewest attempted tasks for which such a share counts."""

SHOWN = 400
"""Characters of an error that a warning shows."""


def troubles(facts: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with an epoch, by the facts of one of its stages."""
    return [
        str(facts[name]) for name in (*TROUBLES, BREAKING, ENDLESS, NARROW, SHORT) if name in facts
    ]


def check_epoch(now: Mapping[str, Any], before: Sequence[Mapping[str, Any]]) -> None:
    """Raise StageError when a stage of this epoch and of the one before have the same trouble.

    `now` are the facts of the stage, `before` those of the epoch before, if there is one.
    """
    for name, remedy in TROUBLES.items():
        if name in now and any(name in facts for facts in before):
            raise StageError(f"{now[name]}. {remedy}")


def broken_attempts(traces: pl.DataFrame, epoch: int) -> dict[str, str]:
    """Return the fact that all attempts of an epoch, or half of them, ended in an error; else {}.

    Columns: trace_id, error.
    """
    broken = traces.filter(pl.col("error") != "").height
    if not broken or broken < MANY * traces.height:
        return {}
    return {BROKEN if broken == traces.height else BREAKING: errors_of(traces, epoch)}


def errors_of(traces: pl.DataFrame, epoch: int) -> str:
    """Return how many attempts ended in an error, the commonest error and its first attempt, or ''.

    The count ignores the place that an error names. Columns: trace_id, error.
    """
    broken = traces.filter(pl.col("error") != "").sort("trace_id")
    if not broken.height:
        return ""
    counts = Counter(map(reason, broken["error"]))
    ((common, count),) = counts.most_common(1)
    example, error = next(
        row for row in broken.select("trace_id", "error").rows() if reason(row[1]) == common
    )
    all_ = broken.height == traces.height
    many = f"all {broken.height}" if all_ else f"{broken.height} of {traces.height}"
    return (
        f"epoch {epoch}: {many} attempts ended in an error, {count} of them: "
        f"{error[:SHOWN]!r}, for example {example} (`genenv trace {example}`)"
    )


def endless_attempts(reasons: Sequence[str], which: str, settings: RolloutConfig) -> dict[str, str]:
    """Return the fact that bounds cut off nearly all attempts; else {}.

    `reasons` say why their last completions ended, as in `FinishReason`. `which` says where the
    attempts are from, such as "epoch 3".
    """
    cut = sum(reason == FinishReason.LENGTH for reason in reasons)
    if not cut or cut < NEARLY_ALL * len(reasons):
        return {}
    bounds = ", ".join(f"{name} {getattr(settings, name)}" for name in BOUNDS)
    return {
        ENDLESS: f"{which}: {cut} of {len(reasons)} attempts were cut off before the agent ended "
        f"them, at a bound of rollout ({bounds}): raise it, or see by `genenv doctor --model` "
        "which tokens end the agent's turns"
    }


def narrow_tasks(tasks: pl.DataFrame, base: pl.DataFrame, epoch: int) -> dict[str, str]:
    """Return the fact that pi_env writes nearly the same task again and again; else {}.

    It names the largest family of the attempted tasks, unless the base tasks have one family too;
    a word that most of their requests have and few base tasks; how many of the requests differ in
    words; and how many texts the intake refused as duplicates.

    Args:
        tasks: the epoch's rows of `tasks`, rejected ones too, with their choice.
        base: rows of `tasks` with the base tasks.
        epoch: number of the round.
    """
    tried = chosen_tasks(tasks)
    if tried.height < LEAST_TASKS:
        return {}
    found: list[str] = []
    ((family, count),) = Counter[str](tried["family"]).most_common(1)
    if count >= ONE_FAMILY * tried.height and base["family"].n_unique() > 1:
        found.append(f"{count} of {tried.height} attempted tasks are of the family {family}")
    requests = [_words(prompt) for prompt in tried["prompt"]]
    found += _one_word(requests, [_words(prompt) for prompt in base["prompt"]])
    different = len(set(requests))
    if tried.height - different >= SAME_REQUESTS * tried.height:
        found.append(f"the {tried.height} attempted tasks have {different} different requests")
    reasons = Counter[str](tasks["rejection"].drop_nulls())
    again = reasons[Rejection.DUPLICATE.value] + reasons[Rejection.DUPLICATE_OF_HISTORY.value]
    if again >= REPEATS * tasks.height:
        found.append(f"{again} of {tasks.height} texts of pi_env are tasks that were there before")
    if not found:
        return {}
    return {NARROW: f"epoch {epoch}: {'; '.join(found)}: pi_env writes little else"}


def _one_word(requests: Sequence[str], base: Sequence[str]) -> list[str]:
    """Return the phrase about the word that crowds out others most; [] without such a word.

    Both are requests as `_words` returns them. A word that no base task has counts as if one had
    it.
    """
    having = Counter(word for request in requests for word in set(request.split()))
    said, usual = (Counter(" ".join(of).split()) for of in (requests, base))
    times = {
        word: said[word] * usual.total() / (said.total() * max(usual[word], 1))
        for word, count in having.items()
        if count >= SAME_WORD * len(requests)
    }
    word = max(times, key=lambda one: (times[one], one), default=None)
    if word is None or times[word] < MORE_OFTEN:
        return []
    return [
        f"{having[word]} of {len(requests)} attempted tasks have the word {word!r}, "
        f"{times[word]:.0f} times as frequent as in base tasks"
    ]


def _words(request: str) -> str:
    return re.sub(r"[\W_]+", " ", request.casefold()).strip()
