"""Plays a domain without models, and names what is wrong with it: method, value, remedy.

A run would meet most of these faults too, but after minutes, as an error of some library or as an
epoch that teaches nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, cast

from genenv_core.canonical import digest
from genenv_core.domains.kit.kit_domain import ProgramDomain
from genenv_core.domains.protocol import (
    FILES_REMEDY,
    Domain,
    KnowsSolution,
    NamesLeaks,
    ReadsFiles,
    WritesAnswers,
    judged_while_played,
    repeatable,
    right_turns,
    tools_of,
)
from genenv_core.domains.registry import get_domain
from genenv_core.domains.steps import shortly, stepped
from genenv_core.errors import ConfigError, DomainError
from genenv_core.play.asked import SHOWN, shown, wrong_verdict
from genenv_core.play.certificate import CANARIES, answer_verdict, certify, said
from genenv_core.play.checking.calling import attempted, called, drawn, limited, of_signatures
from genenv_core.play.checking.seed_data import of_seed_data
from genenv_core.play.checking.shapes import (
    DomainFault,
    StopChecking,
    items_of,
    of_messages,
    of_schemas,
    texts_of,
)
from genenv_core.play.checking.texts import (
    ACTIONS,
    of_calls,
    of_embedding,
    of_parse,
)
from genenv_core.types import (
    AgentHistory,
    Context,
    Flaw,
    Message,
    Rejected,
    Rejection,
    TaskDraft,
)

CHILD_S = 300.0
"""Longest wait for the other process, in seconds."""

OF_A_FAMILY = 5
"""Tasks of each family to play."""

FLAWS = {
    Flaw.LEAKS_ANSWER: (
        "agent_messages",
        "take it out of the request; where a request says its answer by its nature, write "
        "leaks(draft), which returns what it must not say ([] for nothing)",
    ),
    Flaw.REJECTS_GROUND_TRUTH: ("score", "let the task's ground_truth succeed"),
    Flaw.ACCEPTS_TRIVIAL: ("score", "give it Verdict(0.0, False, why)"),
    Flaw.ACCEPTS_CANARY: ("score", "let no text succeed that answers nothing"),
    Flaw.UNSTEADY_VERDICT: (
        "score",
        "judge by the task and the transcript alone: no clock, no random number, no state",
    ),
    Flaw.UNKNOWN_TOOL: ("tools", "name each tool there that a right answer calls"),
    Flaw.UNREACHABLE: (
        "solution",
        "let what it says (solve, answer_turns) succeed, or give no task that cannot be solved",
    ),
    Flaw.AMBIGUOUS: ("episode", "let a right attempt succeed whatever the seed"),
    Flaw.LEAKS_EARLY: ("episode", "let tools say a part of the answer to the right call alone"),
}
"""For each flaw of a certificate: the method to mend, and how (docs/domain.md, Certificates)."""

METHODS = (
    "base_tasks",
    "heldout_tasks",
    "env_messages",
    "parse",
    "agent_messages",
    "episode",
    "score",
    "trivial_answers",
)


def check_domain(
    name: str, options: Mapping[str, Any], *, base: int = 100, heldout: int = 50
) -> list[DomainFault]:
    """Return what is wrong with a domain, [] for nothing; raises ConfigError if it does not load.

    Args:
        name: as in `domain.name`.
        options: as in `domain.options`.
        base: how many base tasks to ask for.
        heldout: how many held-out tasks to ask for.
    """
    domain = get_domain(name, options)
    if wrong := list(of_signatures(domain)):
        return wrong
    try:
        faults = list(of_attributes(domain))
        drafts, kept = _tasks(domain, base, heldout)
        faults += _separate(domain, drafts, kept)
        for draft in some_of([*drafts, *kept]):
            faults += _of_task(domain, draft)
        faults += [*of_parse(domain), *of_embedding(domain, drafts[:OF_A_FAMILY])]
        faults += [] if faults else of_calls(domain, some_of([*drafts, *kept]))
        faults += of_seed_data(domain, kept)
    except StopChecking as stop:
        return [stop.fault]
    if not faults and repeatable(domain):  # a fault would show there too
        faults += _elsewhere(domain, name, options, base, heldout)
    return _first_of_each(faults)


def check_shortly(domain: Domain, *, base: int, heldout: int) -> None:
    """Raise ConfigError with the first fault of a domain that shows in a moment.

    It plays the first base task, or a held-out one where base tasks come from a file.
    """
    try:
        faults = [*of_signatures(domain), *of_attributes(domain)]
        drafts, kept = ([], []) if faults else _tasks(domain, base, heldout)
        for draft in (*drafts, *kept)[:1]:
            faults += _of_task(domain, draft)
    except StopChecking as stop:
        faults = [stop.fault]
    if faults:
        raise ConfigError(
            f"domain {domain.name}: {faults[0]} (`genenv domain check` names all that is wrong)"
        )


def some_of(drafts: Sequence[TaskDraft]) -> list[TaskDraft]:
    """Return a few tasks of each family."""
    families: dict[str, list[TaskDraft]] = {}
    for draft in drafts:
        families.setdefault(draft.family, []).append(draft)
    return [draft for same in families.values() for draft in same[:OF_A_FAMILY]]


def context_of(base: TaskDraft, rate: float | None) -> Context:
    """Return a context of pi_env with a base task and the agent's success; None if unknown."""
    families = {} if rate is None else {base.family: (3, 6)}
    return Context("c", "t", base, AgentHistory(rate, families))


