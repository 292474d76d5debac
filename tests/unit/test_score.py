"""R_agent comes from a domain, which may be somebody's own: what it returns is checked.

Invariants: a reward outside [0, 1] and one that is no number are errors that name the trace; the
first says what to mend.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from genenv_core.errors import DomainError, NumericalError
from genenv_core.types import Verdict
from tasks.score import _judge

TASK = SimpleNamespace(draft=None)


def judged(reward: float):
    domain = SimpleNamespace(name="own", score=lambda draft, messages: Verdict(reward, True, ""))
    row = {"trace_id": "t-7", "epoch": 1, "task_id": "a", "group_id": "g"}
    return _judge({**row, "error": "", "messages": "[]"}, TASK, domain)


@pytest.mark.parametrize("reward", [0.0, 0.25, 1.0])
def test_a_reward_within_its_bounds_is_kept(reward: float):
    assert judged(reward)["reward"] == reward


@pytest.mark.parametrize("reward", [-0.01, 1.5])
def test_a_reward_out_of_bounds_names_trace_value_and_domain(reward: float):
    with pytest.raises(DomainError, match=rf"trace t-7 is {reward}.*\[0, 1\].*domain own"):
        judged(reward)


def test_a_reward_that_is_no_number_names_its_trace():
    with pytest.raises(NumericalError, match="trace t-7"):
        judged(float("nan"))
