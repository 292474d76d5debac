"""Judging the measured alignment: rank correlations of parts with what they are worth.

Invariants: ranks alone count; updates are resampled whole, so parts of few updates have a wide
interval; within an update the updates' own means do not count; a part sums up its groups; the lines
name each predictor.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import polars as pl
import pytest

from genenv_core.evidence.taught import PREDICTORS, UpdatePart, centred, judged_parts, ranked
from tests.mutations import mutation

DRAWS = 60
TAUGHT = "genenv_core/evidence/taught.py"


def part(
    run: str, epoch: int, name: str, alignment: float, worth: float, **more: Any
) -> UpdatePart:
    values = {"kind": "family", "groups": 2, "spread": 0.1, "tokens": 9} | more
    return UpdatePart(
        run, epoch, name=name, alignment=alignment,
        worth={"test": worth, "validation": worth}, **values,
    )  # fmt: skip


def alignment(one: UpdatePart) -> float:
    return one.alignment


def worth(one: UpdatePart) -> float:
    return one.worth["test"]


def test_a_part_sums_up_its_groups() -> None:
    groups = pl.DataFrame(
        {"successes": [1, 2], "n": [4, 4], "alignment": [0.5, -0.25], "tokens": [7, 8]}
    )
    made = UpdatePart.of(groups, kind="half", name="0.1", worth={"test": 0.1}, run="r", epoch=3)
    assert (made.alignment, made.groups, made.tokens) == (0.25, 2, 15)
    assert made.spread == pytest.approx(3 / 16 + 1 / 4)
    assert made.update == ("r", 3) and UpdatePart(**made.as_values()) == made


@mutation(
    "parts are resampled one by one", TAUGHT,
    "updates = list(by_update.values())",
    "updates = [[pair] for pairs in by_update.values() for pair in pairs]",
)  # fmt: skip
def test_ranks_count_and_updates_are_resampled_whole() -> None:
    """One update in five ranks the other way around; its parts are drawn together."""
    parts = [
        part("r", epoch, str(i), alignment=i**3, worth=-i if epoch == 0 else i)
        for epoch, i in product(range(5), range(6))
    ]
    found = ranked(parts, alignment, worth, draws=DRAWS)
    assert found.parts == 30 and found.low < found.rho < found.high
    assert found == ranked(parts, alignment, worth, draws=DRAWS)
    same = [part("r", epoch, str(i), i**3, i) for epoch, i in product(range(5), range(6))]
    certain = ranked(same, alignment, worth, draws=DRAWS)
    assert (certain.rho, certain.low, certain.high) == pytest.approx((1, 1, 1))
    # With three of five updates turned around, resampled means reach far to both sides of 0.
    torn = [
        part("r", epoch, str(i), i**3, -i if epoch < 3 else i)
        for epoch, i in product(range(5), range(6))
    ]
    wide = ranked(torn, alignment, worth, draws=DRAWS)
    assert wide.low < -0.9 and wide.high > 0.55
    assert str(certain) == "+1.00 [+1.00, +1.00]"


def test_too_few_parts_are_refused() -> None:
    with pytest.raises(ValueError, match="2 parts of 2 updates: too few"):
        ranked([part("r", 1, "a", 1, 1), part("r", 2, "a", 1, 1)], alignment, worth)
    with pytest.raises(ValueError, match="3 parts of 1 updates: too few"):
        ranked([part("r", 1, name, 1, 1) for name in "abc"], alignment, worth)


@mutation(
    "families of all updates are compared", TAUGHT,
    "lambda part: value(part) - means[part.update]", "lambda part: value(part)",
)  # fmt: skip
def test_within_an_update_its_level_does_not_count() -> None:
    """Later updates teach more of everything, and in each the ranks are the other way around."""
    parts = [
        part("r", epoch, str(i), 10 * epoch + i, 10 * epoch - i)
        for epoch, i in product(range(4), range(3))
    ]
    assert ranked(parts, alignment, worth, draws=DRAWS).rho > 0.8
    here = ranked(parts, centred(parts, alignment), centred(parts, worth), draws=DRAWS)
    assert here.rho == pytest.approx(-1)


def test_the_lines_name_each_predictor() -> None:
    parts = [
        part("r", epoch, str(i), i, i, groups=1 + i, spread=-i, tokens=7 - i)
        for epoch, i in product(range(3), range(3))
    ]
    parts += [
        part("r", epoch, f"0.{half}", half, half, kind="half", tokens=3 + half)
        for epoch, half in product(range(3), range(2))
    ]
    parts.append(part("r", 1, "gain", 1, 1, kind="whole", measuring_s=1.0, update_s=4.0))
    parts.append(part("r", 1, "other", 1, 0.25, kind="order", measuring_s=1.0, update_s=4.0))
    lines = judged_parts(parts, draws=DRAWS)
    assert [line.split()[0] for line in lines[1:5]] == list(PREDICTORS)
    assert "families +1.00 [+1.00, +1.00]" in lines[1] and "halves +1.00" in lines[1]
    assert "families -1.00 [-1.00, -1.00]" in lines[3]
    # Parts with more tokens are worth less here, so the alignment is two ahead of them.
    assert "families +2.00 [+2.00, +2.00]" in lines[7] and lines[7].split()[:2] == ["-", "tokens"]
    assert "families +0.00 [+0.00, +0.00]" in lines[5]
    assert "a task none" in lines[2]  # each group is one group
    assert lines[-3:] == [
        "another order of the same groups moves P(answer) by 0.2500 (rms)",
        "a family is worth 1.2910 (rms)",
        "measuring takes 25% of the time of the update",
    ]
    alone = [one for one in parts if one.kind == "family"]
    assert not any("halves" in line for line in judged_parts(alone, draws=DRAWS))
