"""A domain whose author also writes `solve`: genenv plays, checks and shows it.

One generator gives the solution that certificates play, the part of the answer that each turn
reveals, and the supervised examples from which `bootstrap` makes tiny models.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Generator
from typing import cast

from genenv_core.domains.kit.episode import ToolEpisode
from genenv_core.domains.kit.kit_domain import OptionsT, ProgramDomain, Solving
from genenv_core.domains.kit.levels import SeededTasks
from genenv_core.domains.kit.texts.saying import holds
from genenv_core.domains.kit.tools import ERROR
from genenv_core.domains.protocol import SeedExample, SolutionTurn
from genenv_core.domains.steps import FAILURES, LONGER, SHOWN, error_line, shortly, too_long
from genenv_core.errors import DomainError
from genenv_core.types import AgentHistory, Message, Observation, TaskDraft


class SolvedDomain(ProgramDomain[OptionsT], SeededTasks):
    """A domain of programs that can attempt its own tasks."""

    @abstractmethod
    def solve(self, draft: TaskDraft) -> Solving | str:
        """Yield each turn with calls, as `call` writes them; return the answer.

        `yield` returns the tools' answers, one a line for several calls. The generator should
        follow the request and the tools, not the spec that `read` worked out: then it finds tasks
        that cannot be solved. A task without calls returns just the answer, without `yield`.
        """

    def solution(self, draft: TaskDraft) -> list[SolutionTurn]:
        """Return the turns of `solve`, played against the tools; raises DomainError if one fails.

        A turn reveals the tools' answers that neither the request nor an earlier turn said.
        """
        return [SolutionTurn(says, reveals) for says, reveals, _ in self._played(draft)]

    def asked_of_env(self, history: AgentHistory, base: TaskDraft) -> list[Message]:
        """Return pi_env's prompt: the agent's success in tenths and a program to vary."""
        return self.env_prompt(history.success_rate, base.program)

    def one_turn(self, draft: TaskDraft, rng: random.Random) -> SeedExample:
        """Return a random turn of an attempt by `solve`: the messages before it, and its text."""
        turns = self._played(draft)
        chosen = rng.randrange(len(turns))
        messages = self.agent_messages(draft)
        for says, _, answers in turns[:chosen]:
            messages.append({"role": "assistant", "content": says})
            messages += answers
        return messages, turns[chosen][0]

    def _played(self, draft: TaskDraft) -> list[tuple[str, tuple[str, ...], tuple[Message, ...]]]:
        """Return for each turn the agent's text, what it reveals, and the tools' answers."""
        solving, episode = self.solve(draft), self.episode(draft, 0)
        if isinstance(solving, str):
            return [(solving, (), ())]
        if not isinstance(cast(object, solving), Generator):
            raise self._no_answer(draft, solving)
        turns: list[tuple[str, tuple[str, ...], tuple[Message, ...]]] = []
        known = draft.prompt
        heard: list[str] = []
        try:
            says = next(solving)
            while True:
                observed = self._stepped(episode, draft, says, 1 + len(turns))
                answers = [message["content"] for message in observed.messages]
                known = f"{known}\n{says}"
                new = [one for one in dict.fromkeys(answers) if _is_new(one, known, heard)]
                turns.append((says, tuple(new), observed.messages))
                heard += answers
                says = solving.send("\n".join(answers))
        except StopIteration as end:
            if not isinstance(end.value, str):
                raise self._no_answer(draft, end.value) from None
            return [*turns, (end.value, (), ())]

    def _no_answer(self, draft: TaskDraft, given: object) -> DomainError:
        return DomainError(
            f"{self.name}: solve returned {given!r:.80} at {draft.program!r}: return the answer, "
            "which is a text"
        )

    def _stepped(self, episode: ToolEpisode, draft: TaskDraft, says: str, turn: int) -> Observation:
        """Return the tools' answers; raises DomainError, with turn and call, where they fail."""
        place = f"{self.name}: turn {turn} of solve, {shortly(says)}, at {draft.program!r:.{SHOWN}}"
        try:
            observed = episode.step(says)
        except FAILURES as error:
            raise DomainError(f"{place}: episode.step raised {error_line(error)}") from error
        if said := too_long(observed.messages):
            raise DomainError(f"{place}: {said}: {LONGER}")
        answers = [one["content"] for one in observed.messages]
        if wrong := [one for one in answers if one.startswith(ERROR)]:
            raise DomainError(f"{place}: the tools say {wrong[0]!r}")
        if observed.done:
            last = self.bounds.turns
            raise DomainError(
                f"{place}: this ends the attempt, as a turn without a call and turn {last} do"
            )
        return observed


def _is_new(part: str, known: str, heard: list[str]) -> bool:
    """Return whether an answer is new: no request, call or earlier answer says it.

    Certificates look for it in the tools' other answers.
    """
    return bool(part) and part not in heard and not holds(known, part)
