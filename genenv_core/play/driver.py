"""Attempts at tasks: one thread hands completions to the tools and observations to the engine.

The agent gets its answers in one of three ways. Tools that answer at once run inline: then all
attempts take their turns in step, and the waiting ones are one batch. Tools that take time run in
workers, or pi_env plays them: then every attempt advances on its own, so that slow tools hold up
nobody else, and the engine computes in between. An attempt's tokens depend on its own seeds and
observations, not on when others get their answers, but for the rounding in a batch of other shape.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from genenv_core.domains.protocol import repeatable
from genenv_core.engines.protocol import Session
from genenv_core.engines.retries import LOOK_S, NEVER, Retries, batches
from genenv_core.engines.sessions import BatchSession, Mailbox, open_session
from genenv_core.play.answering import (
    Answering,
    ByWorkers,
    Inline,
    Simulated,
    Simulation,
    ToolExecution,
)
from genenv_core.play.attempt import Attempt, Play, open_group, with_stops
from genenv_core.play.calls import with_calls_of
from genenv_core.types import (
    Completion,
    Observation,
    Rollout,
    TaskDraft,
)


def run_episodes(
    tasks: Sequence[tuple[str, TaskDraft]],
    play: Play,
    *,
    tools: ToolExecution | Simulation | None = None,
    open_attempts: int | None = None,
    retries: Retries = NEVER,
    check: Callable[[], None] = lambda: None,
) -> Iterator[tuple[int, list[Rollout]]]:
    """Yield (index of the task, its n rollouts), each group when it has finished.

    Args:
        tasks: (task id, draft) pairs; ids are unique.
        play: who attempts them, and how.
        tools: who answers the agent; None runs the domain's tools inline, in step.
        open_attempts: most attempts in progress at once, at least one group; None: all. Groups
            begin in order.
        retries: how often to repeat an attempt that its environment or its engine lost, with
            the same seeds, once all others have finished.
        check: the driver calls it often; what it raises ends everything.

    A rollout's tokens never exceed `max_length`: an observation that leaves no room for another
    completion stays in `messages` and adds no tokens.

    In step, the bits of a batch depend on all attempts in it. So where some came late and all came
    in the end, the driver makes all once more: they are then those of a run that lost nothing. It
    yields the groups that finished before the first loss at once, as they are the same. Where the
    domain is not repeatable, a second time would gain nothing, and the driver leaves it out.
    """
    rounds = _Rounds(retries)
    made = _made(tasks, play, tools, open_attempts, rounds, check)
    once = tools is not None or not retries.tries or not repeatable(play.domain)
    if once or not batches(play.engine):
        yield from made
        return
    given, held = set[int](), list[tuple[int, list[Rollout]]]()
    for index, group in made:
        if rounds.disturbed:
            held.append((index, group))
        else:
            given.add(index)
            yield index, group
    if rounds.number and not _lost(held):
        once_more = _made(tasks, play, tools, open_attempts, _Rounds(NEVER), check)
        again = [(index, group) for index, group in once_more if index not in given]
        held = held if _lost(again) else again
    yield from held


@dataclass(slots=True)
class _Rounds:
    """How many rounds of lost attempts there were so far, and how many there may be.

    `disturbed` says that an attempt was lost, if only for a while.
    """

    retries: Retries
    number: int = 0
    disturbed: bool = False

    @property
    def final(self) -> bool:
        """Return whether no further round may come."""
        return self.number == self.retries.tries


def _lost(groups: Sequence[tuple[int, list[Rollout]]]) -> bool:
    return any(one.lost for _, group in groups for one in group)


def _made(
    tasks: Sequence[tuple[str, TaskDraft]],
    play: Play,
    tools: ToolExecution | Simulation | None,
    open_attempts: int | None,
    rounds: _Rounds,
    check: Callable[[], None],
) -> Iterator[tuple[int, list[Rollout]]]:
    mailbox: Mailbox = SimpleQueue()
    with ExitStack() as stack:
        session: Session
        answering: Answering
        params = with_stops(play.params, play.chat)
        if tools is None:
            session, answering = BatchSession(play.engine, params), Inline(play)
        else:
            session = open_session(play.engine, params, mailbox)
            stack.callback(session.close)
            if isinstance(tools, Simulation):
                answering = Simulated(play, tools, mailbox)
            else:
                answering = ByWorkers(play, tools, mailbox)
            stack.callback(answering.close)
        driver = _Driver(session, answering, mailbox, play, rounds)
        n = play.bounds.n
        most = len(tasks) * n if open_attempts is None else max(open_attempts, n)
        waiting = deque(range(len(tasks)))
        while waiting or driver.open:
            check()
            while waiting and (not driver.open or driver.open + n <= most):
                index = waiting.popleft()
                driver.begin(index, open_group(*tasks[index], play))
            driver.turn()
            yield from driver.finished()
            if driver.lost and not waiting and not driver.open:
                rounds.number += 1
                rounds.retries.wait(rounds.number)
                waiting.extend(driver.lost)


class _Driver:
    """The attempts in progress; one thread calls all methods."""

    def __init__(
        self,
        session: Session,
        answering: Answering,
        mailbox: Mailbox,
        play: Play,
        rounds: _Rounds,
    ) -> None:
        self._session, self._answering, self._mailbox = session, answering, mailbox
        self._play, self._rounds = play, rounds
        self._attempts: dict[int, tuple[int, Attempt]] = {}
        self._groups: dict[int, list[Attempt]] = {}
        self._missing: dict[int, int] = {}
        self._finished: list[int] = []
        self.lost: dict[int, list[Attempt]] = {}
        self._next_tag = 0

    @property
    def open(self) -> int:
        """Return how many attempts are in progress."""
        return len(self._attempts)

    def begin(self, index: int, group: list[Attempt]) -> None:
        """Begin the attempts of a group; of one that was `lost`, only those without a verdict."""
        before = self.lost.pop(index, group)
        group = [new if old.passing else old for new, old in zip(group, before, strict=True)]
        self._groups[index] = group
        going = [attempt for attempt in group if attempt.finish is None]
        self._missing[index] = len(going)
        for attempt in going:
            tag, self._next_tag = self._next_tag, self._next_tag + 1
            self._attempts[tag] = (index, attempt)
            opened = self._answering.open(tag, attempt)
            if opened is not None:
                self._observe(tag, opened)
        if not going:
            self._finished.append(index)

    def turn(self) -> None:
        """Advance all attempts a little; wait when there is nothing to compute."""
        if not self._attempts:
            return
        for tag, completion in self._session.advance():
            self._take(tag, completion)
        for tag, observation in self._answering.advance():
            self._observe(tag, observation)
        self._read_mail()

    def finished(self) -> Iterator[tuple[int, list[Rollout]]]:
        """Yield the groups that have ended since the last call.

        While a round may come, a group with attempts that another try may save goes to `lost`.
        """
        while self._finished:
            index = self._finished.pop(0)
            group = self._groups.pop(index)
            if not self._rounds.final and any(attempt.passing for attempt in group):
                self.lost[index] = group
                continue
            yield index, [with_calls_of(one.rollout(), self._play.domain) for one in group]

    def _sample(self, tag: int, attempt: Attempt) -> None:
        play = self._play
        room = play.bounds.max_length - attempt.length
        self._session.submit(tag, attempt.request(play.seed_of), min(play.params.max_tokens, room))

    def _take(self, tag: int, completion: Completion) -> None:
        _, attempt = self._attempts[tag]
        action = attempt.take(completion, self._play.chat)
        if action is None:
            self._end(tag)
            return
        observation = self._answering.ask(tag, attempt, action)
        if observation is not None:
            self._observe(tag, observation)

    def _observe(self, tag: int, observation: Observation) -> None:
        _, attempt = self._attempts[tag]
        if attempt.turns:
            attempt.observe(observation, self._play.chat, self._play.bounds)
        else:
            attempt.opened(observation)
        if attempt.finish is None:
            self._sample(tag, attempt)
        else:
            self._end(tag)

    def _end(self, tag: int) -> None:
        index, attempt = self._attempts.pop(tag)
        self._rounds.disturbed |= attempt.passing
        self._session.forget(tag)
        self._answering.forget(tag)
        self._missing[index] -= 1
        if not self._missing[index]:
            self._finished.append(index)

    def _read_mail(self) -> None:
        """Make the calls that other threads have sent; wait for one when there is no other work."""
        computes = self._session.computes or self._answering.computes
        wait = bool(self._attempts) and not computes and not self._finished
        try:
            while True:
                call = self._mailbox.get(
                    block=wait, timeout=min(LOOK_S, self._answering.patience()) if wait else None
                )
                call()
                wait = False
        except Empty:
            return
