"""A stage: one cached unit of an epoch.

Every stage does the same around its computation: key -> manifest there? -> reuse, or compute, write
parts, write the manifest last. The truth about a stage is its manifest.

`context` defines a stage and what its computation may use, `inputs` what it takes. `key` makes its
key. `execution` reuses a stored output or computes and commits a new one, and writes that into the
run's history. `planning` says what a run would do. `telemetry` makes spans of all this.
This package exports what a stage's own module needs of the context. `tasks.placement` makes the
Prefect task of a stage, and imports this package, which imports nothing of it.
"""

from tasks.stage.context import COMPUTE_FIELDS, FurtherWork, Stage, StageContext, log

__all__ = ["COMPUTE_FIELDS", "FurtherWork", "Stage", "StageContext", "log"]
