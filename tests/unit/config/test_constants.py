"""Fields that became constants.

Invariants: what an older genenv wrote with the constant is the same run, with the same name and the
same keys; another value is refused in one line that says the constant; what the code reads is it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from genenv_core.config.load import as_recorded, dump, identity, resolve
from genenv_core.config.moved import CONSTANTS, as_now
from genenv_core.errors import ConfigError
from tasks.stage.key import ConfigView, parts_of
from tests.mutations import mutation
from tests.unit.builders_stage import NO_INPUTS
from tests.unit.config.test_stage_config import STAGES

MOVED = "genenv_core/config/moved.py"
SCHEMA = "genenv_core/config/schema.py"
TINY = resolve("tiny")
EACH = pytest.mark.parametrize(
    ("section", "name", "value", "stage"),
    [("bootstrap", "easy_skew", 1.0, "bootstrap"), ("warm_start", "easy_skew", 0.5, "warm_start")],
    ids=CONSTANTS,
)


def recorded(section: str, name: str, value: Any) -> dict[str, Any]:
    """Return what a genenv recorded that still had a field."""
    values = dump(TINY)
    return {**values, section: {**values[section], name: value}}


def test_every_constant_is_here() -> None:
    assert CONSTANTS == {"bootstrap": {"easy_skew": 1.0}, "warm_start": {"easy_skew": 0.5}}


@EACH
def test_the_code_reads_the_constant(section: str, name: str, value: Any, stage: str) -> None:
    own = getattr(TINY, section)
    assert name not in type(own).model_fields
    assert getattr(own, name) == value
    assert getattr(getattr(ConfigView(TINY, STAGES[stage]), section), name) == value


@mutation(
    "a record with a constant is refused", MOVED,
    "if name in own and own[name] == value:", "if name == '':",
)  # fmt: skip
@EACH
def test_a_record_with_the_constant_is_read(
    section: str, name: str, value: Any, stage: str, tmp_path: Path
) -> None:
    old = recorded(section, name, value)
    assert as_recorded(old, "r") == TINY
    assert as_now(old) == as_now(dump(TINY))
    path = tmp_path / "own.yaml"
    path.write_text(f"preset: tiny\n{section}: {{{name}: {value}}}")
    assert resolve(str(path)) == resolve("tiny", overrides=[f"{section}.{name}={value}"]) == TINY


@mutation(
    "a constant is no field, in words that say no more", SCHEMA,
    "check_constants(known)", "known.update()",
)  # fmt: skip
@EACH
def test_another_value_is_refused_with_the_constant(
    section: str, name: str, value: Any, stage: str
) -> None:
    said = f"{section}.{name} is {value} in every run now, not 0.125: remove it"
    with pytest.raises(ConfigError) as refused:
        resolve("tiny", overrides=[f"{section}={{{name}: 0.125}}"])
    assert str(refused.value) == f"tiny: {said}"
    old = recorded(section, name, 0.125)
    with pytest.raises(ConfigError, match=f"run r: {said}"):
        as_recorded(old, "r")
    # Lists of runs show records that this genenv cannot play.
    assert as_now(old)[section][name] == 0.125


@mutation("names of runs lose the constants", MOVED, "    **CONSTANTS,\n", "")
@mutation(
    "the key of a warm start loses its constant", "tasks/warm_start.py",
    '"warm_start.easy_skew",  # a constant', "",
)  # fmt: skip
@EACH
def test_names_and_keys_hold_the_constant(section: str, name: str, value: Any, stage: str) -> None:
    assert identity(TINY)[section][name] == value
    assert section not in identity(TINY, but=[section])
    holding = {
        one.name
        for one in STAGES.values()
        if one.name != "benchmark"
        and parts_of(one, TINY, 1, NO_INPUTS)["config"].get(f"{section}.{name}") == value
    }
    assert holding == {stage}
