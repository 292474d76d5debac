"""Certifies whole sets of tasks: every check of every task, and how many tasks have each flaw.

A run refuses the tasks of pi_env by the certificate of one task (`genenv_core.play.certificate`).
Here it says how sound the tasks are that a domain draws itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from genenv_core.algorithm.success.shares import wilson
from genenv_core.domains.protocol import (
    Domain,
    KnowsSolution,
    WritesAnswers,
    judged_while_played,
    repeatable,
)
from genenv_core.domains.steps import EnvironmentLost
from genenv_core.errors import ConfigError, DomainError
from genenv_core.play.asked import shown
from genenv_core.play.certificate import ATTEMPTS, CANARIES, REPEATS, Check, certify
from genenv_core.play.checking.calling import called, drawn
from genenv_core.play.checking.domain import of_attributes
from genenv_core.play.checking.shapes import StopChecking
from genenv_core.types import Flaw, TaskDraft

PROMPT = 200
"""Characters of a prompt that a row has."""


@dataclass(frozen=True, slots=True)
class SetTask:
    """A task, and the set of the domain that it is in: `base` or `heldout`."""

    set_name: str
    draft: TaskDraft


@dataclass(frozen=True, slots=True)
class CertifiedTask:
    """A task of a set with all checks of its certificate."""

    task: SetTask
    checks: tuple[Check, ...]

    @property
    def sound(self) -> bool:
        """Return whether no check found its flaw."""
        return all(check.passed for check in self.checks)


@dataclass(frozen=True, slots=True)
class FlawCount:
    """How many tasks were checked for a flaw and have it, and the first that has it.

    Without a `flaw` it counts the tasks that have at least one. `low` and `high` are Wilson's 95 %
    interval of the share.
    """

    flaw: Flaw | None
    checked: int
    having: int
    low: float
    high: float
    detail: str = ""
    prompt: str = ""


class Cost(NamedTuple):
    """Most attempts and verdicts that the certificate of one task takes.

    Each trivial answer takes one more verdict, and with `played` one more attempt as well.
    """

    attempts: int
    verdicts: int
    played: bool


def cost_of(domain: Domain) -> Cost:
    """Return what the certificate of one task costs at most."""
    played = judged_while_played(domain)
    solved = ATTEMPTS if isinstance(domain, KnowsSolution | WritesAnswers) else 0
    early = 2 + len(CANARIES) if isinstance(domain, KnowsSolution) else 0
    again = 1 if played and repeatable(domain) else 0
    verdicts = 1 + len(CANARIES) + 2 * (REPEATS + 1 + again) + solved
    judged = 1 + len(CANARIES) + 2 * (1 + again) if played else 0
    return Cost(solved + early + judged, verdicts, played)


def draw_sets(domain: Domain, base: int, heldout: int, seed: int = 0) -> list[SetTask]:
    """Return base tasks and held-out tasks of a domain.

    Raises ConfigError where the domain says that it has fewer, StopChecking for any other fault.
    """
    asked: list[tuple[str, str, int, str]] = [
        ("base", "base_tasks", base, "data.base_tasks"),
        ("heldout", "heldout_tasks", heldout, "data.test_tasks"),
    ]
    for fault in of_attributes(domain):
        raise StopChecking(fault.method, fault.found, fault.remedy)
    found: list[SetTask] = []
    for set_name, method, count, option in asked:
        try:
            draw = partial(_draw, domain, method)
            drafts = drawn(method, draw, count, option, seed) if count else []
        except StopChecking as stop:
            if isinstance(stop.__cause__, ConfigError):
                raise ConfigError(f"{count} {set_name} tasks: {stop.__cause__}") from stop
            raise
        found += [SetTask(set_name, draft) for draft in drafts]
    return found


def _draw(domain: Domain, method: str, seed: int, count: int) -> Any:
    return getattr(domain, method)(seed, count)


def certified(domain: Domain, tasks: Sequence[SetTask]) -> Iterator[CertifiedTask]:
    """Yield each task with its checks, one after the other, so that a caller can keep them.

    Raises StopChecking where the domain raises something or takes too long, and DomainError where
    the environment that plays the task is lost.
    """
    for task in tasks:
        on = f" on task {shown(task.draft.prompt)}"
        try:
            checks = called("certificate", lambda draft=task.draft: certify(draft, domain), on)
        except StopChecking as stop:
            lost = stop.__cause__
            if isinstance(lost, DomainError) and isinstance(lost.__cause__, EnvironmentLost):
                raise lost from lost.__cause__
            raise
        yield CertifiedTask(task, tuple(checks))


def counted(found: Sequence[CertifiedTask]) -> list[FlawCount]:
    """Return a count for each flaw that some task was checked for, in the order of `Flaw`.

    The last one counts the tasks that have any.
    """
    counts: list[FlawCount] = []
    for flaw in Flaw:
        checks = [(one, check) for one in found for check in one.checks if check.flaw is flaw]
        having = [(one, check) for one, check in checks if not check.passed]
        if checks:
            low, high = wilson(len(having), len(checks))
            first = [(check.detail, one.task.draft.prompt) for one, check in having[:1]]
            detail, prompt = first[0] if first else ("", "")
            counts.append(FlawCount(flaw, len(checks), len(having), low, high, detail, prompt))
    flawed = sum(not one.sound for one in found)
    return [*counts, FlawCount(None, len(found), flawed, *wilson(flawed, len(found)))]


def unchecked(domain: Domain, found: Sequence[CertifiedTask]) -> dict[str, list[Flaw]]:
    """Return the flaws that no task was checked for, by the reason."""
    checked = {check.flaw for one in found for check in one.checks}
    reasons: dict[str, list[Flaw]] = {}
    for flaw in Flaw:
        if flaw not in checked:
            reasons.setdefault(_why_not(flaw, domain), []).append(flaw)
    return reasons


def _why_not(flaw: Flaw, domain: Domain) -> str:
    solves = isinstance(domain, KnowsSolution)
    if flaw in (Flaw.LEAKS_ANSWER, Flaw.REJECTS_GROUND_TRUTH):
        return "only the environment knows what is right"
    if flaw is Flaw.LEAKS_EARLY:
        return "no solution reveals a part" if solves else "the domain has no `solution`"
    if solves or isinstance(domain, WritesAnswers):
        return "no task has a solution that can be played"
    return "the domain has neither `solution` nor `answer_turns`"


def rows_of(found: Sequence[CertifiedTask]) -> list[dict[str, Any]]:
    """Return a row for each task and check."""
    return [
        {
            "fingerprint": one.task.draft.fingerprint,
            "set": one.task.set_name,
            "family": one.task.draft.family,
            "difficulty": float(one.task.draft.difficulty),
            "prompt": one.task.draft.prompt[:PROMPT],
            "flaw": check.flaw.value,
            "passed": check.passed,
            "detail": check.detail,
        }
        for one in found
        for check in one.checks
    ]
