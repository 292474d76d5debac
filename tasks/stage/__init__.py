"""The stage task: one cached unit of an epoch, as Prefect runs it.

Every stage does the same around its computation: key -> manifest there? -> reuse, or compute, write
parts, write the manifest last. The truth about a stage is its manifest.

`context` says what a stage is and what its computation may use, `inputs` what it takes; `key` makes
its key; `execution` reuses it or has it computed and committed, and keeps the history of that in
the run; `planning` says what would happen instead; `task` binds them together as a Prefect task.
What a stage's own module needs of the context is here. The task is not: it uses `tasks.placement`,
which uses modules of this package.
"""

from tasks.stage.context import COMPUTE_FIELDS, FurtherWork, Stage, StageContext, log

__all__ = ["COMPUTE_FIELDS", "FurtherWork", "Stage", "StageContext", "log"]