def answers_digest(domain: Domain, base: int, heldout: int) -> str:
    """Return a digest of a domain's answers, equal in every process for a sound domain."""
    drafts, kept = _tasks(domain, base, heldout)
    answers: list[Any] = []
    for draft in (*drafts, *kept):
        answers.append([getattr(draft, field.name) for field in fields(draft)])
        answers.append(domain.agent_messages(draft))
        answers.append(domain.trivial_answers(draft))
    for draft in some_of([*drafts, *kept]):
        answers.append(domain.env_messages(context_of(draft, 0.5)))
        verdict = answer_verdict(draft, domain, draft.ground_truth)
        answers.append([verdict.reward, verdict.success, verdict.failure])
        seen = stepped(domain.episode(draft, 7).step, draft.ground_truth)
        answers.append([list(seen.messages), seen.done])
    return digest(answers)


def of_attributes(domain: Domain) -> Iterator[DomainFault]:
    """Yield what is wrong with a domain's attributes; raises Stop where a method is missing."""
    missing = [name for name in METHODS if not callable(getattr(domain, name, None))]
    if missing:
        raise StopChecking(missing[0], "there is no such method", f"write {', '.join(missing)}")
    for name in ("name", "version"):
        value: Any = getattr(domain, name, None)
        if not isinstance(value, str) or not value:
            raise StopChecking(name, f"is {shown(value)}", "give the class a text of that name")
    tools: Any = getattr(domain, "tools", None)
    if not isinstance(tools, Sequence) or isinstance(tools, str):
        raise StopChecking("tools", f"is {shown(tools)}", "give a list of JSON schemas, () if none")
    yield from of_schemas("tools", cast("Sequence[object]", tools))
    if isinstance(domain, ReadsFiles):
        yield from _files(domain.files)


def _files(files: object) -> Iterator[DomainFault]:
    listed = isinstance(files, Sequence) and not isinstance(files, str)
    named = list(cast("Sequence[object]", files)) if listed else [None]
    paths = [Path(one) for one in named if isinstance(one, str | Path)]
    if len(paths) < len(named):
        yield DomainFault("files", f"is {shown(cast(object, files))}", "give a list of paths")
    for file in paths:
        try:
            file.open("rb").close()
        except OSError as error:
            what = f"{file.absolute()} cannot be read: {error.strerror}"
            yield DomainFault("files", what, FILES_REMEDY)


def _tasks(domain: Domain, base: int, heldout: int) -> tuple[list[TaskDraft], list[TaskDraft]]:
    """Return base and held-out tasks; raises Stop where they break a rule of `drawn`."""
    return (
        drawn("base_tasks", domain.base_tasks, base, "data.base_tasks") if base else [],
        drawn("heldout_tasks", domain.heldout_tasks, heldout, "data.test_tasks"),
    )


def _separate(
    domain: Domain, base: list[TaskDraft], kept: list[TaskDraft]
) -> Iterator[DomainFault]:
    again = [("base_tasks", domain.base_tasks, base), ("heldout_tasks", domain.heldout_tasks, kept)]
    for method, draw, drafts in again:
        if called(method, partial(draw, 0, len(drafts)), more_s=len(drafts) / 100) != drafts:
            yield DomainFault(
                method,
                "gives other tasks when it is called again with the same arguments",
                "draw from random.Random(seed) alone",
            )
    others = called("base_tasks", lambda: domain.base_tasks(1, len(base)), more_s=len(base) / 100)
    held = {draft.fingerprint for draft in kept}
    both = [one for one in (*base, *others) if one.fingerprint in held]
    if both:
        yield DomainFault(
            "heldout_tasks",
            f"{shown(both[0].prompt)} is a base task too",
            "decide by a hash of the task which of the two it can be (parts.in_heldout)",
        )


