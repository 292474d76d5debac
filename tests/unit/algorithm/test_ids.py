"""Ids, and seeds derived from names; and the check for finite numbers.

Invariants: ids sort by (epoch, stage, index) up to the configuration's bounds, and differ when any
of the three does; a seed depends on every part, its type and the order, fits 63 bits, and is the
same in every process; `finite` returns what it got or names the first bad value.
"""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genenv_core.checks import finite
from genenv_core.config.schema import RunConfig
from genenv_core.config.sections.data import DataConfig
from genenv_core.config.sections.rollout import RolloutConfig
from genenv_core.errors import NumericalError
from genenv_core.ids import group_id, seed_from, task_id, trace_id
from tests.waiting import BOUND_S

KEY = "0123456789abcdef" * 4


def _largest(model: type, name: str) -> int:
    return next(m.le for m in model.model_fields[name].metadata if hasattr(m, "le"))


EPOCHS = _largest(RunConfig, "epochs")
# Bootstrap numbers the base and the held-out tasks together.
TASKS = sum(_largest(DataConfig, name) for name in ("base_tasks", "validation_tasks", "test_tasks"))
SAMPLES = _largest(RolloutConfig, "n")

places = st.tuples(st.integers(0, EPOCHS), st.sampled_from(["0" * 64, KEY, "f" * 64])).flatmap(
    lambda head: st.tuples(st.just(head[0]), st.just(head[1]), st.integers(0, TASKS - 1))
)


def test_golden() -> None:
    assert task_id(3, KEY, 41) == "t000003-01234567-0000041"
    assert group_id(3, KEY, 41) == "g000003-01234567-0000041"
    assert trace_id(group_id(3, KEY, 41), 7) == "g000003-01234567-0000041.0007"


@given(places, places)
def test_ids_sort_like_what_they_name(
    left: tuple[int, str, int], right: tuple[int, str, int]
) -> None:
    assert (task_id(*left) < task_id(*right)) == (left < right)
    assert (group_id(*left) < group_id(*right)) == (left < right)
    one, other = trace_id(group_id(*left), 5), trace_id(group_id(*right), 5)
    assert (one < other) == (left < right)


def test_traces_of_a_group_sort_by_sample_up_to_the_largest_group() -> None:
    ids = [trace_id("g", sample) for sample in range(SAMPLES)]
    assert ids == sorted(ids)
    assert len(set(ids)) == SAMPLES


@given(st.lists(st.integers() | st.text("abc", max_size=5), max_size=4))
def test_seeds_fit_and_repeat(parts: list[int | str]) -> None:
    assert 0 <= seed_from(*parts) < 2**63
    assert seed_from(*parts) == seed_from(*parts)


def test_seeds_depend_on_every_part_its_type_and_the_order() -> None:
    seeds = [
        seed_from(),
        seed_from(1),
        seed_from("1"),
        seed_from(1, 2),
        seed_from(2, 1),
        seed_from(12),
        seed_from("1", 2),
        seed_from("a", "b"),
        seed_from("ab"),
        seed_from("a", "b", ""),
    ]
    assert len(set(seeds)) == len(seeds)


def test_seeds_are_equal_in_another_process() -> None:
    code = "from genenv_core.ids import seed_from; print(seed_from('rollout', 3, 'x'))"
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=BOUND_S
    ).stdout
    assert int(output) == seed_from("rollout", 3, "x")


def test_finite_returns_the_values_or_names_the_first_bad_one() -> None:
    assert finite(iter([1.0, -2.5]), "here") == [1.0, -2.5]
    assert finite([], "here") == []
    with pytest.raises(NumericalError, match=r"^here: value 1 is inf, expected a finite number$"):
        finite([0.0, math.inf, math.nan], "here")
