"""Tables and their validation.

Invariants: every column is described and typed; valid frames pass unchanged; each rule has a frame
that breaks it, and the message names table, column, rule, value and row; values are never changed
to fit a type; compiled rules judge as pandera does; the committed dictionary is the generated one.
"""

from __future__ import annotations

import math
import re
import time
from pathlib import Path
from typing import Any

import pandera.errors
import pandera.polars as pa
import polars as pl
import pytest

import schemas
from genenv_core.errors import NumericalError, SchemaError
from schemas import registry, relations
from schemas.dictionary import render_markdown
from schemas.registry import TABLES
from schemas.rules import compiled
from schemas.tables.fields import Table, name
from schemas.validate import MAX_MESSAGE, validate
from tests.mutations import mutation
from tests.unit.builders_tables import sample_frame

TRACES = "schemas/tables/traces.py"

ALL = sorted(TABLES)


def put(table: str, column: str, value: Any, row: int = 1) -> pl.DataFrame:
    """Return a sample frame with one value replaced."""
    frame = sample_frame(table)
    values = frame[column].to_list()
    values[row] = value
    return frame.with_columns(pl.Series(column, values, dtype=frame.schema[column]))


@pytest.mark.parametrize("table", ALL)
def test_every_table_is_described(table: str) -> None:
    spec = TABLES[table]
    assert spec.description.startswith("One row ") and spec.description.endswith(".")
    assert spec.version >= 1
    assert spec.id_column in registry.schema(table)
    assert set(spec.key) <= set(registry.schema(table))
    for column in registry.columns(table):
        assert column.description.endswith("."), column
        assert "\n" not in column.description, column


@pytest.mark.parametrize("table", ALL)
def test_valid_and_empty_frames_pass_unchanged(table: str) -> None:
    for frame in (sample_frame(table), registry.empty(table)):
        assert validate(table, frame).equals(frame)
        assert validate(table, frame).schema == frame.schema


@pytest.mark.parametrize("table", ALL)
def test_pandera_accepts_what_validate_accepts(table: str) -> None:
    TABLES[table].model.validate(sample_frame(table), lazy=True)


# table, column, bad value, rule as the message words it, value as the message shows it
BROKEN = [
    ("tasks", "task_id", None, "not null", "None"),
    ("tasks", "task_id", "", "not ''", "''"),
    ("tasks", "epoch", -1, ">= 0", "-1"),
    ("tasks", "source", "moon", "one of base, generated, validation, test, teacher", "'moon'"),
    ("tasks", "rejection", "boring", "one of unparseable", "'boring'"),
    ("tasks", "spec", "[1]", "matches", "'[1]'"),
    ("tasks", "valid", False, "valid exactly when rejection is null", "False, None"),
    ("tasks", "prompt", None, "a valid task has prompt", "None"),
    ("traces", "finish_reason", "tired", "one of stop, length, error", "'tired'"),
    ("traces", "turns", None, "not null", "None"),
    ("trace_tokens", "messages", "{}", "matches", "'{}'"),
    ("trace_tokens", "token_ids", [1], "equally long", "[1]"),
    ("trace_sequences", "sequence", 0, ">= 1", "0"),
    ("trace_sequences", "parent", 1, "a parent comes before its sequence", "1, 1"),
    ("trace_sequences", "parent", None, "a sequence without a parent has branch_turn 0", "None, 1"),
    ("trace_sequences", "branch_turn", 2, "begins after it left its parent", "2, 1, 0, 1"),
    ("generations", "logprobs", [-1.0], "equally long", "[-1.0]"),
    ("scores", "reward", 1.5, "<= 1", "1.5"),
    ("scores", "reward", -0.5, ">= 0", "-0.5"),
    ("observations", "fidelity", 0.25, "fidelity is the content's where", "0.25"),
    ("observations", "same_state", False, "fidelity is the content's where", "False"),
    ("observations", "content_similarity", 1.5, "<= 1", "1.5"),
    ("task_scores", "n", 0, ">= 1", "0"),
    ("task_scores", "successes", 5, "successes is at most n", "5"),
    ("task_scores", "p_hat", 0.75, "p_hat is successes / n", "0.75"),
    ("selections", "reason", "ugly", "one of kept, below_band", "'ugly'"),
    ("selections", "kept", True, "kept exactly when reason is kept", "True"),
    ("d_train", "source", "history", "one of new, base", "'history'"),
    ("d_env", "weight_raw", -1.0, ">= 0", "-1.0"),
    ("update_samples", "weight", 1.0, "advantage is set exactly for the agent", "1.0"),
    ("update_samples", "leash", True, "leash is set exactly for env", "True"),
    ("update_samples", "epoch", 0, ">= 1", "0"),
    ("evaluations", "mode", "lucky", "one of sampled, greedy", "'lucky'"),
    ("checkpoints", "gate", "ajar", "one of open, non_finite", "'ajar'"),
    ("checkpoints", "published", False, "published exactly when gate is open", "False"),
    ("epochs", "tasks_valid", 9, "tasks_valid is at most tasks_generated", "9"),
    ("epochs", "agent_action", "slept", "one of updated, skipped", "'slept'"),
    ("stage_runs", "attempt", 0, ">= 1", "0"),
    ("stage_runs", "state", "lost", "one of running, computed", "'lost'"),
]


