"""Opening a run that exists.

Invariants: a run that goes on with other settings says which; more epochs, other limits and the new
settings of a later version are not among them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from genenv_core.config.branching import other_settings
from genenv_core.config.load import dump, resolve
from genenv_core.config.moved import ONE_CLASS
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
    "changed(now, as_now(before))", "as_now(before)",
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


@mutation(
    "a run's record of before a field moved has other settings", "genenv_core/config/branching.py",
    "changed(now, as_now(before))", "changed(now, before)",
)  # fmt: skip
def test_settings_below_a_section_differ_too() -> None:
    def said(there: list[str], here: list[str], **record: object) -> list[str]:
        before, now = (dump(resolve("tiny", overrides=given)) for given in (there, here))
        return other_settings({**before, **record}, now)

    one, two = (f"domain.options={{a: 1{more}}}" for more in ("", ", b: [2]"))
    file, model = (["arm=offline", f"teacher.{given}"] for given in ("file=f", "model=./m"))
    assert said([one], ["domain.options={}"]) == ["domain.options.a 1 -> not set"]
    assert said(["domain.options={}"], [one]) == ["domain.options.a not set -> 1"]
    assert said([one], [two]) == ["domain.options.b not set -> [2]"]
    assert said(model, file)[0] == "teacher.model ./m -> not set"
    assert said(file, model) == ["teacher.file f -> not set"]
    # A record of before lacks a section, has one that is gone, or has fields of all teachers.
    whole = dump(resolve("tiny"))
    assert other_settings({n: one for n, one in whole.items() if n != "refill"}, whole) == []
    assert said([], [], gone={"a": 1}) == ["gone {'a': 1} -> not set"]
    assert said([], [], teacher=ONE_CLASS, data={**whole["data"], "offline_file": None}) == []
    assert said([], [], teacher={"file": 3}, data={"offline_file": "f"}) == [
        "teacher.file 3 -> not set"
    ]
    assert other_settings({}, whole) == []
