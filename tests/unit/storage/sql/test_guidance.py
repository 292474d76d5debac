"""What a question is told that made a mistake, or found no rows.

Invariants: typical mistakes are answered with what to do; an error about a column names the tables
that have it, and how one of them is joined without more rows than before; an empty answer names the
tables behind it that are empty in every run; a question whose own conditions found nothing is told
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from flows.shown.rows import encode
from genenv_core import pools
from genenv_core.errors import QueryError
from genenv_core.pools import Answer
from genenv_core.storage.sql.guidance import why_no_rows, with_homes, with_remedy
from genenv_core.storage.sql.sandbox import ask
from genenv_core.storage.sql.session import SqlSession
from genenv_core.storage.sql.sources import sources
from schemas.registry import TABLES
from schemas.relations import describe
from tests.mutations import mutation
from tests.unit.builders_root import small_root

ADMISSION = "genenv_core/storage/sql/admission.py"
GUIDANCE = "genenv_core/storage/sql/guidance.py"
NOT_FOUND = 'Binder Error: Referenced column "{}" not found in FROM clause!'


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlSession]:
    """One confined process for many questions."""
    with closing(SqlSession(sources(small_root(tmp_path_factory.mktemp("sql") / "root")))) as made:
        yield made


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


@pytest.mark.parametrize("message", [NOT_FOUND.format("xyzzy"), "Parser Error: syntax error"])
def test_what_no_table_is_near_to_is_left_as_it_was(message: str):
    assert with_homes(message, "SELECT xyzzy FROM scores") == message
    assert with_remedy(message) == message


@mutation(
    "a misspelt column of a named table has no near one", GUIDANCE,
    "if not near or _OFFERED in first:", "if True:",
)  # fmt: skip
@mutation(
    "a near column is named twice", GUIDANCE, "if not near or _OFFERED in first:", "if not near:",
)  # fmt: skip
def test_a_misspelt_column_is_answered_with_a_near_one() -> None:
    qualified = 'Binder Error: Values list "s" does not have a column named "rewrad"\nline 1: x'
    assert with_homes(qualified, "SELECT s.rewrad FROM scores s") == (
        'Binder Error: "s" does not have a column named "rewrad", did you mean reward?\nline 1: x'
    )
    joined = 'Binder Error: Column "taskid" does not exist on left side of join!'
    said = with_homes(joined, "SELECT * FROM tasks JOIN scores USING (taskid)")
    assert said == f"{joined.rstrip('!')}, did you mean task_id?"
    offered = f'{NOT_FOUND.format("rewrad")} Candidate bindings: "reward"'
    assert with_homes(offered, "SELECT rewrad FROM scores") == offered


@mutation("a function over the tables is no table", ADMISSION, "if table.lower() in _macros(con):",
          "if False:")  # fmt: skip
@mutation("a file is a misspelt table", ADMISSION, "if _FILE.search(table):", "if False:")
@mutation("PRAGMA is answered in DuckDB's words", ADMISSION, "in _NO_SELECT:", "in ():")
@mutation("a misspelt word has no near one", GUIDANCE, "if odd := _ODD_WORD.search(first):",
          "if odd := None:")  # fmt: skip
@mutation(
    "the word before the one that DuckDB names is not looked at", GUIDANCE,
    "{*line[: len(caret) - 1].upper().split()[-1:], odd[1].upper()}", "{odd[1].upper()}",
)  # fmt: skip
@mutation("an open quote has no remedy", GUIDANCE, "if words in first), ", "if not words), ")
@mutation(
    "a table function that is refused is offered for FROM", GUIDANCE,
    "if used and used[1] not in TABLE_FUNCTIONS | macros:", "if used is True:",
)  # fmt: skip
@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELEC * FROM scores", 'at or near "SELEC", did you mean SELECT?\nline 1: SELEC'),
        ("SELECT * FORM scores", 'at or near "scores", did you mean FROM?\nline 1: SELECT'),
        ("SELECT 1 FROM scores GRUOP BY 1", 'near "BY", did you mean GROUP?\n'),
        ("SELECT 1 FROM scores ORDER epoch", 'near "epoch"\nline 1: '),
        ("FROM runs WHERE run_id = 'x", """ "'x": end the text with ', and write a ' inside"""),
        ('FROM runs "x', """near ""x": end the name with ", or write a text in single quotes"""),
        ("SELECT read_text('x')", "read_text is refused: only duckdb_columns, "),
        ("SELECT range FROM rangee(3)", "rangee is refused (did you mean range?): only "),
        ("FROM what_if", "what_if takes arguments: write FROM what_if()"),
        ("FROM 'x.parquet'", "is no table or view, and a query opens no file of its own: "),
        ("FROM '/etc/passwd'", "is no table or view, and a query opens no file of its own: "),
        ("PRAGMA table_info('runs')", "PRAGMA is refused, the tables are read-only: write one"),
        ("SELECT s.rewrad FROM scores s", 'named "rewrad", did you mean reward?\nline 1: '),
    ],
)
def test_a_mistake_is_answered_with_what_to_do(session: SqlSession, sql: str, said: str) -> None:
    with pytest.raises(QueryError) as refused:
        session.ask(sql)
    assert said in str(refused.value)


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
