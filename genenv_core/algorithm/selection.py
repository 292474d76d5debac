"""The k_min filter: says which groups each update may use, and why it may not use the others.

A task is outside of the band when |skill - alpha| > k_min. GenEnv, arXiv 2512.19682, has p_hat for
the skill; the two are equal where no guess is right. Skill and alpha are fractions, so the
comparison allows for rounding: 0.75 - 0.5 must not exceed 0.25.
"""

from __future__ import annotations

from dataclasses import dataclass

from genenv_core.checks import finite
from schemas.enums import SelectionReason

TOLERANCE = 1e-9
"""Slack of the band's edges: far above float rounding, far below 1/n for any real n."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A task as the filter sees it.

    `generated` says whether pi_env wrote the task. `skill` is p_hat above chance, of the level that
    the caller judges by, and None where the group is not complete.
    """

    valid: bool
    generated: bool
    skill: float | None = None
    zero_signal: bool = False
    attempted: bool = True


def in_band(skill: float, *, alpha: float, k_min: float) -> bool:
    """Return whether |skill - alpha| <= k_min, with a tolerance."""
    finite([skill, alpha, k_min], "in_band(skill, alpha, k_min)")
    return abs(skill - alpha) <= k_min + TOLERANCE


def select_for_env(candidate: Candidate, *, alpha: float, k_min: float) -> SelectionReason:
    """Return the reason for the update of pi_env: validity, authorship, and always the band.

    pi_env learns only from tasks that it wrote.
    """
    if candidate.valid and not candidate.generated:
        return SelectionReason.NOT_IN_UPDATE
    return _gate(candidate) or _band(candidate, alpha, k_min) or SelectionReason.KEPT


def select_for_agent(
    candidate: Candidate, *, alpha: float, k_min: float, use_band: bool
) -> SelectionReason:
    """Return the reason for the update of pi_agent: validity, the band where configured, signal."""
    reason = _gate(candidate)
    if reason is None and use_band:
        reason = _band(candidate, alpha, k_min)
    if reason is None and candidate.zero_signal:
        reason = SelectionReason.ZERO_SIGNAL
    return reason or SelectionReason.KEPT


def _gate(candidate: Candidate) -> SelectionReason | None:
    if not candidate.valid:
        return SelectionReason.INVALID_TASK
    if not candidate.attempted:
        return SelectionReason.NOT_ATTEMPTED
    if candidate.skill is None:
        return SelectionReason.INCOMPLETE_GROUP
    finite([candidate.skill], "skill of a complete group")
    return None


def _band(candidate: Candidate, alpha: float, k_min: float) -> SelectionReason | None:
    assert candidate.skill is not None  # else the gate has given its reason
    if in_band(candidate.skill, alpha=alpha, k_min=k_min):
        return None
    return SelectionReason.BELOW_BAND if candidate.skill < alpha else SelectionReason.ABOVE_BAND
