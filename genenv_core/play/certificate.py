"""The certificate of a task: whether its evaluation means anything, before the agent attempts it.

pi_env earns reward for tasks that the agent solves half of the time. A task that judges nothing,
gives its answer away, or succeeds by chance can earn that without teaching anything. So genenv
checks each task. It judges answers that it knows to be right or wrong, and plays the task where the
domain can attempt its own tasks. What only attempts of the agent can show is in the view
`certified`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

from genenv_core.canonical import canonical_json
from genenv_core.domains.kit.texts.saying import holds
from genenv_core.domains.protocol import (
    Domain,
    KnowsSolution,
    NamesLeaks,
    SolutionTurn,
    WritesAnswers,
    judged_while_played,
    own_task,
    repeatable,
    tools_of,
)
from genenv_core.domains.steps import FAILURES, EnvironmentLost, as_observed, error_line
from genenv_core.domains.tool_calls import marked, written
from genenv_core.errors import DomainError
from genenv_core.play.asked import judged
from genenv_core.types import Flaw, Message, TaskDraft, Verdict

Stored = TypeVar("Stored")

REPEATS = 3
"""How often the check of steady verdicts judges one transcript."""

ATTEMPTS = 10
"""How often the domain attempts its task, each time with another seed of the environment. A task
that succeeds by a coin toss passes all of them once in a thousand times."""

CANARY = "canary 5f1e7c"
CANARIES = (CANARY, written({"name": "canary", "arguments": {}}), f"The answer is {CANARY}.")
"""Texts that answer no task."""

CLOSED = frozenset({"yes", "no", "true", "false", "none"})
"""Answers that a request may name without giving them away; so are single letters."""

SHOWN = 60
"""Most characters of an answer that a check shows."""

UNJUDGED, NO_LEAKS, NO_SOLUTION = (
    "the ground truth cannot be judged",
    "the domain cannot say what a leak is",
    "the domain has no solution",
)
"""How the detail of a check begins when the domain's own code raised an error."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check of a certificate: the flaw that it looks for, and what it found, '' for nothing."""

    flaw: Flaw
    detail: str = ""

    @property
    def passed(self) -> bool:
        """Return whether the check found no flaw."""
        return not self.detail

    @property
    def raised(self) -> bool:
        """Return whether the domain's code raised an error, which says nothing about the task."""
        return self.detail.startswith((UNJUDGED, NO_LEAKS, NO_SOLUTION))


def certify(draft: TaskDraft, domain: Domain) -> list[Check]:
    """Return the checks that apply to a task, in the order of `Flaw`.

    The domain decides which apply: without `KnowsSolution` or `WritesAnswers` nobody can say
    whether a task is reachable, and only `KnowsSolution` says what the tools may not give away. A
    task whose ground truth only its environment knows ('') has no answer that could leak or fail.

    Raises DomainError where the environment that plays the task is lost.
    """
    domain, draft = own_task(domain, draft)  # of several domains, what its own can say counts
    try:
        return _checks(draft, domain)
    except EnvironmentLost as error:
        raise DomainError(
            f"domain {domain.name}: no certificate of the task {draft.prompt[:SHOWN]!r}: {error}"
        ) from error


def _checks(draft: TaskDraft, domain: Domain) -> list[Check]:
    turns, broken = _solution(draft, domain)
    parts = [part for turn in turns for part in turn.reveals]
    found: dict[Flaw, str] = {}
    if draft.ground_truth or not judged_while_played(domain):
        found[Flaw.LEAKS_ANSWER] = _leaked(draft, domain, parts)
        found[Flaw.REJECTS_GROUND_TRUTH] = _wrong(draft, domain)
    found |= {
        Flaw.ACCEPTS_TRIVIAL: _accepted(draft, domain, domain.trivial_answers(draft)),
        Flaw.ACCEPTS_CANARY: _accepted(draft, domain, CANARIES),
        Flaw.UNSTEADY_VERDICT: _unsteady(draft, domain),
        Flaw.UNKNOWN_TOOL: _unknown_tool(
            draft, domain, [draft.ground_truth, *(t.says for t in turns)]
        ),
    }
    if broken:
        found[Flaw.UNREACHABLE] = broken
    elif turns:
        attempts = [_play(draft, domain, turns, seed) for seed in range(ATTEMPTS)]
        found |= _of_attempts(attempts)
        if parts:
            found[Flaw.LEAKS_EARLY] = _early(draft, domain, turns, attempts)
    return [Check(flaw, found[flaw]) for flaw in Flaw if flaw in found]


