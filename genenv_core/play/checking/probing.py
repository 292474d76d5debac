"""Probes of a task: the outcomes of the same few attempts, at any time and in any order.

A sound task gives the same probe each time. Where two probes differ, the task depends on something
outside of its attempts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from genenv_core.domains.protocol import Domain, judged_while_played, repeatable, right_turns
from genenv_core.domains.steps import FAILURES, EnvironmentLost, error_line, shortly
from genenv_core.play.asked import shown, wrong_verdict
from genenv_core.play.certificate import ATTEMPTS, CANARY, said
from genenv_core.play.checking.set_flaws import SetCheck, SetFlaw, depends_on_seed
from genenv_core.types import Message, TaskDraft, Verdict

IDLE_TURNS = 3
"""Empty turns of an attempt that says nothing."""

SHOWN = 60
"""Most characters of a verdict's failure that a message shows."""

IDLE = [""] * IDLE_TURNS


@dataclass(frozen=True, slots=True)
class Judged:
    """The outcome of an attempt: its verdict, or why there is none.

    `heard` are the tools' answers by turn, `verdict` is a short text, `success` whether it is one,
    and `wrong` what is wrong with the verdict, or ''. `reward` is None without a verdict.
    """

    verdict: str
    heard: tuple[str, ...] = ()
    success: bool = False
    wrong: str = ""
    reward: float | None = None


@dataclass(frozen=True, slots=True)
class TaskProbe:
    """The outcomes of some attempts at a task, by the attempts' names, such as `the answer '7'`.

    `turns` are those of the right attempt; [] where the domain has none, or fails to say.
    """

    attempts: dict[str, Judged] = field(default_factory=dict[str, Judged])
    turns: list[str] = field(default_factory=list[str])

    @property
    def floor(self) -> float | None:
        """Return the reward of an empty answer; None where it has no verdict."""
        empty = self.attempts.get(NOTHING)
        return None if empty is None else empty.reward


RIGHT = "the right attempt"

NOTHING = f"the answer {shortly('')}"


def probe(draft: TaskDraft, domain: Domain) -> TaskProbe:
    """Return the outcomes of the right attempt and of some answers.

    Raises EnvironmentLost where the environment that plays the task is lost.
    """
    texts = [draft.ground_truth, "", CANARY]
    if not judged_while_played(domain):
        texts += domain.trivial_answers(draft)
    found = {f"the answer {shortly(text)}": answered(draft, domain, text) for text in texts}
    turns = turns_of(draft, domain)
    right = {RIGHT: played(draft, domain, turns)} if turns else {}
    return TaskProbe(found | right, turns)


def differing(first: TaskProbe, again: TaskProbe) -> str:
    """Return in words the first attempt with another outcome, '' if none has one."""
    for name in first.attempts.keys() | again.attempts.keys():
        if name not in first.attempts or name not in again.attempts:
            return f"{name} is there once"
    for name, before in first.attempts.items():
        after = again.attempts[name]
        if before.heard != after.heard:
            return f"in {name} the tools say something else"
        if (before.verdict, before.success) != (after.verdict, after.success):
            return f"{name} gets {before.verdict}, then {after.verdict}"
    return ""


def set_checks(draft: TaskDraft, domain: Domain, first: TaskProbe) -> list[SetCheck]:
    """Return the checks of a task by itself that its certificate does not make.

    `first` is a probe of the task. Raises EnvironmentLost where the environment is lost.
    """
    idle = played(draft, domain, IDLE)
    unattempted = _begun(draft, domain)
    judged = first.attempts.items()
    wrong = next((f"{name} {one.wrong}" for name, one in judged if one.wrong), "")
    found = {
        SetFlaw.WRONG_VERDICT: wrong,
        SetFlaw.PASSES_UNATTEMPTED: "no turn at all is a success" if unattempted.success else "",
        SetFlaw.ALREADY_SOLVED: (
            f"{len(idle.heard)} empty turns are a success" if idle.success else ""
        ),
    }
    turns = first.turns
    if turns and repeatable(domain):
        before = TaskProbe({RIGHT: first.attempts[RIGHT]})
        again = TaskProbe({RIGHT: played(draft, domain, turns)})
        found[SetFlaw.UNREPEATABLE] = differing(before, again)
    if depends_on_seed(domain):
        heard = {
            (played(draft, domain, turns, seed).heard, played(draft, domain, IDLE, seed).heard)
            for seed in range(ATTEMPTS)
        }
        found[SetFlaw.IGNORES_SEED] = (
            f"{ATTEMPTS} seeds give equal answers" if len(heard) == 1 else ""
        )
    return [SetCheck(flaw, found[flaw]) for flaw in SetFlaw if flaw in found]


def turns_of(draft: TaskDraft, domain: Domain) -> list[str]:
    """Return the turns of a right attempt; [] where the domain has none, or fails to give one."""
    try:
        return right_turns(domain, draft)
    except EnvironmentLost:
        raise
    except FAILURES:
        return []  # its certificate says so


def answered(draft: TaskDraft, domain: Domain, text: str) -> Judged:
    """Return the outcome of an attempt in which the agent says just this."""
    try:
        messages = said(draft, domain, text)
    except EnvironmentLost:
        raise
    except FAILURES as error:
        return Judged(f"no attempt ({error_line(error)})")
    return _verdict(draft, domain, messages)


def played(draft: TaskDraft, domain: Domain, turns: Sequence[str], seed: int = 0) -> Judged:
    """Return the outcome of an attempt in which the agent says these turns, until it ends."""
    heard: list[str] = []
    try:
        messages = list(domain.agent_messages(draft))
        episode = domain.episode(draft, seed)
    except EnvironmentLost:
        raise
    except FAILURES as error:
        return Judged(f"no attempt ({error_line(error)})")
    for turn in turns:
        messages.append({"role": "assistant", "content": turn})
        try:
            seen = episode.step(turn)
            answers, done = list(seen.messages), seen.done
            heard.append(repr([(one["role"], one["content"]) for one in answers]))
        except EnvironmentLost:
            raise
        except FAILURES as error:  # which counts as no step
            heard.append(error_line(error))
            continue
        messages += answers
        if done:
            break
    return replace(_verdict(draft, domain, messages), heard=tuple(heard))


def _begun(draft: TaskDraft, domain: Domain) -> Judged:
    """Return the outcome of an attempt that ends before its first turn."""
    try:
        messages = domain.agent_messages(draft)
    except FAILURES as error:
        return Judged(f"no attempt ({error_line(error)})")
    return _verdict(draft, domain, messages)


def _verdict(draft: TaskDraft, domain: Domain, messages: Sequence[Message]) -> Judged:
    try:
        verdict = domain.score(draft, messages)
    except EnvironmentLost:
        raise
    except FAILURES as error:
        why = error_line(error)
        return Judged(f"no verdict ({why})", wrong=f"gets no verdict: score raised {why}")
    if wrong := wrong_verdict(verdict):
        return Judged(shown(verdict), wrong=f"gets no verdict: score {wrong.found}")
    return Judged(_in_words(verdict), success=verdict.success, reward=verdict.reward)


def _in_words(verdict: Verdict) -> str:
    why = f", {verdict.failure[:SHOWN]}" if verdict.failure else ""
    return f"the reward {verdict.reward!r} ({'a' if verdict.success else 'no'} success{why})"
