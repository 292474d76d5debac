"""Flaws that the certificate of one task does not look for; `genenv certify` does.

The nine of `Flaw` decide whether a run takes a task of pi_env. These decide nothing in a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from genenv_core.domains.protocol import Domain
from genenv_core.play.checking.domain_checks import FLAWS
from genenv_core.types import Flaw


class SetFlaw(StrEnum):
    """Further flaws of a task, alone or beside the others of its set."""

    WRONG_VERDICT = "wrong_verdict"
    """An answer gets no verdict, or a reward that is no number from 0 to 1."""
    PASSES_UNATTEMPTED = "passes_unattempted"
    """An attempt that ends before its first turn is a success."""
    ALREADY_SOLVED = "already_solved"
    """An attempt of empty turns is a success: the task begins at its goal."""
    UNREPEATABLE = "unrepeatable"
    """Equal texts and an equal seed get different answers of the tools, or different verdicts."""
    IGNORES_SEED = "ignores_seed"
    """The domain says that its episodes depend on the seed, but all seeds give the same."""
    DEPENDS_ON_ORDER = "depends_on_order"
    """After other tasks the same attempts get different answers or verdicts."""
    DEPENDS_ON_TIME = "depends_on_time"
    """At another time the same attempts get different answers or verdicts."""
    CONTRADICTS = "contradicts"
    """Another task opens and answers alike, and the right answer there is wrong here."""
    DUPLICATE = "duplicate"
    """An earlier task opens alike and judges alike, or has the same fingerprint."""


AnyFlaw = Flaw | SetFlaw

REMEDIES: dict[AnyFlaw, tuple[str, str]] = {
    **FLAWS,
    SetFlaw.WRONG_VERDICT: (
        "score",
        "give every answer a Verdict whose reward is from 0 to 1, and raise nothing",
    ),
    SetFlaw.PASSES_UNATTEMPTED: ("score", "let nothing succeed before the agent said something"),
    SetFlaw.ALREADY_SOLVED: (
        "score",
        "begin the task where its goal is not reached yet, or give no such task",
    ),
    SetFlaw.UNREPEATABLE: (
        "episode",
        "draw from random.Random(seed) or from the task alone, or say repeatable = False",
    ),
    SetFlaw.IGNORES_SEED: ("episode", "use the seed, or say depends_on_seed = False"),
    SetFlaw.DEPENDS_ON_ORDER: ("score", "keep nothing of one attempt for another one"),
    SetFlaw.DEPENDS_ON_TIME: ("score", "keep the time that counts in the task; ask no clock"),
    SetFlaw.CONTRADICTS: (
        "base_tasks",
        "let the request or the tools say what tells the tasks apart",
    ),
    SetFlaw.DUPLICATE: ("base_tasks", "give each task once, and none of them in both sets"),
}
"""For each flaw: the method to mend, and how."""

MEANINGS: dict[AnyFlaw, str] = {
    Flaw.LEAKS_ANSWER: "The request says its answer, or a part that has to be worked out.",
    Flaw.REJECTS_GROUND_TRUTH: "The task's own answer is judged wrong.",
    Flaw.ACCEPTS_TRIVIAL: "An empty, constant, incomplete or echoed answer is a success.",
    Flaw.ACCEPTS_CANARY: "A text that answers nothing is a success.",
    Flaw.UNSTEADY_VERDICT: "One and the same attempt gets different verdicts.",
    Flaw.UNKNOWN_TOOL: "The right answer calls a tool that the agent does not have.",
    Flaw.UNREACHABLE: "A right attempt never succeeds.",
    Flaw.AMBIGUOUS: "A right attempt succeeds by chance: with some seeds of the environment.",
    Flaw.LEAKS_EARLY: "A tool says a part of the answer before the right calls were made.",
    SetFlaw.WRONG_VERDICT: "An answer gets no verdict, or a reward that is no number from 0 to 1.",
    SetFlaw.PASSES_UNATTEMPTED: "An attempt that ends before its first turn is a success.",
    SetFlaw.ALREADY_SOLVED: "An attempt that says nothing is a success.",
    SetFlaw.UNREPEATABLE: "The same turns with the same seed get other answers or verdicts.",
    SetFlaw.IGNORES_SEED: "The environment is to depend on its seed, and all seeds give the same.",
    SetFlaw.DEPENDS_ON_ORDER: "After other tasks the same attempt gets other answers or verdicts.",
    SetFlaw.DEPENDS_ON_TIME: "At another time the same attempt gets other answers or verdicts.",
    SetFlaw.CONTRADICTS: "Another task reads alike, and what is right there is wrong here.",
    SetFlaw.DUPLICATE: "The task is another one of the set again.",
}
"""What each flaw is, as a sentence for people who do not know genenv."""

NOT_FOUND = (
    "a judge that accepts wrong answers which nobody tried, such as every number",
    "a mistake that the ground truth, the judge and the domain's own solution share",
    "a hint in other words than the answer's",
    "a clock that is asked past Python",
)
"""Faults that no attempt shows."""


@dataclass(frozen=True, slots=True)
class SetCheck:
    """One check: the flaw that it looks for, and what it found, '' for nothing."""

    flaw: SetFlaw
    detail: str = ""

    @property
    def passed(self) -> bool:
        """Return whether the check found no flaw."""
        return not self.detail


@runtime_checkable
class DependsOnSeed(Protocol):
    """A domain that says whether its episodes depend on the seed; other domains leave it open."""

    depends_on_seed: bool


def depends_on_seed(domain: Domain) -> bool:
    """Return whether a domain says that other seeds give other episodes."""
    return isinstance(domain, DependsOnSeed) and domain.depends_on_seed
