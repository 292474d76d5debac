"""The stage task: one cached unit of an epoch, as Prefect runs it.

Every stage does the same around its computation: key -> manifest there? -> reuse, or compute, write
parts, write the manifest last. The truth about a stage is its manifest.

`context` defines a stage and what its computation may use, `inputs` what it takes. `key` makes its
key. `execution` reuses a stored output or computes and commits a new one, and writes that into the
run's history. `planning` says what a run would do. `task` binds them together as a Prefect task.
This package exports what a stage's own module needs of the context. It does not export the task,
which uses `tasks.placement`, which uses modules of this package.
"""

from tasks.stage.context import COMPUTE_FIELDS, FurtherWork, Stage, StageContext, log

__all__ = ["COMPUTE_FIELDS", "FurtherWork", "Stage", "StageContext", "log"]
