"""Opening a run that exists.

Invariants: a run that goes on with other settings says which; more epochs, other limits and the new
settings of a later version are not among them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from genenv_core.config.load import resolve
from genenv_core.config.sections.limits import LimitsConfig
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.store.local import LocalStore
from tasks.upkeep.opening import open_run
from tests.mutations import mutation


@mutation(
    "a run takes other settings without a word", "tasks/upkeep/opening.py",
    "    if others := [text", "    if others := [] and [text",
)  # fmt: skip
@mutation(
    "a later version's new setting is one that changed", "genenv_core/config/branching.py",
    "known.get(name, value) != value", "known.get(name) != value",
)  # fmt: skip
@mutation(
    "a run that goes further has other settings", "tasks/upkeep/opening.py",
    'GOES_ON = ("epochs ", "limits.")', 'GOES_ON = ("limits.",)',
)  # fmt: skip
def test_a_run_that_goes_on_with_other_settings_says_which(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = resolve("tiny", fields={"root": str(tmp_path), "run_id": "mine"})
    open_run(first, {})
    open_run(first.model_copy(update={"epochs": 7, "limits": LimitsConfig(tokens=5000)}), {})
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    log = RunLog(LocalStore(tmp_path), "mine")
    of_older = {name: value for name, value in log.info().config.items() if name != "arm"}
    log.open(of_older, datetime.now(UTC))
    open_run(first.model_copy(update={"seed": 5}), {})
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(said) == 1
    assert "run=mine had other settings so far: seed 0 -> 5: stages that they change" in said[0]
