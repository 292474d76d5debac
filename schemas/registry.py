"""The one list of all tables, with the facts that their readers and writers need."""

# pandera leaves its dicts untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import polars as pl
from pandera.api.polars.components import Column as PanderaColumn

from genenv_core.errors import SchemaError
from schemas.tables.benchmarks import (
    BenchmarkItems,
    BenchmarkMetrics,
    CertifiedSets,
    SetFlaws,
)
from schemas.tables.fields import Rules, Table
from schemas.tables.pools import DEnv, DTrain, Influence, UpdateSamples
from schemas.tables.progress import (
    Checkpoints,
    Epochs,
    Evaluations,
    EvaluationTexts,
    Runs,
    StageRuns,
)
from schemas.tables.scores import Observations, Scores, Selections, TaskScores
from schemas.tables.tasks import Certificates, Contexts, Generations, Tasks
from schemas.tables.traces import Traces, TraceSequences, TraceTokens, TrainerLogprobs

Kind = Literal["scalar", "payload", "record"]


@dataclass(frozen=True, slots=True)
class TableSpec:
    """One table.

    Manifests keep the least and the greatest value of `id_column`; `key` names the columns that
    identify a row. Readers scan tables of the kind `scalar` whole and fetch rows of `payload`
    tables by id; `record` tables are a few rows of bookkeeping.
    """

    name: str
    model: type[Table]
    id_column: str
    kind: Kind

    @property
    def version(self) -> int:
        """Return the schema version, kept in every file of the table."""
        return self._about["version"]

    @property
    def rules(self) -> Rules:
        """Return the rules between the columns of a row: words -> an expression that must hold."""
        return self._about["rules"]

    def added_since(self, version: int) -> tuple[str, ...] | None:
        """Return the columns that a file of an older version lacks; None if it cannot be read."""
        added: dict[int, tuple[str, ...]] = self._about["added"]
        later = range(version + 1, self.version + 1)
        if any(number not in added and number not in self._about["renamed"] for number in later):
            return None
        return tuple(name for number in later for name in added.get(number, ()))

    @property
    def added(self) -> tuple[str, ...]:
        """Return the columns that the oldest readable files lack."""
        since = (self.added_since(version) for version in range(self.version))
        return next((added for added in since if added), ())

    @property
    def assumed(self) -> dict[str, str]:
        """Return added column -> SQL over a row, for columns that are not null in older files.

        The SQL reads such a row with all added columns null, and gives a row of today its own
        value.
        """
        return self._about["assumed"]

    def earlier_names(self, version: int = 0) -> dict[str, str]:
        """Return new name -> old name of the columns renamed after this version."""
        renamed: dict[int, dict[str, str]] = self._about["renamed"]
        later = [names for number, names in renamed.items() if number > version]
        return {new: old for names in later for old, new in names.items()}

    @property
    def _about(self) -> dict[str, Any]:
        return self.model.Config.metadata or {}

    @property
    def key(self) -> tuple[str, ...]:
        """Return the columns that together identify a row."""
        return tuple(self.model.Config.unique or ())

    @property
    def description(self) -> str:
        """Return what a row is, in one line."""
        return (self.model.__doc__ or "").strip().splitlines()[0]


@dataclass(frozen=True, slots=True)
class Column:
    """One column as SQL shows it; `allowed` says in words which values pass ('' = any)."""

    name: str
    sql_type: str
    nullable: bool
    description: str
    allowed: str = ""


