"""Tables of what happened and when: the only ones that differ between two equal runs."""

from __future__ import annotations

from schemas.enums import StageState
from schemas.tables import fields
from schemas.tables.fields import Table, TableConfig, about, key


class StageRuns(Table):
    """One row an attempt at a stage. Key: run_id, epoch, stage, attempt."""

    run_id: str = fields.ident("Run that made the attempt.")
    epoch: int = fields.count("Epoch of the stage; 0 for bootstrap.")
    stage: str = fields.name("Name of the stage.")
    attempt: int = fields.count("Try of the stage in this run, from 1.", low=1)
    stage_key: str = fields.ident("Content address of the stage's inputs.")
    state: str = fields.label("How the attempt ended.", StageState)
    host: str = fields.name("Machine that made the attempt.")
    pid: int = fields.count("Process that made the attempt.")
    started_at: fields.UtcTime = fields.moment("When the attempt began.")
    seconds: float = fields.number(
        "Wall time of the attempt; null while it runs or when it was killed.",
        low=0.0,
        nullable=True,
    )
    compute_seconds: float = fields.number(
        "Part of `seconds` spent in the stage's own computation.", low=0.0, nullable=True
    )
    rows: int = fields.count("Rows written; null when nothing was.", nullable=True)
    bytes: int = fields.count("Bytes written; null when nothing was.", nullable=True)
    error: str = fields.text("What failed; '' when nothing did.")

    class Config(TableConfig):
        """Identity of a row."""

        unique = key("run_id", "epoch", "stage", "attempt")
        metadata = about()


class Runs(Table):
    """One row a run: what was asked for. Key: run_id."""

    run_id: str = fields.ident("Name of the run.")
    arm: str = fields.name("Method: genenv, random, static, offline or base.")
    domain: str = fields.name("Domain that the tasks come from.")
    seed: int = fields.count("Seed of everything random.")
    epochs_planned: int = fields.count("Epochs that the configuration asks for.")
    started_at: fields.UtcTime = fields.moment("When the run was first started.")
    config: str = fields.json_object("The resolved configuration, JSON.")

    class Config(TableConfig):
        """Identity of a row."""

        unique = key("run_id")
        metadata = about()
