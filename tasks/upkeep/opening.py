"""Opening a run in its store."""

from __future__ import annotations

from datetime import UTC, datetime

from genenv_core.config.load import dump, run_name
from genenv_core.config.schema import RunConfig
from genenv_core.storage.records.runs import RunLog
from tasks.stage.execution import refuse_outside_tests
from tasks.stage.progress import Event, emit
from tasks.stage.stores import artifacts_of


def open_run(config: RunConfig) -> None:
    """Record the run's resolved configuration; a run that exists already continues."""
    name = run_name(config, "run")
    refuse_outside_tests(config.execution.test_fault)
    RunLog(artifacts_of(config.root).store, name).open(dump(config), datetime.now(UTC))
    emit(Event("run", facts={"run_id": name, "epochs": config.epochs, "arm": config.arm.value}))
