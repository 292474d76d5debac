"""What an agent says in a right attempt, as far as a domain knows one."""

from __future__ import annotations

from genenv_core.domains.protocol import Domain, KnowsSolution, WritesAnswers
from genenv_core.types import TaskDraft


def right_turns(domain: Domain, draft: TaskDraft) -> list[str]:
    """Return what the agent says in a right attempt, turn by turn; [] where nobody knows one."""
    if isinstance(domain, KnowsSolution):
        return [turn.says for turn in domain.solution(draft)]
    return list(domain.answer_turns(draft)) if isinstance(domain, WritesAnswers) else []