@pytest.mark.parametrize(("table", "column", "value", "rule", "shown"), BROKEN)
def test_broken_rule_is_named_with_value_and_row(
    table: str, column: str, value: Any, rule: str, shown: str
) -> None:
    frame = put(table, column, value)
    with pytest.raises(SchemaError) as caught:
        validate(table, frame)
    message = str(caught.value)
    assert message.startswith(f"table {table}: ")
    assert rule in message
    assert shown in message
    for part in TABLES[table].key:
        if part != column:
            assert f"{part}={frame[part][1]!r}" in message
    with pytest.raises(pandera.errors.SchemaErrors):
        TABLES[table].model.validate(frame, lazy=True)


def forest(*rows: tuple[int, int, int | None, int]) -> pl.DataFrame:
    """Return sequences of one trace from (sequence, turn, parent, branch_turn)."""
    one = sample_frame("trace_sequences").row(0, named=True)
    names = ("sequence", "turn", "parent", "branch_turn")
    return pl.DataFrame(
        [one | dict(zip(names, row, strict=True)) | {"message": 2 * row[1]} for row in rows],
        schema=registry.schema("trace_sequences"),
    )


@mutation(
    "a sequence may have the turns of the one before it", TRACES,
    'pl.col("turn") > _BEFORE', 'pl.col("turn") >= 0',
)  # fmt: skip
@mutation(
    "a sequence may leave its parent in the turns of another one", TRACES,
    'pl.col("branch_turn") + pl.col("sequence") - 1 - pl.col("parent") <= pl.col("turn")',
    'pl.col("branch_turn") <= pl.col("turn")',
)  # fmt: skip
@mutation(
    "a sequence may be made from a later one", TRACES,
    'pl.col("parent") < pl.col("sequence")', 'pl.col("parent") >= 0',
    by="unit/schemas/test_schemas.py::test_broken_rule_is_named_with_value_and_row",
)  # fmt: skip
def test_the_sequences_of_an_attempt_are_a_forest() -> None:
    # Two leave the first one at one turn, one another in its middle, one is made from none.
    several = ((1, 3, 0, 1), (2, 4, 0, 1), (3, 6, 2, 5), (4, 8, None, 0))
    validate("trace_sequences", forest(*several))
    validate("trace_sequences", forest(*several).reverse())
    with pytest.raises(SchemaError, match="after it left its parent and after all sequences since"):
        validate("trace_sequences", forest(several[0], (2, 4, 0, 4)))  # turn 3 is of sequence 1
    for turn in (3, 2):
        with pytest.raises(SchemaError, match="a sequence begins after the one before it"):
            validate("trace_sequences", forest(several[0], (2, turn, 0, 1)))


@pytest.mark.parametrize("table", ALL)
def test_repeated_key_is_refused(table: str) -> None:
    frame = sample_frame(table)
    doubled = pl.concat([frame, frame.head(1)])
    with pytest.raises(SchemaError, match="rule 'unique' broken by 1 of") as caught:
        validate(table, doubled)
    assert repr(frame[TABLES[table].key[-1]][0]) in str(caught.value)
    with pytest.raises(pandera.errors.SchemaErrors):
        TABLES[table].model.validate(doubled, lazy=True)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("table", "column"),
    [
        (table, column)
        for table in ALL
        for column, dtype in registry.schema(table).items()
        if dtype.is_float()
    ],
)
def test_nan_and_infinity_are_numerical_errors(table: str, column: str, value: float) -> None:
    with pytest.raises(NumericalError, match=f"table {table}: column {column}: rule 'finite'"):
        validate(table, put(table, column, value))


@pytest.mark.parametrize(
    ("table", "column", "value", "rule"),
    [
        ("trace_tokens", "prompt_ids", [1, None], "members not null"),
        ("trace_tokens", "prompt_ids", [1, -2], "members >= 0"),
        ("trace_tokens", "logprobs", [-1.0, None, -1.0, 0.0], "members not null"),
        ("trace_tokens", "logprobs", [-1.0, 0.5, -1.0, 0.0], "members <= 0.001"),
        ("trace_tokens", "loss_mask", [1, 2, 1, 0], "members <= 1"),
        ("trace_tokens", "loss_mask", None, "not null"),
        ("generations", "token_ids", [4, None], "members not null"),
    ],
)
def test_members_of_lists_are_checked(table: str, column: str, value: Any, rule: str) -> None:
    with pytest.raises(SchemaError, match=re.escape(f"column {column}: rule '{rule}'")) as caught:
        validate(table, put(table, column, value))
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_nan_in_a_list_is_a_numerical_error(value: float) -> None:
    with pytest.raises(NumericalError, match="column logprobs: rule 'members finite'"):
        validate("generations", put("generations", "logprobs", [-0.5, value]))


