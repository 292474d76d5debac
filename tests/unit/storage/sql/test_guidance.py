"""What a question is told that named a column in the wrong place, or found no rows.

Invariants: an error about a column names the tables that have it, and how one of them is joined
without more rows than before; an empty answer names the tables behind it that are empty in every
run; a question whose own conditions found nothing is told nothing.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.shown.rows import encode
from genenv_core import pools
from genenv_core.errors import QueryError
from genenv_core.pools import Answer
from genenv_core.storage.sql.guidance import why_no_rows, with_homes
from genenv_core.storage.sql.sandbox import ask
from genenv_core.storage.sql.sources import sources
from schemas.registry import TABLES
from schemas.relations import describe
from tests.mutations import mutation
from tests.unit.builders_root import small_root

GUIDANCE = "genenv_core/storage/sql/guidance.py"
NOT_FOUND = 'Binder Error: Referenced column "{}" not found in FROM clause!'


@mutation(
    "a join is suggested that multiplies rows", GUIDANCE,
    "not set(home.key) <= _columns(one)", "not set(home.key) & _columns(one)",
)  # fmt: skip
@mutation("a missing column has no home", GUIDANCE, "column in _columns(relation)", "False")
@mutation(
    "a table of the question is offered as another one", GUIDANCE,
    "if relation not in asked and ", "if ",
)  # fmt: skip
def test_a_column_is_looked_for_in_the_other_tables():
    said = with_homes(NOT_FOUND.format("family"), "SELECT family FROM task_scores")
    assert said.endswith("and 7 more: task_scores JOIN tasks USING (run_id, task_id)"), said
    said = with_homes(NOT_FOUND.format("reward") + "\nline 1: x", "SELECT reward FROM tasks")
    # Of a task there are many.
    homes = "reward is in scores, d_train, evaluations, judged_traces, agent_attempts"
    assert said == f"{NOT_FOUND.format('reward')}. {homes}\nline 1: x"
    qualified = 'Binder Error: Values list "t" does not have a column named "reward"'
    assert homes in with_homes(qualified, "SELECT t.reward FROM tasks t")
    joined = 'Binder Error: Column "reward" does not exist on left side of join!'
    assert homes in with_homes(joined, "FROM tasks JOIN x USING (reward)")
    asked = with_homes(NOT_FOUND.format("reward"), "SELECT scores.reward FROM scores AS s")
    assert "reward is in d_train" in asked


@pytest.mark.parametrize("message", [NOT_FOUND.format("rewrad"), "Parser Error: syntax error"])
def test_what_no_table_has_is_left_as_it_was(message: str):
    assert with_homes(message, "SELECT rewrad FROM scores") == message


@mutation(
    "a text in double quotes stays a riddle", GUIDANCE,
    "if f'\"{column}\"' not in sql:", "if True:",
)  # fmt: skip
def test_a_text_in_double_quotes_is_named_as_one():
    said = with_homes(NOT_FOUND.format("o'f"), 'SELECT 1 FROM runs WHERE run_id = "o\'f"')
    assert said == NOT_FOUND.format("o'f") + ". Double quotes name a column; a text is 'o''f'"


@mutation(
    "an empty view does not name its table", GUIDANCE,
    "behind[view.name] = behind[view.reads[0]]", "behind[view.name] = view.name",
)  # fmt: skip
def test_an_empty_table_is_named_with_what_it_holds():
    some = ["tasks", "task_scores"]
    said = why_no_rows(some, "SELECT 1 FROM taught JOIN tasks USING (run_id)")
    assert said.startswith("no run here has rows in influence, from which taught has its own: ")
    assert "grpo.attribution" in said
    assert why_no_rows(some, "FROM influence").startswith("no run here has rows in influence: ")
    assert why_no_rows([*some, "influence"], "FROM taught WHERE epoch = 99") == ""


def test_every_relation_has_a_table_behind_it():
    for relation in describe():
        assert why_no_rows([], f"FROM {relation.reference}")
        assert why_no_rows(TABLES, f"FROM {relation.reference}") == ""


@mutation(
    "an empty answer does not say why", "genenv_core/storage/sql/sandbox.py",
    '"" if frame.height else why_no_rows(filled, sql)', '""',
)  # fmt: skip
@mutation(
    "a wrong column does not say where it is", "genenv_core/storage/sql/sandbox.py",
    'with_homes(str(said["error"]), sql)', 'str(said["error"])',
)  # fmt: skip
@mutation(
    "an empty table does not say why", "flows/shown/rows.py",
    "{answer.remark and f': {answer.remark}'}", "",
)  # fmt: skip
def test_people_read_it(tmp_path: Path):
    store = small_root(tmp_path / "root")
    root = store.root
    for one in (found := sources(store)):
        del one.files["influence"]
    empty = ask(found, "FROM taught")
    assert "no run here has rows in influence" in encode(empty, "table").decode()
    assert not pools.answer(root, "SELECT 1 FROM taught WHERE epoch = 99").remark
    assert encode(Answer(empty.frame, False), "table").decode().endswith("\n0 rows\n")
    with pytest.raises(QueryError, match=r"prompt is in tasks, near_alpha.*\nline 1"):
        pools.frame(root, "SELECT prompt FROM scores")
