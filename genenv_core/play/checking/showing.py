"""Examples of flaws that people can read: the task, and an attempt at it that shows the flaw.

A check has only a few words on what it found. This module plays its attempt again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from genenv_core.domains.protocol import Domain
from genenv_core.domains.steps import FAILURES, as_observed, error_line, shortly, stepped
from genenv_core.play.asked import judged
from genenv_core.play.certificate import ATTEMPTS, CANARIES, CANARY, SHOWN, Check, said
from genenv_core.play.checking.calling import called
from genenv_core.play.checking.comparing import alike, beside_checks
from genenv_core.play.checking.probing import IDLE, RIGHT, turns_of
from genenv_core.play.checking.set_flaws import AnyFlaw, SetCheck, SetFlaw
from genenv_core.play.checking.sets import CertifiedTask
from genenv_core.play.checking.shapes import StopChecking
from genenv_core.types import Flaw, Message, TaskDraft

EXAMPLES = 3
"""Tasks to show of each flaw."""

PLAYED = (
    Flaw.UNKNOWN_TOOL,
    Flaw.UNREACHABLE,
    SetFlaw.UNREPEATABLE,
    SetFlaw.IGNORES_SEED,
)
"""Flaws that the right attempt shows."""


@dataclass(frozen=True, slots=True)
class FlawExample:
    """A task that has a flaw, what the check found, and an attempt that shows it.

    `messages` are the whole attempt, [] without one. `verdict` says its outcome, or why it cannot
    be played again. `beside` is the request of the earlier task that contradicts or equals this
    one, '' without one.
    """

    prompt: str
    detail: str
    set_name: str = ""
    fingerprint: str = ""
    messages: tuple[Message, ...] = ()
    verdict: str = ""
    beside: str = ""


def flaw_examples(
    domain: Domain, found: Sequence[CertifiedTask], *, plays: bool = True
) -> dict[AnyFlaw, list[FlawExample]]:
    """Return the first `EXAMPLES` tasks of each flaw, each with an attempt that shows it.

    Without `plays` it plays no attempt, as after an error of the domain.
    """
    examples: defaultdict[AnyFlaw, list[FlawExample]] = defaultdict(list)
    earlier = alike(domain, [one.task.draft for one in found]) if plays else []
    for place, one in enumerate(found):
        draft = one.task.draft
        for check in one.checks:
            if check.passed or len(examples[check.flaw]) >= EXAMPLES:
                continue
            other = _earlier(check, draft, domain, earlier[place]) if plays else None
            messages, verdict = _shown(check, draft, domain, other) if plays else ((), "")
            examples[check.flaw].append(
                FlawExample(
                    draft.prompt, check.detail, one.task.set_name, draft.fingerprint,
                    tuple(messages), verdict, other.prompt if other else "",
                )
            )  # fmt: skip
    return {flaw: of for flaw, of in examples.items() if of}


def _shown(
    check: Check | SetCheck, draft: TaskDraft, domain: Domain, other: TaskDraft | None
) -> tuple[Sequence[Message], str]:
    """Return an attempt that shows a flaw, and its outcome."""
    try:
        return called("certificate", lambda: _attempt(check, draft, domain, other))
    except StopChecking as stop:
        return (), f"The attempt cannot be played again: {stop.fault.found}"


def _attempt(
    check: Check | SetCheck, draft: TaskDraft, domain: Domain, other: TaskDraft | None
) -> tuple[Sequence[Message], str]:
    flaw, detail = check.flaw, check.detail
    if flaw in (Flaw.LEAKS_ANSWER, SetFlaw.PASSES_UNATTEMPTED):
        messages = list(domain.agent_messages(draft))
        return messages, "" if flaw is Flaw.LEAKS_ANSWER else _verdict(draft, domain, messages)
    if flaw is SetFlaw.ALREADY_SOLVED:
        return _played(draft, domain, IDLE)
    if flaw is Flaw.AMBIGUOUS:
        turns = turns_of(draft, domain)
        tries = (_played(draft, domain, turns, seed, ends=True) for seed in range(ATTEMPTS))
        return next((one for one in tries if not one[1].endswith("a success.")), ((), ""))
    if flaw is Flaw.LEAKS_EARLY:
        named = (text for text in ("", *CANARIES, draft.prompt) if detail.startswith(_to(text)))
        action = next(named, None)
        turns = turns_of(draft, domain) if action is None else [action]
        return _played(draft, domain, turns)
    if other is not None:
        turns = turns_of(other, domain)
        if turns:
            return _played(draft, domain, turns)
        return _answered(draft, domain, other.ground_truth)
    if flaw in PLAYED or (isinstance(flaw, SetFlaw) and RIGHT in detail):
        turns = turns_of(draft, domain)
        return _played(draft, domain, turns, ends=flaw is Flaw.UNREACHABLE)
    for text in _texts(draft, domain):
        if f"{text[:SHOWN]!r} " in detail or f"the answer {shortly(text)}" in detail:
            return _answered(draft, domain, text)
    if flaw is Flaw.REJECTS_GROUND_TRUTH:
        return _answered(draft, domain, draft.ground_truth)
    return (), ""


def _to(action: str) -> str:
    return f"to {action[:SHOWN]!r} the tools say"


def _texts(draft: TaskDraft, domain: Domain) -> Iterator[str]:
    """Yield the texts that checks judge."""
    yield from (draft.ground_truth, "", CANARY, *CANARIES, *domain.trivial_answers(draft))


def _earlier(
    check: Check | SetCheck, draft: TaskDraft, domain: Domain, others: Sequence[TaskDraft]
) -> TaskDraft | None:
    """Return the earlier task that a check means, None for a check that means none."""
    if check.flaw not in (SetFlaw.CONTRADICTS, SetFlaw.DUPLICATE):
        return None
    for other in others:
        try:
            again = called("certificate", lambda one=other: beside_checks(draft, domain, [one]))
        except StopChecking:
            return None
        if any(one.flaw is check.flaw and not one.passed for one in again):
            return other
    return None


def _answered(draft: TaskDraft, domain: Domain, text: str) -> tuple[Sequence[Message], str]:
    try:
        messages = said(draft, domain, text)
    except FAILURES as error:
        return (), f"It cannot be played: {error_line(error)}"
    return messages, _verdict(draft, domain, messages)


def _played(
    draft: TaskDraft, domain: Domain, turns: Sequence[str], seed: int = 0, *, ends: bool = False
) -> tuple[Sequence[Message], str]:
    """Return an attempt with these turns, and its outcome.

    With `ends`, a failed step counts as its outcome, and so does an episode that goes on at the
    end.
    """
    messages, done = list(domain.agent_messages(draft)), False
    try:
        episode = domain.episode(draft, seed)
    except FAILURES as error:
        return messages, f"The attempt does not begin: {error_line(error)}"
    for turn in turns:
        messages.append({"role": "assistant", "content": turn})
        seen = stepped(episode.step, turn)
        messages += as_observed(seen)
        done = seen.done
        if ends and seen.failed:
            return messages, "A step fails."
        if done:
            break
    if ends and not done:
        return messages, "The episode goes on after the last turn."
    return messages, _verdict(draft, domain, messages)


def _verdict(draft: TaskDraft, domain: Domain, messages: Sequence[Message]) -> str:
    """Return the verdict on an attempt as a sentence."""
    try:
        verdict = judged(domain, draft, messages)
    except FAILURES as error:
        return f"It gets no verdict: {error_line(error)}"
    why = f" ({verdict.failure})" if verdict.failure else ""
    reward = f"It earns {verdict.reward:g} and is"
    return f"{reward} a success." if verdict.success else f"{reward} no success{why}."