def test_empty_lists_are_no_nulls() -> None:
    frame = put("generations", "token_ids", [])
    frame = frame.with_columns(pl.Series("logprobs", [[-0.5] * k for k in (2, 0, *[2] * 6)]))
    frame = frame.with_columns(pl.col("logprobs").cast(pl.List(pl.Float32)))
    assert validate("generations", frame).height == 8


def test_lazy_frame_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"table scores: got LazyFrame.*collect\(\)"):
        validate("scores", sample_frame("scores").lazy())  # type: ignore[arg-type]


def test_unknown_table_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SchemaError, match="no table 'scroes'; tables: tasks, certificates"):
        validate("scroes", sample_frame("scores"))


def test_missing_and_unknown_columns_are_both_named() -> None:
    frame = sample_frame("scores").drop("reward").with_columns(prize=1)
    with pytest.raises(SchemaError, match="missing columns: reward; unknown columns: prize"):
        validate("scores", frame)


def test_column_order_is_normalised() -> None:
    frame = sample_frame("scores")
    assert validate("scores", frame.select(reversed(frame.columns))).equals(frame)


def test_types_that_keep_every_value_are_accepted() -> None:
    frame = sample_frame("trace_tokens")
    wide = frame.with_columns(
        pl.col("prompt_ids", "token_ids", "loss_mask").cast(pl.List(pl.Int64)),
        pl.col("logprobs").cast(pl.List(pl.Float64)),
    )
    assert validate("trace_tokens", wide).equals(frame)
    scores = sample_frame("scores")
    cast = scores.with_columns(
        pl.col("reward").cast(pl.Int64),
        pl.col("epoch").cast(pl.Int16),
        pl.col("failure").cast(pl.Categorical),
    )
    assert validate("scores", cast).equals(scores)
    nothing = sample_frame("tasks").filter(pl.col("source") == "base")
    nulled = nothing.with_columns(pl.lit(None).alias("generation_text"))
    assert validate("tasks", nulled).equals(nothing)


@pytest.mark.parametrize(
    ("table", "column", "values", "shown"),
    [
        ("scores", "epoch", pl.Float64, "type Float64 given, Int64 wanted"),
        ("scores", "success", pl.Int8, "type Int8 given, Boolean wanted"),
        ("scores", "epoch", pl.String, "type String given, Int64 wanted"),
        ("scores", "trace_id", pl.Binary, "type Binary given, String wanted"),
        ("stage_runs", "started_at", pl.Datetime("us"), "Datetime"),
    ],
)
def test_other_types_are_refused(table: str, column: str, values: pl.DataType, shown: str) -> None:
    frame = sample_frame(table)
    changed = (
        frame[column].dt.replace_time_zone(None)
        if column == "started_at"
        else frame[column].cast(values)
    )
    with pytest.raises(SchemaError, match=re.escape(f"column {column}: type ")) as caught:
        validate(table, frame.with_columns(changed))
    assert shown in str(caught.value)


def test_rounding_and_overflow_are_refused_with_the_values() -> None:
    frame = sample_frame("generations")
    fine = pl.Series("logprobs", [[-0.1, -0.5]] * frame.height, dtype=pl.List(pl.Float64))
    with pytest.raises(SchemaError, match=r"logprobs.*8 of 8 values would change: \[-0.1, -0.5\]"):
        validate("generations", frame.with_columns(fine))
    huge = pl.Series("token_ids", [[1, 2**40]] * frame.height, dtype=pl.List(pl.Int64))
    with pytest.raises(SchemaError, match=r"token_ids.*1099511627776"):
        validate("generations", frame.with_columns(huge))
    unsigned = pl.Series("epoch", [2**63 + 1] * frame.height, dtype=pl.UInt64)
    with pytest.raises(SchemaError, match=r"epoch.*9223372036854775809"):
        validate("generations", frame.with_columns(unsigned))


def test_message_stays_short_and_counts_the_rest() -> None:
    frame = sample_frame("scores", rows=600).with_columns(
        reward=pl.lit(2.0), failure=pl.lit("x" * 5000), task_id=pl.lit(""), epoch=pl.lit(-1)
    )
    with pytest.raises(SchemaError) as caught:
        validate("scores", frame)
    message = str(caught.value)
    assert len(message) < MAX_MESSAGE
    assert "broken by 600 of 600 rows" in message
    wide = frame.with_columns(pl.format("{}-{}", "trace_id", pl.lit("y" * 9999)).alias("trace_id"))
    with pytest.raises(SchemaError) as caught:
        validate("scores", wide)
    assert len(str(caught.value)) < MAX_MESSAGE


