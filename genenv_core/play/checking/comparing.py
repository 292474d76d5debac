"""Compares the tasks of a set with each other, and each with itself later and in another order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Protocol, runtime_checkable

from genenv_core.domains.protocol import Domain, judged_while_played, repeatable, tools_of
from genenv_core.domains.steps import FAILURES, error_line, shortly
from genenv_core.play.asked import shown
from genenv_core.play.checking.clock import clock_ahead, clocks
from genenv_core.play.checking.probing import (
    Judged,
    TaskProbe,
    answered,
    differing,
    played,
    probe,
    turns_of,
)
from genenv_core.play.checking.set_flaws import SetCheck, SetFlaw
from genenv_core.types import TaskDraft

MOST_ALIKE = 20
"""Most earlier tasks with which to compare a task that opens as they do."""

Clock = Callable[[], AbstractContextManager[None]]
"""Sets the clock that the domain's code sees ahead inside of a block."""


@runtime_checkable
class HasClock(Protocol):
    """A domain whose code runs in another process, where it has a clock."""

    def clock_ahead(self) -> AbstractContextManager[None]:
        """Set that clock ahead inside of the block."""
        ...


def clock_of(domain: Domain) -> Clock | None:
    """Return how to set the domain's clock ahead; None where its environment has its own."""
    if isinstance(domain, HasClock):
        return domain.clock_ahead
    if judged_while_played(domain):
        return None
    return partial(clock_ahead, clocks(type(domain).__module__.partition(".")[0]))


def later_checks(
    draft: TaskDraft, first: TaskProbe, domain: Domain, clock: Clock | None
) -> list[SetCheck]:
    """Return whether a task's attempts have the same outcomes after all others, and later.

    `first` has their outcomes before; later, the clock is ahead. Where attempts cannot be repeated,
    it checks nothing. Raises EnvironmentLost where the environment that plays the task is lost.
    """
    if not repeatable(domain):
        return []
    again = probe(draft, domain)
    order, late = differing(first, again), ""
    if clock:
        with clock():
            ahead = probe(draft, domain)
        if late := differing(again, ahead):
            # A probe right after one of the same task is in another order, too.
            itself = probe(draft, domain)
            late, order = differing(itself, ahead), order or differing(again, itself)
    found = {SetFlaw.DEPENDS_ON_ORDER: order, **({SetFlaw.DEPENDS_ON_TIME: late} if clock else {})}
    return [SetCheck(flaw, detail) for flaw, detail in found.items()]


def alike(domain: Domain, drafts: Sequence[TaskDraft]) -> list[list[TaskDraft]]:
    """Return for each task the earlier ones that open alike or have its fingerprint."""
    before: defaultdict[str, list[TaskDraft]] = defaultdict(list)
    found: list[list[TaskDraft]] = []
    for draft in drafts:
        opening = _opening(domain, draft)
        same, named = before[opening], before[draft.fingerprint]
        found.append([*(one for one in named if one not in same), *same][:MOST_ALIKE])
        same.append(draft)
        named.append(draft)
    return found


def _opening(domain: Domain, draft: TaskDraft) -> str:
    """Return an agent's first view of a task as text; one that no other task has if that fails."""
    try:
        return repr([domain.agent_messages(draft), list(tools_of(domain, draft))])
    except FAILURES as error:  # its certificate says so
        return f"{draft.fingerprint}: {error_line(error)}"


def beside_checks(draft: TaskDraft, domain: Domain, earlier: Sequence[TaskDraft]) -> list[SetCheck]:
    """Return whether a task contradicts one of the earlier ones, or repeats it.

    Raises EnvironmentLost where the environment that plays the task is lost.
    """
    contradiction = twin = ""
    for other in earlier:
        if other.fingerprint == draft.fingerprint:
            twin = twin or f"an earlier task has the fingerprint {shown(draft.fingerprint)}"
        elif repeatable(domain):
            said, there, here = _right_there(other, draft, domain)
            if not there.success or there.heard != here.heard:
                continue  # so the tools tell the two apart
            if not here.success:
                contradiction = contradiction or (
                    f"{said}, right in an earlier task that opens alike, gets {here.verdict}"
                )
            elif other.spec == draft.spec or not tools_of(domain, draft):
                # With tools, what this attempt did not ask for may still be something else.
                twin = twin or f"{said}, right in an earlier task that opens alike, is right here"
    return [
        SetCheck(SetFlaw.CONTRADICTS, contradiction),
        SetCheck(SetFlaw.DUPLICATE, twin),
    ]


def _right_there(other: TaskDraft, draft: TaskDraft, domain: Domain) -> tuple[str, Judged, Judged]:
    """Return a right attempt at another task in words, with its outcome there and here.

    Without tools and a solution the ground truth is that attempt. A domain with tools and no
    solution gets no attempt: one that calls no tool does not show whether tools tell tasks apart.
    """
    turns = turns_of(other, domain)
    if turns:
        there, here = (played(one, domain, turns) for one in (other, draft))
        return shortly(turns[-1]), there, here
    if tools_of(domain, other) or not other.ground_truth:
        return "", Judged(""), Judged("")
    there, here = (answered(one, domain, other.ground_truth) for one in (other, draft))
    return shortly(other.ground_truth), there, here
