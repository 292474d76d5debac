"""How many further tasks an epoch attempts.

Invariants: a round is as large as the number of groups with a signal that are lacking, and never
larger than what the bound on tasks and the reserve allow; an epoch that has its groups gets none.
"""

from __future__ import annotations

import pytest

from genenv_core.epoch.attempting.rounds import Refill
from tests.mutations import mutation

REFILL = "genenv_core/epoch/attempting/rounds.py"
ROUND = "min(self.groups - with_signal, self.most - attempted, reserve)"


@mutation(
    "a round attempts the whole reserve", REFILL, ROUND, "min(self.most - attempted, reserve)"
)
@mutation("a refill has no bound", REFILL, ROUND, "min(self.groups - with_signal, reserve)")
@mutation(
    "a reserve never ends", REFILL, ROUND, "min(self.groups - with_signal, self.most - attempted)"
)
@mutation(
    "an epoch with too many groups takes tasks back", REFILL,
    "max(0, min(self.groups", "(min(self.groups",
)  # fmt: skip
@pytest.mark.parametrize(
    ("with_signal", "attempted", "reserve", "size"),
    [
        (60, 160, 320, 40),  # 40 groups are lacking
        (0, 160, 320, 90),  # 250 tasks at most
        (60, 160, 7, 7),  # no more are there
        (60, 250, 230, 0),
        (60, 160, 0, 0),
        (100, 160, 320, 0),
        (130, 160, 320, 0),
    ],
)
def test_a_round_has_as_many_tasks_as_groups_are_lacking(
    with_signal: int, attempted: int, reserve: int, size: int
) -> None:
    refill = Refill(groups=100, most=250)
    found = refill.next_round(with_signal=with_signal, attempted=attempted, reserve=reserve)
    assert found == size
