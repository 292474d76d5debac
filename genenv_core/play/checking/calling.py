"""Calls a domain's methods during a check; an error of theirs, or a hang, becomes a fault."""

from __future__ import annotations

import inspect
import linecache
import re
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

from genenv_core.domains.protocol import (
    ConstrainsEnv,
    Domain,
    EmbedsTasks,
    KnowsSolution,
    NamesLeaks,
    ReadsAnswers,
    SeedData,
    SimulatedTools,
    ToolsByTask,
    WritesAnswers,
)
from genenv_core.domains.steps import FAILURES, shortly, stepped
from genenv_core.play.asked import line_of, raised, shown
from genenv_core.play.checking.shapes import DomainFault, StopChecking, check_fields, items_of
from genenv_core.types import Observation, TaskDraft

Value = TypeVar("Value")

CALL_S = 30.0
"""Longest time for one call, in seconds: a run makes thousands of them."""


PATTERNS = (
    "a regular expression with a repetition inside of another one can take ages on a long text: "
    "write one that says in one way what it takes"
)
SLOW = (
    "answer at once, for a run calls it thousands of times; what takes time belongs into tools, "
    "whose steps are bounded by tools.timeout_s with tools.execution=workers"
)
"""The remedy for a call that takes too long; in a regular expression it is `PATTERNS`."""

_MATCHES = re.compile(r"\bre\.|match\(|search\(|findall\(|finditer\(|sub\(|split\(")


_PROTOCOLS = (
    Domain,
    ConstrainsEnv,
    EmbedsTasks,
    KnowsSolution,
    NamesLeaks,
    ReadsAnswers,
    SeedData,
    SimulatedTools,
    ToolsByTask,
    WritesAnswers,
)


def of_signatures(domain: object) -> Iterator[DomainFault]:
    """Yield the methods of a domain that genenv cannot call in its way."""
    for name, known in _known_methods(type(domain)).items():
        stands = inspect.getattr_static(domain, name, None)
        if stands is None or stands is known or isinstance(stands, property):
            continue
        method: Any = getattr(domain, name)
        needed = [
            one
            for one in list(inspect.signature(known).parameters.values())[1:]
            if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        ]
        names = ", ".join(one.name for one in needed)
        remedy = f"write def {name}({', '.join(['self', *(one.name for one in needed)])})"
        if not callable(method):
            yield DomainFault(name, f"is {shown(method)}, no method", remedy)
        elif inspect.iscoroutinefunction(method):
            yield DomainFault(name, "is an async method, and genenv awaits none", remedy)
        elif takes := _other_parameters(method, needed):
            yield DomainFault(name, f"takes {takes}, and genenv calls {name}({names})", remedy)


def _known_methods(kind: type) -> Mapping[str, Any]:
    """Return the methods that genenv declares, in its protocols and in the bases of a class."""
    bases = [base for base in kind.__mro__[:0:-1] if base.__module__.startswith("genenv_core.")]
    return {
        name: one
        for declared in (*_PROTOCOLS, *bases)
        for name, one in vars(declared).items()
        if inspect.isfunction(one) and not name.startswith("_")
    }


def _other_parameters(method: Any, needed: Sequence[inspect.Parameter]) -> str:
    """Return the parameters of a method that does not take the needed ones, else ''."""
    try:
        own = inspect.signature(method)
    except (TypeError, ValueError):  # some builtins have none
        return ""
    named = {one.name: None for one in needed if one.kind is one.KEYWORD_ONLY}
    try:
        own.bind(*(None for one in needed if one.kind is not one.KEYWORD_ONLY), **named)
    except TypeError:
        return str(own.replace(return_annotation=own.empty))
    return ""


class _Over(BaseException):
    """The time is over; a domain's `except Exception` does not catch it."""


