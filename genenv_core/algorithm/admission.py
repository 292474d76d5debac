"""The checks that a generation must pass to become a task: sound spec, no leak, no duplicate.

A task is admitted only if its evaluation spec accepts its own ground truth and rejects empty,
constant and prompt-echo answers. Otherwise pi_env could earn reward with tasks that judge nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from genenv_core.domains.protocol import Domain
from genenv_core.types import Message, Rejected, Rejection, TaskDraft, Verdict


def admit(
    draft: TaskDraft,
    domain: Domain,
    *,
    batch: Collection[str],
    history: Collection[str],
    heldout: Collection[str],
) -> TaskDraft | Rejected:
    """Return the draft, or why it is no task; the collections hold fingerprints."""
    if draft.fingerprint in heldout:
        return Rejected(Rejection.IN_HELDOUT, draft.program[:80])
    if draft.fingerprint in batch:
        return Rejected(Rejection.DUPLICATE, draft.program[:80])
    if draft.fingerprint in history:
        return Rejected(Rejection.DUPLICATE_OF_HISTORY, draft.program[:80])
    if _holds(draft.prompt, draft.ground_truth):
        return Rejected(Rejection.LEAKS_ANSWER, "the prompt contains the ground truth")
    if not answer_verdict(draft, domain, draft.ground_truth).success:
        return Rejected(Rejection.REJECTS_GROUND_TRUTH, "the spec fails its own ground truth")
    for answer in domain.trivial_answers(draft):
        if answer_verdict(draft, domain, answer).success:
            return Rejected(Rejection.ACCEPTS_TRIVIAL, f"the spec accepts {answer[:60]!r}")
    return draft


def answer_verdict(draft: TaskDraft, domain: Domain, answer: str) -> Verdict:
    """Return the verdict on a transcript in which the agent says just `answer`."""
    reply: Message = {"role": "assistant", "content": answer}
    return domain.score(draft, [*domain.agent_messages(draft), reply])


def _holds(text: str, answer: str) -> bool:
    """Return whether the text holds the answer as whole words: 14 does not give 4 away."""
    before, after = (r"\b" if edge.isalnum() else "" for edge in (answer[:1], answer[-1:]))
    return bool(answer) and re.search(before + re.escape(answer) + after, text) is not None