TABLES: dict[str, TableSpec] = {
    spec.name: spec
    for spec in (
        TableSpec("tasks", Tasks, "task_id", "scalar"),
        TableSpec("certificates", Certificates, "task_id", "scalar"),
        TableSpec("contexts", Contexts, "context_id", "payload"),
        TableSpec("generations", Generations, "generation_id", "payload"),
        TableSpec("traces", Traces, "trace_id", "scalar"),
        TableSpec("trace_tokens", TraceTokens, "trace_id", "payload"),
        TableSpec("trace_sequences", TraceSequences, "trace_id", "payload"),
        TableSpec("trainer_logprobs", TrainerLogprobs, "trace_id", "payload"),
        TableSpec("scores", Scores, "trace_id", "scalar"),
        TableSpec("observations", Observations, "trace_id", "scalar"),
        TableSpec("task_scores", TaskScores, "group_id", "scalar"),
        TableSpec("selections", Selections, "task_id", "scalar"),
        TableSpec("d_train", DTrain, "trace_id", "scalar"),
        TableSpec("d_env", DEnv, "generation_id", "scalar"),
        TableSpec("update_samples", UpdateSamples, "row_id", "scalar"),
        TableSpec("influence", Influence, "group_id", "scalar"),
        TableSpec("evaluations", Evaluations, "task_id", "scalar"),
        TableSpec("evaluation_texts", EvaluationTexts, "task_id", "payload"),
        TableSpec("benchmark_items", BenchmarkItems, "trace_id", "scalar"),
        TableSpec("benchmark_metrics", BenchmarkMetrics, "metric", "record"),
        TableSpec("certified_sets", CertifiedSets, "name", "record"),
        TableSpec("set_flaws", SetFlaws, "task_id", "scalar"),
        TableSpec("checkpoints", Checkpoints, "epoch", "record"),
        TableSpec("epochs", Epochs, "epoch", "record"),
        TableSpec("stage_runs", StageRuns, "epoch", "record"),
        TableSpec("runs", Runs, "run_id", "record"),
    )
}

_SQL_TYPES: dict[pl.DataType, str] = {
    pl.String(): "VARCHAR",
    pl.Int64(): "BIGINT",
    pl.Int32(): "INTEGER",
    pl.Int8(): "TINYINT",
    pl.Float64(): "DOUBLE",
    pl.Float32(): "FLOAT",
    pl.Boolean(): "BOOLEAN",
    pl.Datetime("us", "UTC"): "TIMESTAMP WITH TIME ZONE",
}


def spec(table: str) -> TableSpec:
    """Return the spec of a table; raises SchemaError for an unknown name."""
    if table not in TABLES:
        raise SchemaError(f"no table {table!r}; tables: {', '.join(TABLES)}")
    return TABLES[table]


@cache
def model_columns(table: str) -> Mapping[str, PanderaColumn]:
    """Return pandera's columns of a table, in order; for `schemas` itself."""
    return spec(table).model.to_schema().columns


@cache
def schema(table: str) -> pl.Schema:
    """Return names and polars types of a table's columns, in order."""
    return pl.Schema({name: dtype_of(column) for name, column in model_columns(table).items()})


def dtype_of(column: PanderaColumn) -> pl.DataType:
    """Return the polars type of one of pandera's columns, as an instance."""
    engine_type: Any = column.dtype
    kind: Any = engine_type.type
    return kind() if isinstance(kind, type) else kind


def empty(table: str) -> pl.DataFrame:
    """Return a frame of the table without rows."""
    return pl.DataFrame(schema=schema(table))


def columns(table: str) -> list[Column]:
    """Return the columns of a table as SQL shows them, without run_id and arm."""
    return [
        Column(
            name=name,
            sql_type=sql_type(dtype_of(column)),
            nullable=bool(column.nullable),
            description=str(column.description),
            allowed=_allowed(column),
        )
        for name, column in model_columns(table).items()
    ]


def sql_type(dtype: pl.DataType) -> str:
    """Return DuckDB's name of a polars type that tables use."""
    if isinstance(dtype, pl.List):
        inner = dtype.inner
        return f"{sql_type(inner if isinstance(inner, pl.DataType) else inner())}[]"
    return _SQL_TYPES[dtype]


def elements_of(column: PanderaColumn) -> tuple[float | None, float | None]:
    """Return the least and greatest admissible member of a list column."""
    return metadata_of(column).get("elements", (None, None))


def metadata_of(column: PanderaColumn) -> dict[str, Any]:
    """Return the metadata that `schemas.tables.fields` put on a column."""
    return column.metadata or {}


def _allowed(column: PanderaColumn) -> str:
    found: dict[str, Any] = {}
    for check in column.checks:
        found |= check.statistics or {}
    if "allowed_values" in found:
        return ", ".join(str(value) for value in found["allowed_values"])
    low, high = elements_of(column)
    low, high = found.get("min_value", low), found.get("max_value", high)
    if low is not None and high is not None:
        return f"{low:g} to {high:g}"
    if low is not None:
        return f">= {low:g}"
    return "" if high is None else f"<= {high:g}"
