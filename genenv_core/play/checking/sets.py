"""Certifies whole sets of tasks: every check of every task, and how many tasks have each flaw.

A run refuses tasks of pi_env by the certificate of one task (`genenv_core.play.certificate`). This
module says how sound the tasks are that a domain draws itself, or that an exported folder holds. It
also looks for flaws that no certificate of one task shows: `genenv_core.play.checking.set_flaws`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from genenv_core.algorithm.success.shares import wilson
from genenv_core.domains.parts import TooFewTasks
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
from genenv_core.play.checking.comparing import alike, beside_checks, clock_of, later_checks
from genenv_core.play.checking.domain_checks import of_attributes
from genenv_core.play.checking.probing import NOTHING, TaskProbe, answered, probe, set_checks
from genenv_core.play.checking.set_flaws import (
    AnyFlaw,
    SetCheck,
    SetFlaw,
    depends_on_seed,
)
from genenv_core.play.checking.shapes import StopChecking
from genenv_core.types import Flaw, TaskDraft

PROMPT = 200
"""Most characters of a prompt in a row."""

FLAWS: tuple[AnyFlaw, ...] = (*Flaw, *SetFlaw)
"""All flaws, in the order of tables and pages."""

CHANCY = {Flaw.UNSTEADY_VERDICT, Flaw.AMBIGUOUS, SetFlaw.UNREPEATABLE}
"""Flaws of a task whose attempts have other outcomes each time."""

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class SetTask:
    """A task, and its set: `base` or `heldout` of a domain, `generated` of a folder."""

    set_name: str
    draft: TaskDraft


@dataclass(frozen=True, slots=True)
class CertifiedTask:
    """A task of a set with its checks, and with the outcomes of its first attempts."""

    task: SetTask
    checks: tuple[Check | SetCheck, ...]
    first: TaskProbe = field(default_factory=TaskProbe, compare=False, repr=False)

    @property
    def sound(self) -> bool:
        """Return whether no check found its flaw."""
        return all(check.passed for check in self.checks)

    @property
    def compared(self) -> bool:
        """Return whether the checks compare it with the others of its set."""
        return any(check.flaw is SetFlaw.DUPLICATE for check in self.checks)

    @property
    def steady(self) -> bool:
        """Return whether its attempts have the same outcomes when repeated on the spot."""
        return not any(check.flaw in CHANCY and not check.passed for check in self.checks)


@dataclass(frozen=True, slots=True)
class FlawCount:
    """How many tasks have a flaw, of how many that a check looked at, and the first that has it.

    Without a `flaw` it counts the tasks that have at least one. `low` and `high` are the ends of
    Wilson's 95 % interval of the share.
    """

    flaw: AnyFlaw | None
    checked: int
    having: int
    low: float
    high: float
    detail: str = ""
    prompt: str = ""


class Cost(NamedTuple):
    """Most attempts and verdicts that one task takes, if it has no flaw.

    Each trivial answer takes `trivial` more verdicts; with `played`, one more verdict and one more
    attempt.
    """

    attempts: int
    verdicts: int
    trivial: int
    played: bool


def cost_of(domain: Domain) -> Cost:
    """Return the most that a task costs: its certificate, and the further checks of a set."""
    played, again = judged_while_played(domain), repeatable(domain)
    solves = isinstance(domain, KnowsSolution | WritesAnswers)
    solved = ATTEMPTS if solves else 0
    early = 2 + len(CANARIES) if isinstance(domain, KnowsSolution) else 0
    verdicts = 1 + len(CANARIES) + 2 * (REPEATS + 1 + (played and again)) + solved
    judged = 1 + len(CANARIES) + 2 * (1 + again) if played else 0
    probes = 1 + again + (again and clock_of(domain) is not None)
    texts = 3 * probes  # the ground truth, nothing, a canary
    right = (probes + again) * solves
    seeds = 2 * ATTEMPTS * depends_on_seed(domain)
    return Cost(
        solved + early + judged + texts * played + right + 1 + seeds,
        verdicts + texts + right + 2 + seeds,
        1 if played else 1 + probes,
        played,
    )


def draw_sets(
    domain: Domain, base: int, heldout: int, seed: int = 0, fewer: Container[str] = ()
) -> list[SetTask]:
    """Return base tasks and held-out tasks of a domain.

    Of a set in `fewer` ("base", "heldout") come all that there are where the domain has fewer.
    Raises ConfigError where another set has fewer, or none has any; StopChecking for any other
    fault.
    """
    asked: list[tuple[str, str, int, str]] = [
        ("base", "base_tasks", base, "data.base_tasks"),
        ("heldout", "heldout_tasks", heldout, "data.test_tasks"),
    ]
    for fault in of_attributes(domain):
        raise StopChecking(fault.method, fault.found, fault.remedy)
    found: list[SetTask] = []
    short: ConfigError | None = None
    for set_name, method, count, option in asked:
        while count:
            try:
                drafts = drawn(method, partial(_draw, domain, method), count, option, seed)
            except StopChecking as stop:
                cause = stop.__cause__
                if not isinstance(cause, ConfigError):
                    raise
                short = ConfigError(f"{count} {set_name} tasks: {cause}")
                if set_name not in fewer or not isinstance(cause, TooFewTasks):
                    raise short from stop
                count = min(cause.has, count - 1)
            else:
                found += [SetTask(set_name, draft) for draft in drafts]
                break
    if short is not None and not found:
        raise short
    return found


def _draw(domain: Domain, method: str, seed: int, count: int) -> Any:
    return getattr(domain, method)(seed, count)


def certified(domain: Domain, tasks: Sequence[SetTask]) -> Iterator[CertifiedTask]:
    """Yield each task with its checks, one after the other, so that a caller can store them.

    `compared` makes the other checks. Raises StopChecking where the domain raises an error or takes
    too long, and DomainError where the environment that plays the task is lost.
    """
    for task in tasks:
        draft = task.draft
        first = _called(draft, partial(probe, draft, domain))
        checks = _called(draft, partial(certify, draft, domain))
        others = _called(draft, partial(set_checks, draft, domain, first))
        yield CertifiedTask(task, (*checks, *others), first)


def compared(domain: Domain, found: Sequence[CertifiedTask]) -> Iterator[tuple[int, CertifiedTask]]:
    """Yield the place of each certified task, and the task with all its checks.

    The last but one comes first, and the last one at the end, so each comes after another task than
    before. Raises what `certified` raises.
    """
    clock = clock_of(domain)
    earlier = alike(domain, [one.task.draft for one in found])
    places = list(range(len(found)))
    for place in [*places[-2::-1], *places[-1:]]:
        one, draft = found[place], found[place].task.draft
        later = partial(later_checks, draft, one.first, domain, clock)
        beside = partial(beside_checks, draft, domain, earlier[place])
        checks = [*(_called(draft, later) if one.steady else []), *_called(draft, beside)]
        yield place, replace(one, checks=(*one.checks, *checks))


def with_floor(domain: Domain, one: CertifiedTask) -> CertifiedTask:
    """Return a task, read back from its rows, with the present outcome of an empty answer."""
    draft = one.task.draft
    floor = _called(draft, lambda: answered(draft, domain, ""))
    return replace(one, first=TaskProbe({NOTHING: floor}))


def _called(draft: TaskDraft, work: Callable[[], Found]) -> Found:
    """Return the result of `work` within the time limit; raises as `certified`."""
    try:
        return called("certificate", work, f" on task {shown(draft.prompt)}")
    except StopChecking as stop:
        lost = stop.__cause__
        if isinstance(lost, EnvironmentLost):
            where = f"no certificate of the task {shown(draft.prompt)}"
            raise DomainError(f"{where}: {lost}") from lost
        if isinstance(lost, DomainError) and isinstance(lost.__cause__, EnvironmentLost):
            raise lost from lost.__cause__
        raise


def counted(found: Sequence[CertifiedTask]) -> list[FlawCount]:
    """Return a count for each flaw that a check looked for, in the order of `FLAWS`.

    The last one counts the tasks that have any flaw.
    """
    counts: list[FlawCount] = []
    for flaw in FLAWS:
        checks = [(one, check) for one in found for check in one.checks if check.flaw is flaw]
        having = [(one, check) for one, check in checks if not check.passed]
        if checks:
            low, high = wilson(len(having), len(checks))
            first = [(check.detail, one.task.draft.prompt) for one, check in having[:1]]
            detail, prompt = first[0] if first else ("", "")
            counts.append(FlawCount(flaw, len(checks), len(having), low, high, detail, prompt))
    flawed = sum(not one.sound for one in found)
    return [*counts, FlawCount(None, len(found), flawed, *wilson(flawed, len(found)))]


def unchecked(domain: Domain, found: Sequence[CertifiedTask]) -> dict[str, list[AnyFlaw]]:
    """Return the flaws that no check looked for, by the reason.

    Where the domain does not say whether its episodes depend on the seed, that flaw is not among
    them.
    """
    checked = {check.flaw for one in found for check in one.checks}
    reasons: dict[str, list[AnyFlaw]] = {}
    for flaw in FLAWS:
        if flaw not in checked and (flaw is not SetFlaw.IGNORES_SEED or depends_on_seed(domain)):
            early = flaw in _COMPARED and not any(one.compared for one in found)
            why = "it ended before" if early else _why_not(flaw, domain)
            reasons.setdefault(why, []).append(flaw)
    return reasons


def _why_not(flaw: AnyFlaw, domain: Domain) -> str:
    solves = isinstance(domain, KnowsSolution)
    if flaw in (Flaw.LEAKS_ANSWER, Flaw.REJECTS_GROUND_TRUTH):
        return "only the environment knows what is right"
    if flaw is Flaw.LEAKS_EARLY:
        return "no solution reveals a part" if solves else "the domain has no `solution`"
    if flaw in _REPEATED and not repeatable(domain):
        return "attempts cannot be repeated, as the domain says"
    if flaw is SetFlaw.DEPENDS_ON_TIME and clock_of(domain) is None:
        return "the environment has a clock of its own"
    if flaw in (SetFlaw.DEPENDS_ON_ORDER, SetFlaw.DEPENDS_ON_TIME):
        return "every task comes to something else each time"
    if solves or isinstance(domain, WritesAnswers):
        return "no task has a solution that can be played"
    return "the domain has neither `solution` nor `answer_turns`"


_COMPARED = (
    SetFlaw.DEPENDS_ON_ORDER,
    SetFlaw.DEPENDS_ON_TIME,
    SetFlaw.CONTRADICTS,
    SetFlaw.DUPLICATE,
)
_REPEATED = (SetFlaw.UNREPEATABLE, SetFlaw.DEPENDS_ON_ORDER, SetFlaw.DEPENDS_ON_TIME)


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
