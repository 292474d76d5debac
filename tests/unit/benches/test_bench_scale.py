"""The synthetic pools of `make bench` are valid, and its two ways of asking agree.

Invariants: every synthetic table passes its model; each question gives equal, non-empty rows by
genenv's views and by hand over the same files; every id that the benchmark fetches exists.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from polars.testing import assert_frame_equal

from genenv_core.pools import connect
from genenv_core.storage.store.local import LocalStore
from tests.bench.scale import FETCHED, questions, raw
from tests.bench.synthetic import Shape, build
from tests.examples import some

SHAPE = Shape(traces=1600, epochs=4)
NAMES = list(questions(SHAPE))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a root with a small synthetic run."""
    folder = tmp_path_factory.mktemp("synthetic")
    build(LocalStore(folder), SHAPE)
    return folder


@pytest.mark.parametrize("name", some(NAMES, NAMES[:1]))
def test_both_ways_give_the_same_rows(name: str, root: Path) -> None:
    own, by_hand = questions(SHAPE)[name]
    with connect(root) as views, raw(root) as plain:
        ours, theirs = views.execute(own).pl(), plain.execute(by_hand).pl()
    assert ours.height == {NAMES[4]: 1, NAMES[5]: FETCHED}.get(name, ours.height) > 0
    assert_frame_equal(ours, theirs)


def test_pool_has_the_asked_size(root: Path) -> None:
    with connect(root) as views:
        rows = views.execute(
            "SELECT (SELECT count(*) FROM traces), (SELECT count(*) FROM trace_tokens), "
            "(SELECT count(DISTINCT epoch) FROM epochs)"
        ).fetchone()
    assert rows == (1600, 1600, 4)
