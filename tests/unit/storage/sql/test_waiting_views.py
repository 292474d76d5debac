"""Views are created when a question names them, because each costs a look at all files below it.

Invariants: a question finds every view that it names, in any spelling, and what that reads; others
wait; a question about the catalog, and an error about a name, know all of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from genenv_core.errors import QueryError
from genenv_core.storage.sql.catalog import setup
from genenv_core.storage.sql.duck import Setup, build, build_named, start
from genenv_core.storage.sql.sandbox import ask
from genenv_core.storage.sql.sources import sources
from schemas.relations import VIEW_NAMES, views
from tests.examples import some
from tests.mutations import mutation
from tests.unit.builders_root import small_root

DUCK = "genenv_core/storage/sql/duck.py"
CHILD = "genenv_core/storage/sql/sandbox_child.py"


def created(question: str) -> set[str]:
    """Return the views that are there after a question, over no run at all."""
    whole = setup([])
    waiting = dict(whole.views)
    with start("100MB") as con:
        build(con, Setup(whole.held, whole.statements, {}, whole.files, whole.older, whole.types))
        build_named(con, waiting, question)
    return set[str](VIEW_NAMES) - set(waiting)


@mutation(
    "a view is created without what it reads", DUCK,
    "                words |= words_of(statement)\n",
    "",
)  # fmt: skip
def test_a_question_has_the_views_that_it_names_and_what_they_read() -> None:
    assert created("SELECT 1") == set()
    assert created("FROM epochs") == {"epochs"}
    assert created('SELECT count(*) FROM "Evidence"') == {
        "settings", "epochs", "calibration", "test_results", "test_gains", "updates", "fidelity",
        "evidence",
    }  # fmt: skip


VIEWS = [view.name for view in views() if not view.parameters]


@pytest.mark.parametrize("view", some(VIEWS, VIEWS[::3]))
def test_every_view_can_be_asked_for_alone(view: str) -> None:
    assert view in created(f"FROM {view}")


@mutation(
    "a question about the catalog does not see the views", DUCK,
    "if words & _OF_THE_CATALOG else list[str]()", "if False else list[str]()",
)  # fmt: skip
def test_a_question_about_the_catalog_sees_all_views() -> None:
    for question in ("SHOW TABLES", "SELECT view_name FROM duckdb_views()"):
        assert created(question) == set(VIEW_NAMES)


@mutation(
    "an error about a name knows few names", CHILD,
    "if not self.waiting:\n                raise", "if True:\n                raise",
)  # fmt: skip
@pytest.mark.slow
def test_an_unknown_name_is_held_against_all_views(tmp_path: Path) -> None:
    found = sources(small_root(tmp_path))
    with pytest.raises(QueryError, match="did you mean evidence"):
        ask(found, "FROM evidense")
    assert ask(found, "SELECT count(*) AS n FROM what_if(alpha := 0.4)").frame["n"].item() > 0