def _solution(draft: TaskDraft, domain: Domain) -> tuple[Sequence[SolutionTurn], str]:
    """Return the turns of a right attempt, [] without a solution, and the text of an error."""
    try:
        if isinstance(domain, KnowsSolution):
            return domain.solution(draft), ""
        if isinstance(domain, WritesAnswers):
            return [SolutionTurn(text) for text in domain.answer_turns(draft)], ""
    except FAILURES as error:
        return [], f"{NO_SOLUTION}: {error_line(error)}"
    return [], ""


def answer_verdict(draft: TaskDraft, domain: Domain, answer: str) -> Verdict:
    """Return the verdict on a transcript in which the agent says just `answer`."""
    return judged(domain, draft, said(draft, domain, answer))


def said(draft: TaskDraft, domain: Domain, answer: str) -> list[Message]:
    """Return the transcript in which the agent says just `answer`.

    It plays the answer where only the environment can judge it; raises what the step raises.
    """
    messages: list[Message] = [
        *domain.agent_messages(draft),
        {"role": "assistant", "content": answer},
    ]
    if not judged_while_played(domain):
        return messages
    return [*messages, *domain.episode(draft, 0).step(answer).messages]


def _said_of(text: str, parts: Iterable[str], who: str) -> str:
    """Return the first of the parts that a text says, in words, '' if it says none."""
    return next((f"{who} {part[:SHOWN]!r}" for part in parts if holds(text, part)), "")


def _leaked(draft: TaskDraft, domain: Domain, parts: Sequence[str]) -> str:
    """Return which text that gives the answer away stands in the request, '' for none.

    Without `NamesLeaks` these texts are the parts of the answer that an agent has to work out, and
    the ground truth, unless it belongs to a closed set that each request may list.
    """
    if not isinstance(domain, NamesLeaks):
        truth = draft.ground_truth.strip().casefold()
        closed = truth in CLOSED or (len(truth) == 1 and truth.isalpha())
        told = [*([] if closed else [draft.ground_truth]), *parts]
        return _said_of(draft.prompt, told, "the request says")
    try:
        return _said_of(draft.prompt, domain.leaks(draft), "the request says")
    except FAILURES as error:
        return f"{NO_LEAKS}: {error_line(error)}"


def _wrong(draft: TaskDraft, domain: Domain) -> str:
    try:
        verdict = answer_verdict(draft, domain, draft.ground_truth)
    except EnvironmentLost:
        raise
    except FAILURES as error:
        return f"{UNJUDGED}: {_why(error)}"
    return "" if verdict.success else f"the ground truth fails: {verdict.failure or 'no success'}"


def _why(error: BaseException) -> str:
    """Return an error without its line of code, which is in no key, as tables store it."""
    return error_line(error.__cause__ or error)


def _accepted(draft: TaskDraft, domain: Domain, answers: Sequence[str]) -> str:
    for answer in answers:
        try:
            verdict = answer_verdict(draft, domain, answer)
        except EnvironmentLost:
            raise
        except FAILURES:
            continue  # then it is no success either
        if verdict.success:
            return f"{answer[:SHOWN]!r} is a success"
    return ""


