"""Attempts at tasks of a domain whose environment is a server."""

from __future__ import annotations

import psutil

from genenv_core.domains.protocol import Domain
from genenv_core.types import Message, TaskDraft


def played(domain: Domain, draft: TaskDraft, *says: str) -> list[Message]:
    """Return the transcript in which the agent says these texts."""
    messages, episode = domain.agent_messages(draft), domain.episode(draft, 0)
    for text in says:
        messages += [{"role": "assistant", "content": text}, *episode.step(text).messages]
    return messages


def goes_on_after_a_kill(
    app: str, domain: Domain, draft: TaskDraft, *, wrong: str, right: str
) -> None:
    """Check that attempts go on when the process dies that genenv serves an app in."""
    first, second = domain.episode(draft, 0), domain.episode(draft, 0)
    assert not first.step(wrong).done and not second.step(wrong).done
    (child,) = [one for one in psutil.Process().children() if one.cmdline()[-1:] == [app]]
    child.kill()
    child.wait()
    assert first.step(right).done and second.step(right).done
