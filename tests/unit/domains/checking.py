"""What tests of domains ask of a task."""

from __future__ import annotations

from genenv_core.domains.protocol import Domain
from genenv_core.play.certificate import Check, certify
from genenv_core.types import TaskDraft


def flaws(draft: TaskDraft, domain: Domain) -> list[Check]:
    """Return the flaws that a task's certificate names."""
    return [check for check in certify(draft, domain) if not check.passed]
