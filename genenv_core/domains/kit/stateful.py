"""A domain whose tasks are done when the state is right: it judges the state after the tools' work.

The ground truth of a task is the calls that do it, as `call` writes them, one behind the other.
`score` makes the state anew and plays the agent's calls in it, so stored attempts get the verdict
that played ones get.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, final

from genenv_core.domains.kit.episode import final_text
from genenv_core.domains.kit.kit_domain import OptionsT, Solving
from genenv_core.domains.kit.solved import SolvedDomain
from genenv_core.domains.protocol import SolutionTurn
from genenv_core.types import Message, TaskDraft, Verdict

DONE = "done"
"""The answer of `solve` after its calls."""


class StatefulDomain(SolvedDomain[OptionsT]):
    """A domain of programs that judges the state in which the tools leave a task.

    `state` must follow from the task alone: the same state each time, whatever the seed.
    """

    @abstractmethod
    def judge_state(self, draft: TaskDraft, state: Any, answer: str) -> Verdict:
        """Return the verdict on a state after an attempt; pure.

        `answer` is the text of the last turn, '' where that is a call. The state before an attempt
        must be no success.
        """

    @final
    def judge(self, draft: TaskDraft, answer: str) -> Verdict:
        """Return the verdict on an answer after no call, which leaves the state as it was."""
        return self.judge_state(draft, self.state(draft, 0), answer)

    def score(self, draft: TaskDraft, messages: Sequence[Message]) -> Verdict:
        """Return the verdict on the state that the calls of a transcript lead to."""
        episode, state = self.begun(draft, 0)
        for message in messages:
            if message["role"] == "assistant" and episode.step(message["content"]).done:
                break
        text = final_text(messages)
        return self.judge_state(draft, state, "" if text is None else self.extract(text))

    def solve(self, draft: TaskDraft) -> Solving | str:
        """Make the calls of the ground truth, in one turn.

        Override it where the agent has to look things up first. The attempt then shows how, and
        finds tasks in which that cannot be done.
        """
        yield draft.ground_truth
        return DONE

    def solution(self, draft: TaskDraft) -> list[SolutionTurn]:
        """Return the turns of `solve`; they reveal nothing, because no text is the answer here."""
        return [SolutionTurn(turn.says) for turn in super().solution(draft)]