def test_numerical_cause_comes_before_the_rules_it_breaks_too() -> None:
    frame = put("scores", "reward", math.nan).with_columns(task_id=pl.lit(""))
    with pytest.raises(NumericalError, match="column reward"):
        validate("scores", frame)


def test_unknown_pandera_check_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd(Table, key=("odd_id",)):
        """One row. Key: odd_id."""

        odd_id: str = name("Id.")
        other: str = pa.Field(str_startswith="x", description="Other.")

    monkeypatch.setitem(TABLES, "odd", registry.TableSpec("odd", Odd, "odd_id", "scalar"))
    with pytest.raises(SchemaError, match="column other: check 'str_startswith'"):
        compiled("odd")


@pytest.mark.parametrize("table", ALL)
def test_validation_of_600_rows_is_fast(table: str) -> None:
    frame = sample_frame(table, rows=600)
    validate(table, frame)
    seconds: list[float] = []
    for _ in range(5):
        begun = time.process_time()
        validate(table, frame)
        seconds.append(time.process_time() - begun)
    assert min(seconds) < 0.03


def test_only_history_holds_clocks_hosts_and_runs() -> None:
    for table, spec in TABLES.items():
        columns = registry.schema(table)
        telltale = {"run_id", "arm", "host", "pid", "seconds"} & set(columns)
        timed = any(isinstance(dtype, pl.Datetime) for dtype in columns.values())
        assert bool(telltale or timed) == (table in ("stage_runs", "runs")), spec.name


def test_dictionary_is_the_committed_one() -> None:
    committed = Path(schemas.__path__[0]) / "DICTIONARY.md"
    assert committed.read_text(encoding="utf-8") == render_markdown(), (
        "run: python -m schemas.dictionary > schemas/DICTIONARY.md"
    )


def test_views_on_disk_are_the_listed_ones() -> None:
    folder = Path(schemas.__path__[0]) / "views"
    assert {path.stem for path in folder.glob("*.sql")} == set(relations.VIEW_NAMES)


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("SELECT 1", "must begin with its question"),
        ("-- A statement.\n-- Reads: tasks\n-- Key: a\nSELECT 1", "must begin with its question"),
        ("-- Why?\nSELECT 1", "must begin with its question"),
        ("-- Why?\n-- Reads: tasks\n-- a: A.\nSELECT 1", "and the lines"),
        (
            "-- Why?\n-- Reads: tasks\n-- Key: a\n-- no colon\nSELECT 1",
            "is neither 'column: description'",
        ),
        (
            "-- Why?\n-- Reads: tasks\n-- Key: a\n-- Parameter a: b.\nSELECT 1",
            "nor 'Parameter name TYPE",
        ),
        (
            "-- Why?\n-- Reads: tasks\n-- Key: a\n-- a DOUBLE: b.\nSELECT 1",
            "nor 'Parameter name TYPE",
        ),
    ],
)
def test_view_without_a_full_header_is_refused(source: str, complaint: str) -> None:
    with pytest.raises(SchemaError, match=complaint):
        relations.parse_view("odd", source)


def test_view_with_parameters_is_a_macro_and_notes_are_no_columns() -> None:
    header = [
        "Why?",
        "Reads: tasks",
        "Key: a, b",
        "Parameter low DOUBLE: Least.",
        "a: A.",
        "",
        "Notes.",
    ]
    source = "\n".join([*(f"-- {line}".rstrip() for line in header), "SELECT 1"])
    view = relations.parse_view("odd", source)
    assert view.described == {"a": "A."} and view.key == ("a", "b")
    assert [(p.name, p.sql_type, p.description) for p in view.parameters] == [
        ("low", "DOUBLE", "Least.")
    ]
    assert view.create.startswith('CREATE MACRO "odd"("low" DOUBLE := NULL) AS TABLE --')
    plain = relations.parse_view("odd", "-- Why?\n-- Reads: tasks\n-- Key: a\nSELECT 1")
    assert plain.create.startswith('CREATE VIEW "odd" AS --')


def test_macro_is_described_with_its_parameters() -> None:
    found = {relation.name: relation for relation in relations.describe()}
    macro = found["what_if"]
    assert (macro.kind, macro.reference) == ("macro", '"what_if"()')
    assert macro.signature == "what_if(alpha, beta, k_min, lambda_)"
    assert all(parameter.description for parameter in macro.parameters)
    assert found["epochs"].signature == "epochs"
    assert "`FROM what_if(alpha, beta, k_min, lambda_)`" in render_markdown()
