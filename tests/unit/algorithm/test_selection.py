"""The k_min filter.

Invariants: the band is closed, symmetric around alpha and allows for float rounding; every task
gets exactly one reason, and validity comes before wholeness, the band and the signal; the
environment update learns only from pi_env's tasks and always within the band, the agent update
where configured; zero-signal groups never reach GRPO; NaN is an error with its place.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genenv_core.algorithm.selection import Candidate, in_band, select_for_agent, select_for_env
from genenv_core.errors import NumericalError
from schemas.enums import SelectionReason as Reason
from tests.mutations import mutation

SELECTION = "genenv_core/algorithm/selection.py"

unit = st.floats(0, 1)
candidates = st.builds(Candidate, st.booleans(), st.booleans(), st.none() | unit, st.booleans())


def make(
    skill: float = 0.5,
    *,
    valid: bool = True,
    generated: bool = True,
    complete: bool = True,
    zero_signal: bool = False,
) -> Candidate:
    return Candidate(valid, generated, skill if complete else None, zero_signal)


@mutation("the band without a tolerance", SELECTION, "<= k_min + TOLERANCE", "<= k_min")
@pytest.mark.parametrize(
    ("p", "alpha", "k_min", "inside"),
    [
        (0.75, 0.5, 0.25, True),  # the edges belong to the band
        (0.25, 0.5, 0.25, True),
        (0.875, 0.5, 0.25, False),  # 7/8: |0.375| > 0.25
        (0.125, 0.5, 0.25, False),
        (0.3, 0.1, 0.2, True),  # 0.3 - 0.1 is 0.19999999999999998 in floats
        (0.8, 0.7, 0.1, True),  # 0.8 - 0.7 is 0.10000000000000009 in floats
        (0.5, 0.5, 0.0, True),  # k_min 0 keeps alpha alone
        (0.51, 0.5, 0.0, False),
        (1 / 3, 1 / 3, 0.0, True),
        (0.0, 0.0, 0.0, True),  # alpha 0
        (0.125, 0.0, 0.25, True),
        (1.0, 1.0, 0.0, True),  # alpha 1
        (0.5, 1.0, 0.25, False),
        (0.0, 1.0, 1.0, True),  # k_min 1 excludes nothing
    ],
)
def test_band_golden(p: float, alpha: float, k_min: float, inside: bool) -> None:
    assert in_band(p, alpha=alpha, k_min=k_min) is inside


@given(st.integers(1, 64).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), unit)
def test_band_is_symmetric(fraction: tuple[int, int], k_min: float) -> None:
    k, n = fraction
    left = in_band(k / n, alpha=0.5, k_min=k_min)
    assert left is in_band((n - k) / n, alpha=0.5, k_min=k_min)


@given(st.integers(1, 1024).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_tolerance_is_far_below_one_attempt(fraction: tuple[int, int]) -> None:
    k, n = fraction
    assert in_band(k / n, alpha=0.5, k_min=abs(k / n - 0.5))
    assert not in_band((k + 1) / n, alpha=k / n, k_min=0.0)


@given(unit, unit, unit, unit)
def test_a_wider_band_never_loses_a_task(p: float, alpha: float, k: float, more: float) -> None:
    if in_band(p, alpha=alpha, k_min=k):
        assert in_band(p, alpha=alpha, k_min=min(1.0, k + more))


@mutation(
    "incomplete groups are kept", SELECTION,
    "        return SelectionReason.INCOMPLETE_GROUP", "        return None",
)  # fmt: skip
@mutation(
    "the band does not guard pi_env", SELECTION,
    "_gate(candidate) or _band(candidate, alpha, k_min) or", "_gate(candidate) or",
)  # fmt: skip
@mutation(
    "base tasks teach pi_env", SELECTION,
    "if candidate.valid and not candidate.generated:", "if False:",
)  # fmt: skip
@pytest.mark.parametrize(
    ("candidate", "expected"),
    [
        (make(), Reason.KEPT),
        (make(0.75), Reason.KEPT),
        (make(0.875), Reason.ABOVE_BAND),
        (make(0.125), Reason.BELOW_BAND),
        (make(0.0, zero_signal=True), Reason.BELOW_BAND),
        (make(zero_signal=True), Reason.KEPT),  # equal soft rewards still rate the task
        (make(0.875, complete=False), Reason.INCOMPLETE_GROUP),
        (make(0.875, valid=False, complete=False), Reason.INVALID_TASK),
        (make(generated=False), Reason.NOT_IN_UPDATE),
        (make(0.875, generated=False, complete=False), Reason.NOT_IN_UPDATE),
        (Candidate(valid=False, generated=False), Reason.INVALID_TASK),
    ],
)
def test_reason_for_the_environment_update(candidate: Candidate, expected: Reason) -> None:
    assert select_for_env(candidate, alpha=0.5, k_min=0.25) is expected


@mutation("groups of equal rewards reach GRPO", SELECTION, "candidate.zero_signal:", "False:")
@pytest.mark.parametrize(
    ("candidate", "with_band", "without_band"),
    [
        (make(), Reason.KEPT, Reason.KEPT),
        (make(0.875), Reason.ABOVE_BAND, Reason.KEPT),
        (make(0.125), Reason.BELOW_BAND, Reason.KEPT),
        (make(1.0, zero_signal=True), Reason.ABOVE_BAND, Reason.ZERO_SIGNAL),
        (make(zero_signal=True), Reason.ZERO_SIGNAL, Reason.ZERO_SIGNAL),
        (make(0.9, complete=False), Reason.INCOMPLETE_GROUP, Reason.INCOMPLETE_GROUP),
        (make(0.9, valid=False), Reason.INVALID_TASK, Reason.INVALID_TASK),
        (Candidate(valid=False, generated=True), Reason.INVALID_TASK, Reason.INVALID_TASK),
        (make(generated=False), Reason.KEPT, Reason.KEPT),
    ],
)
def test_reason_for_the_agent_update(
    candidate: Candidate, with_band: Reason, without_band: Reason
) -> None:
    assert select_for_agent(candidate, alpha=0.5, k_min=0.25, use_band=True) is with_band
    assert select_for_agent(candidate, alpha=0.5, k_min=0.25, use_band=False) is without_band


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_alpha_at_the_ends_has_one_sided_reasons(alpha: float) -> None:
    outside = Reason.ABOVE_BAND if alpha == 0 else Reason.BELOW_BAND
    assert select_for_env(make(0.5), alpha=alpha, k_min=0.25) is outside
    assert select_for_env(make(alpha), alpha=alpha, k_min=0.0) is Reason.KEPT


@given(candidates, unit, unit, st.booleans())
def test_what_is_kept_is_valid_whole_in_band_and_has_signal(
    candidate: Candidate, alpha: float, k_min: float, use_band: bool
) -> None:
    skill = candidate.skill
    whole = candidate.valid and skill is not None
    inside = skill is not None and in_band(skill, alpha=alpha, k_min=k_min)
    env = select_for_env(candidate, alpha=alpha, k_min=k_min)
    assert (env is Reason.KEPT) == (whole and candidate.generated and inside)
    agent = select_for_agent(candidate, alpha=alpha, k_min=k_min, use_band=use_band)
    assert (agent is Reason.KEPT) == (
        whole and (inside or not use_band) and not candidate.zero_signal
    )


def test_every_task_may_be_rejected() -> None:
    solved = [make(1.0, zero_signal=True)] * 3
    reasons = {select_for_env(item, alpha=0.5, k_min=0.25) for item in solved}
    assert reasons == {Reason.ABOVE_BAND}


@pytest.mark.parametrize("place", range(3))
def test_nan_in_the_band_is_an_error_with_its_place(place: int) -> None:
    p, alpha, k_min = (math.nan if place == index else 0.5 for index in range(3))
    with pytest.raises(NumericalError, match=rf"in_band\(.*\): value {place} is nan"):
        in_band(p, alpha=alpha, k_min=k_min)


@pytest.mark.parametrize("use_band", [True, False])
def test_a_nan_skill_is_an_error_with_and_without_the_band(use_band: bool) -> None:
    with pytest.raises(NumericalError, match="skill of a complete group"):
        select_for_agent(make(math.nan), alpha=0.5, k_min=0.25, use_band=use_band)
