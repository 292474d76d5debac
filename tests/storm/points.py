"""The place of a kill: the operations of a run that are counted, and the plan of one kill.

A victim counts the operations of one kind and kills at the n-th, before or after it. Those of
`WORKER` happen in the training workers, all others in the process of the command.
"""

from __future__ import annotations

import signal
from typing import Literal

from genenv_core.record import Record

Whom = Literal["tree", "parent", "worker"]

TIME = "at a random time"
STORE = {
    "writing a part": ("replace", "parts/"),
    "adopting a checkpoint's file": ("adopt", "parts/"),
    "writing a shard's record": ("create", "shards/"),
    "writing the manifest": ("create", "stages/"),
    "between manifest and run record": ("swap", "runs/"),
    "noting an attempt": ("create", "runs/"),
    "taking a lease": ("swap", "leases/"),
    "giving a lease back": ("delete", "leases/"),
}
"""Kind -> the method of LocalStore and the start of the path that make an operation one of it."""

LINK = "between temporary and final name"
LAYOUT = "laying out a checkpoint"
APPEND = "during a pool append"
MLFLOW = "during MLflow logging"
MLFLOW_SQL = "inside a change of MLflow's database"
STEP = "inside a training step"
STEP_END = "between two training steps"
SEAL = "while a trainer checkpoint is sealed"
WORKER = (STEP, STEP_END, SEAL)
OPERATIONS = (*STORE, LINK, LAYOUT, APPEND, MLFLOW, MLFLOW_SQL, *WORKER)


class Plan(Record):
    """Plans one kill: `whom`, by which signal, before or `after` operation `number` of `kind`.

    Number 0 kills nothing. `census` is a folder where each operation adds a byte to the file named
    after its kind; '' counts nothing.
    """

    kind: str = ""
    number: int = 0
    after: bool = False
    whom: Whom = "tree"
    signal: int = signal.SIGKILL
    census: str = ""