def called(method: str, call: Callable[[], Value], on: str = "", *, more_s: float = 0.0) -> Value:
    """Return a method's result; raises Stop where it raises or takes too long.

    `on` names the arguments for errors, such as ` on task '3 + 4'`. `more_s` extends the time
    limit.
    """
    try:
        with limited(method, on, more_s=more_s):
            return call()
    except StopChecking:
        raise
    except FAILURES as error:
        what = f"{raised(error)},{on}" if on else raised(error)
        raise StopChecking(method, what, "mend what it names") from error


def drawn(
    method: str, draw: Callable[[int, int], Any], count: int, option: str, seed: int = 0
) -> list[TaskDraft]:
    """Return `count` distinct tasks of a method; raises Stop for any other result.

    Args:
        method: `base_tasks` or `heldout_tasks`, for errors.
        draw: that method, which takes a seed and a count.
        count: how many tasks to ask for.
        option: the field of the configuration that sets the count in a run.
        seed: of the draw.
    """
    made = called(method, lambda: draw(seed, count), more_s=count / 100)
    drafts = items_of(made)
    if drafts is None:
        raise StopChecking(method, f"returned {shown(made)}", "return a list of TaskDraft")
    for draft in drafts:
        if not isinstance(draft, TaskDraft):
            raise StopChecking(method, f"has {shown(draft)}", "return a list of TaskDraft")
        check_fields(method, draft)
    if len(drafts) != count:
        raise StopChecking(
            method,
            f"returned {len(drafts)} tasks, {count} were asked for",
            f"make more, or raise ConfigError that says to lower {option}",
        )
    if len({draft.fingerprint for draft in drafts}) < count:
        raise StopChecking(method, "has two tasks of one fingerprint", "return distinct tasks")
    return drafts


def attempted(
    domain: Domain, draft: TaskDraft, actions: Sequence[str]
) -> list[tuple[Observation, str]]:
    """Return the answer to each text in one attempt, and why its step failed, '' if it did not.

    Raises Stop for an episode that does not open, and for a step that takes too long.
    """
    task = f" on task {shown(draft.prompt)}"
    episode: Any = called("episode", lambda: domain.episode(draft, 0), task)
    if not callable(getattr(episode, "step", None)):
        what = f"returned {shown(episode)}{task}"
        raise StopChecking("episode", what, "return an object with step(text)")
    heard: list[tuple[Observation, str]] = []
    for turn, action in enumerate(actions, 1):
        place = f" in turn {turn} of task {shown(draft.prompt)}, on {shortly(action)}"
        errors: list[str] = []

        def step(text: str, errors: list[str] = errors) -> object:
            try:
                return episode.step(text)
            except FAILURES as error:
                errors.append(raised(error))
                raise

        with limited("episode.step", place):
            seen = stepped(step, action)
        why = [*errors, *(one["content"] for one in seen.messages)] if seen.failed else []
        heard.append((seen, f"{why[0]},{place}" if why else ""))
    return heard


@contextmanager
def limited(method: str, on: str = "", *, more_s: float = 0.0) -> Generator[None]:
    """Raise Stop where the code inside takes too long.

    A signal ends it, because a regular expression at work lets no other thread in. So only the main
    thread has a limit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    place: list[tuple[str, str]] = []

    def over(number: int, frame: FrameType | None) -> None:
        place.append((line_of(frame), PATTERNS if _in_pattern(frame) else SLOW))
        raise _Over

    limit, started = CALL_S + more_s, time.monotonic()
    before = signal.signal(signal.SIGALRM, over)
    left, interval = signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        yield
    except _Over:
        pass
    finally:
        rest = max(left - (time.monotonic() - started), 0.001) if left else 0.0
        signal.setitimer(signal.ITIMER_REAL, rest, interval)
        signal.signal(signal.SIGALRM, before)
    for line, remedy in place:
        raise StopChecking(method, f"takes longer than {limit:g} s{on}{line}", remedy)


def _in_pattern(frame: FrameType | None) -> bool:
    """Return whether a regular expression is at work, by the line that runs: it has no frame."""
    if frame is None:
        return False
    at = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    return frame.f_globals.get("__name__", "").startswith("re.") or bool(_MATCHES.search(at))
