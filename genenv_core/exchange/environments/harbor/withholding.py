"""Finds the fields of a task that an agent's container can go without, so it holds no answer.

No domain says which fields its environment needs. So genenv plays attempts with the whole task and
without a field, and the agent must read the same in both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from genenv_core.domains.kit.several.joined import wrapped
from genenv_core.domains.protocol import Domain, JoinsDomains, PartOfSeveral
from genenv_core.exchange.environments.playing import ExportedAttempt, TurnLimits
from genenv_core.types import TaskDraft

_SPELLED = ("ground_truth", "program", "fingerprint")

_PART = "spec."

CHOICES = (("spec", *_SPELLED), _SPELLED, ())
"""Fields that a task may go without; the first of these that no attempt notices are left out."""

WITHOUT: dict[str, Any] = {"spec": {}, "ground_truth": "", "program": "", "fingerprint": ""}
"""What stands in the place of a field that is left out."""


@dataclass(frozen=True, slots=True)
class PlayedTurns:
    """What an agent said at one of the tasks; `seed` is that of the environment's chance."""

    index: int
    turns: tuple[str, ...]
    seed: int = 0


@dataclass(frozen=True, slots=True)
class TasksOfDomain:
    """The tasks of one domain among all: their places, and themselves as that domain made them.

    `part` is the domain among several ones; None where it is the only one.
    """

    domain: Domain
    part: PartOfSeveral | None
    places: list[int]
    drafts: list[TaskDraft]

    def whole(self, own: TaskDraft) -> TaskDraft:
        """Return a task as the run has it, from what its domain made."""
        return wrapped(self.part, own) if self.part else own

    def said_of(self, fields: Sequence[str]) -> str:
        """Return which fields these tasks go without, in words."""
        said = ", ".join(fields) or "none"
        return f"{self.part.label}: {said}" if self.part else said


def by_domain(domain: Domain, drafts: Sequence[TaskDraft]) -> list[TasksOfDomain]:
    """Return the tasks of each domain that has some; in a run of one domain, all of them."""
    if not isinstance(domain, JoinsDomains):
        return [TasksOfDomain(domain, None, list(range(len(drafts))), list(drafts))]
    found: list[TasksOfDomain] = []
    for part in domain.parts:
        own = {
            place: task
            for place, (of, task) in enumerate(map(domain.own_task, drafts))
            if of is part.domain
        }
        if own:
            found.append(TasksOfDomain(part.domain, part, list(own), list(own.values())))
    return found


def withheld(
    domain: Domain, drafts: Sequence[TaskDraft], limits: TurnLimits, plays: Iterable[PlayedTurns]
) -> tuple[str, ...]:
    """Return the fields that the environment needs in none of these attempts.

    Where it needs the spec, they are keys of the spec that it can go without together. Returns ()
    unless every task has an attempt.
    """
    known = list(plays)
    if {play.index for play in known} != set(range(len(drafts))):
        return ()
    read = [_read(domain, drafts[play.index], limits, play) for play in known]

    def unnoticed(fields: Sequence[str]) -> bool:
        bare = [without(draft, fields) for draft in drafts]
        pairs = zip(known, read, strict=True)
        return all(_read(domain, bare[play.index], limits, play) == whole for play, whole in pairs)

    found = next((fields for fields in CHOICES if unnoticed(fields)), ())
    if found == _SPELLED:
        for key in sorted({key for draft in drafts for key in draft.spec}):
            more = (*found, f"{_PART}{key}")
            found = more if unnoticed(more) else found
    return found


def without(draft: TaskDraft, fields: Sequence[str]) -> TaskDraft:
    """Return a task without these fields; `spec.KEY` is one key of its spec."""
    keys = {name.removeprefix(_PART) for name in fields if name.startswith(_PART)}
    spec = {key: value for key, value in draft.spec.items() if key not in keys}
    left_out = {name: WITHOUT[name] for name in fields if name in WITHOUT}
    return replace(draft, **{"spec": spec, **left_out})


def _read(domain: Domain, draft: TaskDraft, limits: TurnLimits, play: PlayedTurns) -> list[str]:
    """Return all that an agent reads who says these turns."""
    try:
        attempt = ExportedAttempt(domain, draft, limits, play.seed)
        read = [attempt.opening()]
        for turn in play.turns:
            read += [message["content"] for message in attempt.say(turn)]
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]
    return [*read, str(attempt.done)]
