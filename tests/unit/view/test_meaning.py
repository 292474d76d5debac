"""What the columns of an answer say.

Invariants: a description is that of the first relation of the question that has the column, under
its own name or a new one; what the question makes itself has the words of the page or none, and
`run_id` has none; a question of no relation has none.
"""

from __future__ import annotations

from flows.view.meaning import meanings
from schemas.relations import describe
from tests.mutations import mutation

DESCRIBED = {
    (relation.name, column.name): column.description
    for relation in describe()
    for column in relation.columns
}
SQL = "SELECT s.run_id, epoch, p_hat, skill, 1 AS made FROM task_scores AS s JOIN tasks AS t"


@mutation(
    "a column is described by the last relation", "flows/view/meaning.py",
    "for name in relations]", "for name in reversed(relations)]",
)  # fmt: skip
@mutation(
    "the run of a page is described in each table", "flows/view/meaning.py",
    'EVERY = "run_id"', 'EVERY = ""',
)  # fmt: skip
def test_columns_have_the_words_of_the_first_relation_that_has_them() -> None:
    columns = ("run_id", "epoch", "p_hat", "skill", "made", "prompt")
    assert meanings(columns, SQL) == [
        ("epoch", DESCRIBED["task_scores", "epoch"]),
        ("p_hat", DESCRIBED["task_scores", "p_hat"]),
        ("skill", DESCRIBED["task_scores", "skill"]),
        ("prompt", DESCRIBED["tasks", "prompt"]),
    ]
    assert DESCRIBED["tasks", "epoch"] != DESCRIBED["task_scores", "epoch"]
    assert meanings(columns, "SELECT 1 AS epoch") == []


@mutation(
    "a column under another name has no words", "flows/view/meaning.py",
    "renamed.get(column, column)", "column",
)  # fmt: skip
def test_a_column_under_another_name_keeps_its_words() -> None:
    sql = "SELECT epoch, s.p_hat AS rate, round(skill, 2) AS near FROM task_scores AS s"
    assert meanings(("rate", "near"), sql) == [("rate", DESCRIBED["task_scores", "p_hat"])]
    own = {"near": "Rounded.", "rate": ""}
    assert meanings(("near", "rate"), sql, own)[0] == ("near", "Rounded.")
