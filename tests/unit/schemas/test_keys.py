"""The keys that the dictionary states.

Invariants: over two runs that share their rows, a key of the dictionary names one row of each
table and view; so a join by the key of either side adds no row; without run_id it would.
"""

from __future__ import annotations

import duckdb
import pytest

from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.sql.sources import open_tables
from schemas.relations import Relation, describe
from tests.examples import some
from tests.mutations import mutation
from tests.unit.builders_root import fill, small_root

RELATIONS = describe()
TABLES = [relation for relation in RELATIONS if relation.kind == "table"]
NARROW = [table for table in TABLES if table.name not in ("runs", "epoch_rows")]
"""Tables whose key few relations have: that of a run and of an epoch is in most."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> duckdb.DuckDBPyConnection:
    """Return the tables of two runs, of which the second reuses all stages of the first."""
    store = small_root(tmp_path_factory.mktemp("keys") / "root", "one")
    fill(store, "two")
    first, second = RunLog(store, "one"), RunLog(store, "two")
    for epoch in range(3):
        second.note_key(epoch, "pool", first.keys(epoch)["pool"])
    return open_tables(store)


def count(con: duckdb.DuckDBPyConnection, sql: str) -> int:
    row = con.execute(f"SELECT count(*) FROM {sql}").fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize("relation", RELATIONS, ids=lambda relation: relation.name)
def test_a_key_names_one_row(shared: duckdb.DuckDBPyConnection, relation: Relation) -> None:
    assert relation.key[0] == "run_id" and set(relation.key) <= {c.name for c in relation.columns}
    rows, key = f"(FROM {relation.reference})", ", ".join(f'"{name}"' for name in relation.key)
    assert count(shared, f"(SELECT DISTINCT {key} FROM {rows})") == count(shared, rows)


@mutation(
    "a key of the dictionary leaves the run out", "schemas/relations.py",
    'key = ("run_id", *(column', "key = (*(), *(column",
)  # fmt: skip
@pytest.mark.parametrize("parent", some(TABLES, NARROW), ids=lambda relation: relation.name)
def test_joined_by_its_key_a_table_adds_no_row(
    shared: duckdb.DuckDBPyConnection, parent: Relation
) -> None:
    joined = 0
    for child in RELATIONS:
        if set(parent.key) <= {column.name for column in child.columns}:
            joined += 1
            rows, key = f"(FROM {child.reference}) AS c", ", ".join(parent.key)
            both = count(shared, f'{rows} JOIN "{parent.name}" AS p USING ({key})')
            assert both <= count(shared, rows), child.name
            assert both > 0 or count(shared, rows) == 0 or child.name != parent.name
    assert joined > 0


def test_without_the_run_a_join_counts_shared_rows_twice(
    shared: duckdb.DuckDBPyConnection,
) -> None:
    scores = count(shared, "scores")
    assert count(shared, "scores JOIN tasks USING (run_id, task_id)") == scores > 0
    assert count(shared, "scores JOIN tasks USING (task_id)") == 2 * scores
