"""The section `refill`.

Invariants: it is refused where no update would use the groups, where there is no reserve to take
tasks from, and where a number does nothing, in one line that says what to do; a run without it has
the name that it always had.
"""

from __future__ import annotations

from typing import Any

import pytest

from genenv_core.canonical import digest
from genenv_core.config.load import NOT_IDENTITY, resolve, run_name
from genenv_core.config.moved import WHOLE
from genenv_core.errors import ConfigError
from tests.mutations import mutation

SCHEMA = "genenv_core/config/schema.py"
LOAD = "genenv_core/config/load.py"

THREE = ("generation.candidates=3", "refill.groups=5")
"""The preset tiny attempts 8 tasks, and draws 5 new groups of 8."""


def tiny(*overrides: str, **fields: Any) -> Any:
    return resolve("tiny", overrides=overrides, fields=fields)


@mutation(
    "a refill of an arm that never trains is played", SCHEMA,
    "if not spec.trains_agent:\n            raise ValueError(\n                f\"{asked}",
    "if False:\n            raise ValueError(\n                f\"{asked}",
)  # fmt: skip
@mutation(
    "a set of tasks is said to have a reserve", SCHEMA,
    "if spec.tasks is TaskSet.TEACHER or self.data.set_tasks:", "if False:",
)  # fmt: skip
@mutation(
    "a refill without candidates is played", SCHEMA, "if generation.candidates == 1:", "if False:"
)
@mutation(
    "a bound that binds nothing is taken", SCHEMA,
    "not generation.tasks < refill.max_tasks <= written:", "False:",
)  # fmt: skip
@mutation("more groups than tasks are wanted", SCHEMA, "if refill.groups > most:", "if False:")
@mutation(
    "more groups than an update draws are wanted", SCHEMA,
    "if refill.groups > room + 0.5:", "if False:",
)  # fmt: skip
@mutation(
    "a bound without groups is taken", "genenv_core/config/sections/rollout.py",
    "if self.max_tasks is not None and not self.groups:", "if False:",
)  # fmt: skip
@pytest.mark.parametrize(
    ("overrides", "texts"),
    [
        ((*THREE, "arm=base"), ["refill.groups 5 does nothing for arm base"]),
        (
            (*THREE, "arm=offline", "teacher.file=x"),
            ["refill.groups 5 has no reserve with a teacher's tasks", "remove refill.groups"],
        ),
        (
            (*THREE, "arm=static", "data.set_tasks=16"),
            ["has no reserve with data.set_tasks", "remove refill.groups or data.set_tasks"],
        ),
        (
            ("refill.groups=5", "generation.candidates=1"),
            ["generation.candidates 1", "raise generation.candidates"],
        ),
        (("refill.max_tasks=9",), ["refill.max_tasks 9 does nothing with refill.groups 0"]),
        ((*THREE, "refill.max_tasks=8"), ["refill.max_tasks 8", "above generation.tasks 8"]),
        ((*THREE, "refill.max_tasks=25"), ["refill.max_tasks 25", "at most 24"]),
        (
            (*THREE, "refill.groups=25"),
            ["refill.groups 25 is more than the 24 new tasks", "raise refill.max_tasks"],
        ),
        (
            (*THREE, "refill.groups=6"),
            ["more than an update draws, 4.8 new groups of grpo.max_groups 8 x mixture.new 0.6"],
        ),
    ],
)
def test_a_refill_that_does_nothing_is_refused(
    overrides: tuple[str, ...], texts: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        tiny(*overrides)
    for text in texts:
        assert text in str(caught.value)
    assert "\n" not in str(caught.value).strip()


@pytest.mark.parametrize("arm", ["genenv", "random", "static"])
def test_arms_that_write_their_tasks_may_refill(arm: str) -> None:
    config = tiny(*THREE, "refill.max_tasks=24", f"arm={arm}")
    assert (config.refill.groups, config.refill.max_tasks) == (5, 24)
    assert tiny("tools.execution=simulated", *THREE).refill.groups == 5


@mutation(
    "every run has another name since there are refills", LOAD,
    '"refill": config.refill.groups > 0', '"refill": True',
)  # fmt: skip
@mutation(
    "every run has another name since there are algorithms of one's own", LOAD,
    '"agent_update": config.agent_update.own', '"agent_update": True',
)  # fmt: skip
def test_a_run_without_newer_sections_keeps_its_name() -> None:
    config = tiny()
    newer = {"benchmark", "refill", "agent_update"}
    before = config.model_dump(mode="json", by_alias=True, exclude={*NOT_IDENTITY, *newer})
    before["data"]["offline_file"] = None
    for section in WHOLE.keys() & before.keys():
        before[section] |= WHOLE[section]
    assert run_name(config, "tiny") == f"tiny-genenv-s0-{digest(before)[:6]}"
    names = {run_name(tiny(*THREE, f"refill.groups={groups}"), "tiny") for groups in (3, 4)}
    assert len(names) == 2