def _unsteady(draft: TaskDraft, domain: Domain) -> str:
    for answer in (draft.ground_truth, CANARY):
        try:
            messages = said(draft, domain, answer)
            verdicts = [judged(domain, draft, messages) for _ in range(REPEATS)]
            if judged_while_played(domain) and repeatable(domain):
                verdicts.append(answer_verdict(draft, domain, answer))
            # Stored traces of stored tasks have to get the same verdict.
            stored = replace(draft, spec=_stored(draft.spec))
            verdicts.append(judged(domain, stored, _stored(messages)))
        except EnvironmentLost:
            raise
        except FAILURES:
            continue  # `_wrong` says so
        if any(verdict != verdicts[0] for verdict in verdicts):
            return f"{answer[:SHOWN]!r} gets several verdicts"
    return ""


def _stored(value: Stored) -> Stored:
    return json.loads(canonical_json(value))


@dataclass(frozen=True, slots=True)
class _CertificateAttempt:
    """The outcome of the domain's own attempt: why it failed, and the tools' answers by turn."""

    failure: str = ""
    observed: list[str] = field(default_factory=list[str])


def _play(
    draft: TaskDraft, domain: Domain, turns: Sequence[SolutionTurn], seed: int
) -> _CertificateAttempt:
    messages, observed, done = list(domain.agent_messages(draft)), list[str](), False
    try:
        episode = domain.episode(draft, seed)
        for turn in turns:
            messages.append({"role": "assistant", "content": turn.says})
            observation = episode.step(turn.says)
            messages += as_observed(observation)
            observed.append(_text(observation.messages))
            done = observation.done
            if done:
                break
        verdict = judged(domain, draft, messages)
    except EnvironmentLost:
        raise
    except FAILURES as error:
        return _CertificateAttempt(_why(error), observed)
    if not done:
        return _CertificateAttempt("the episode goes on after the answer", observed)
    return _CertificateAttempt("" if verdict.success else verdict.failure or "no success", observed)


def _of_attempts(attempts: Sequence[_CertificateAttempt]) -> dict[Flaw, str]:
    failures = [attempt.failure for attempt in attempts if attempt.failure]
    never = len(failures) == len(attempts)
    return {
        Flaw.UNREACHABLE: f"the domain's own attempt fails: {failures[0]}" if never else "",
        Flaw.AMBIGUOUS: ""
        if never or not failures
        else f"{len(failures)} of {len(attempts)} attempts of the domain fail: {failures[0]}",
    }


def _early(
    draft: TaskDraft,
    domain: Domain,
    turns: Sequence[SolutionTurn],
    attempts: Sequence[_CertificateAttempt],
) -> str:
    """Return which part of the answer the tools say too early, '' if none.

    In a right attempt the tools may say what this turn and those before it reveal. To a text that
    is no right call they may say no part.
    """
    for attempt in attempts:
        for turn, text in enumerate(attempt.observed):
            later = [part for next_ in turns[turn + 1 :] for part in next_.reveals]
            if told := _said_of(text, later, f"after turn {turn} the tools say"):
                return told
    parts = [part for turn in turns for part in turn.reveals]
    for action in ("", *CANARIES, draft.prompt):
        text = _answer(draft, domain, action)
        if told := _said_of(text, parts, f"to {action[:SHOWN]!r} the tools say"):
            return told
    return ""


def _answer(draft: TaskDraft, domain: Domain, action: str) -> str:
    try:
        return _text(domain.episode(draft, 0).step(action).messages)
    except EnvironmentLost:
        raise
    except FAILURES as error:
        return error_line(error)  # which the agent sees


def _text(messages: Sequence[Message]) -> str:
    return " ".join(message["content"] for message in messages)


def _unknown_tool(draft: TaskDraft, domain: Domain, texts: Sequence[str]) -> str:
    tools = {_folded(tool.get("function", tool).get("name")) for tool in tools_of(domain, draft)}
    for one in (one for text in texts for one in marked(text)):
        try:
            call: object = json.loads(one.body)
        except (ValueError, RecursionError):
            continue  # then it is the answer's own spelling of something else
        name = cast(dict[str, Any], call).get("name") if isinstance(call, dict) else None
        if _folded(name) not in tools:
            return f"there is no tool {str(name)[:SHOWN]!r}"
    return ""


def _folded(name: object) -> str:
    return str(name).strip().casefold()