def _of_task(domain: Domain, draft: TaskDraft) -> Iterator[DomainFault]:
    task = f" on task {shown(draft.prompt)}"
    if repeatable(domain):
        _check_seed(domain, draft, task)
    opening = called("agent_messages", lambda: domain.agent_messages(draft), task)
    yield from of_messages("agent_messages", opening)
    for rate in (None, 0.5):
        context = context_of(draft, rate)
        asked = called("env_messages", lambda c=context: domain.env_messages(c), task)
        yield from of_messages("env_messages", asked)
    if isinstance(domain, NamesLeaks):
        texts_of("leaks", called("leaks", lambda: domain.leaks(draft), task))
    yield from of_schemas("tools_of", called("tools_of", lambda: tools_of(domain, draft), task))
    trivial = called("trivial_answers", lambda: domain.trivial_answers(draft), task)
    texts = texts_of("trivial_answers", trivial, least=1)
    for answer in (draft.ground_truth, draft.prompt, *texts, *CANARIES, *ACTIONS):
        on = f" for the answer {shortly(answer)}{task}"
        messages = called("episode.step", lambda a=answer: _said(domain, draft, a), on)
        if messages is None:
            continue
        verdict = called("score", lambda m=messages: domain.score(draft, m), on)
        if wrong := wrong_verdict(verdict):
            raise StopChecking("score", f"{wrong.found}{on}", wrong.remedy)
        if verdict.success and verdict.failure:
            what = f"gives a success the failure {shown(verdict.failure)}{on}"
            yield DomainFault(
                "score", what, "a success has none: give ''; `failures` counts the others"
            )
    if draft.program:
        yield from _read_again(domain, draft)
    yield from _played(domain, draft)
    with limited("solution", task):
        checks = certify(draft, domain)
    for check in checks:
        if not check.passed:
            method, remedy = FLAWS[check.flaw]
            what = f"task {shown(draft.prompt)}: {check.flaw.value}: {check.detail}"
            yield DomainFault(method, what, remedy)


def _said(domain: Domain, draft: TaskDraft, answer: str) -> list[Message] | None:
    """Return the transcript of an answer, None where its environment refuses the answer."""
    try:
        return said(draft, domain, answer)
    except DomainError:
        if judged_while_played(domain):
            return None
        raise


def _check_seed(domain: Domain, draft: TaskDraft, task: str) -> None:
    """Raise Stop where a right attempt fails, or where two with one seed hear different answers.

    Other checks would meet this by accident, and blame sound code.
    """
    said, again = (called("solution", lambda: right_turns(domain, draft), task) for _ in range(2))
    heard = [attempted(domain, draft, said) for _ in range(2)]
    for _, why in heard[0]:
        if why:
            raise StopChecking("episode.step", why, "let it answer what a right attempt says")
    first, second = (
        [one["content"] for seen, _ in attempt for one in seen.messages] for attempt in heard
    )
    if said == again and first == second:
        return
    pairs = [*zip(said, again, strict=False), *zip(first, second, strict=False)]
    differ = next((pair for pair in pairs if pair[0] != pair[1]), (said, again))
    raise StopChecking(
        "state" if isinstance(domain, ProgramDomain) else "episode",
        f"one seed gives two attempts{task}: {shown(differ[0])} and {shown(differ[1])}",
        "draw from random.Random(seed) or from the task alone, never from global random state",
    )


def _read_again(domain: Domain, draft: TaskDraft) -> Iterator[DomainFault]:
    read = called("parse", lambda: domain.parse(draft.program), f" on {shown(draft.program)}")
    found = (items_of(read) or [read])[0]
    held_out = isinstance(found, Rejected) and found.reason is Rejection.IN_HELDOUT
    if read != [draft] and not held_out:
        yield DomainFault(
            "parse",
            f"does not read a task's own program {shown(draft.program)}: {shown(found)}",
            "program is what pi_env would write for the task, so parse gives the same task",
        )


def _played(domain: Domain, draft: TaskDraft) -> Iterator[DomainFault]:
    known = draft.ground_truth or not judged_while_played(domain)
    for action in (*([draft.ground_truth] if known else []), *ACTIONS):
        ((seen, why),) = attempted(domain, draft, [action])
        yield from of_messages("episode.step", list(seen.messages), may_be_empty=True)
        right = known and action == draft.ground_truth
        if right and why:
            yield DomainFault("episode.step", why, "return an Observation")
        elif right and not seen.done and not isinstance(domain, KnowsSolution | WritesAnswers):
            what = "goes on after the ground truth was said"
            how = "end it (Observation(done=True)), or say how it is attempted (KnowsSolution)"
            yield DomainFault("episode.step", what, how)


def _elsewhere(
    domain: Domain, name: str, options: Mapping[str, Any], base: int, heldout: int
) -> Iterator[DomainFault]:
    """Yield a fault where another process, with another hash seed, gives other answers."""
    request = json.dumps([sys.path, name, dict(options), base, heldout])
    try:
        done = subprocess.run(
            [sys.executable, "-m", "genenv_core.play.checking.child", request],
            env={**os.environ, "PYTHONHASHSEED": "97"},
            capture_output=True, text=True, timeout=CHILD_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        what = f"takes longer than {CHILD_S:g} s in another process"
        yield DomainFault(
            "domain", what, "let it be imported anywhere, without waiting for anything"
        )
        return
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["it said nothing"])[-1][: 3 * SHOWN]
        yield DomainFault(
            "domain", f"fails in another process: {why}", "let it be imported anywhere"
        )
    elif done.stdout.split()[-1:] != [answers_digest(domain, base, heldout)]:
        yield DomainFault(
            "domain",
            "answers otherwise in another process",
            "depend on no hash() of texts, order of sets, clock, or global random state",
        )


def _first_of_each(faults: Sequence[DomainFault]) -> list[DomainFault]:
    """Return the first fault of each method and remedy: many tasks have the same one."""
    first: dict[tuple[str, str], DomainFault] = {}
    for fault in faults:
        first.setdefault((fault.method, fault.remedy), fault)
    return list(first.values())
