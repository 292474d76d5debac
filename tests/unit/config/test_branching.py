"""Where a run branches off.

Invariants: a text that names no run and epoch is refused with what is wrong; settings that decided
what is taken over may not differ, and the error names field, values and remedy; those of later
epochs may; a branch has a name of its own, the same for the same settings and origin.
"""

from __future__ import annotations

from typing import Any

import pytest

from genenv_core.config.branching import (
    ABSENT,
    STARTED_WITH,
    BranchPoint,
    branch_name,
    check_branch,
    differing,
    read_point,
)
from genenv_core.config.load import resolve
from genenv_core.config.schema import RunConfig
from genenv_core.config.until import Until
from genenv_core.errors import ConfigError
from tasks.bootstrap import STAGE
from tasks.stage import COMPUTE_FIELDS
from tests.mutations import mutation

BRANCHING = "genenv_core/config/branching.py"

POINT = BranchPoint(run_id="a", epoch=1)
START = BranchPoint(run_id="a", epoch=0)


def tiny(*overrides: str) -> RunConfig:
    return resolve("tiny", overrides=overrides)


def test_a_point_is_a_run_and_an_epoch() -> None:
    assert read_point(" a-run.1@12 ") == BranchPoint(run_id="a-run.1", epoch=12)
    assert str(read_point("a@0")) == "a@0"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "expected RUN@EPOCH"),
        ("a", "expected RUN@EPOCH"),
        ("@2", "expected RUN@EPOCH"),
        ("../a@2", "expected RUN@EPOCH"),
        ("a@b@2", "expected RUN@EPOCH"),
        ("a@", "'' is no number of an epoch, as in a@2"),
        ("a@-1", "'-1' is no number"),
        ("a@two", "'two' is no number"),
        ("a@1234567", "is no number"),
    ],
)
def test_a_bad_point_is_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_point(text)


@mutation(
    "a branch may begin with other models or data than it takes over", BRANCHING,
    '_same(given, STARTED_WITH, before, now, "what a run starts with is taken over", remedy)',
    "pass",
)  # fmt: skip
@mutation(
    "a branch may change the set of tasks that it takes over", BRANCHING,
    "if all(sets):", "if False:",
)  # fmt: skip
@pytest.mark.parametrize(
    ("there", "here", "words"),
    [
        ([], ["domain.name=trails"], "domain.name is desk there and trails here"),
        ([], ["domain.options.max_calls=4"], "domain.options.max_calls is 3 there and 4 here"),
        ([], ["domain.options={}"], "domain.options.max_calls is 3 there and not set here"),
        (
            ["domain.options={}"],
            ["domain.options={a: [1]}"],
            "options.a is not set there and .1. here",
        ),
        ([], ["models.agent=./other"], "models.agent is bootstrap there and ./other here"),
        ([], ["bootstrap.agent.layers=2"], "bootstrap.agent.layers is 1 there and 2 here"),
        ([], ["data.test_tasks=25"], "data.test_tasks is 24 there and 25 here"),
        ([], ["data.base_file=x.csv"], "data.base_file is not set there and x.csv here"),
        ([], ["training.lora.rank=4"], "training.lora.rank is 0 there and 4 here"),
        ([], ["epochs=1"], "nothing follows epoch 1: raise epochs to 2 or more"),
        ([], ["arm=static"], "arm is genenv in run a and static here.*branch off from a@0"),
        (["arm=static"], ["arm=static", "generation.tasks=7"], "generation.tasks is 8 there"),
    ],
)
def test_what_decided_the_epochs_that_are_taken_over_may_not_differ(
    there: list[str], here: list[str], words: str
) -> None:
    with pytest.raises(ConfigError, match=rf"--from a@1: .*{words}"):
        check_branch(POINT, tiny(*there), tiny(*here))


@pytest.mark.parametrize(
    ("there", "here"),
    [
        ([], ["seed=5", "curriculum.alpha=0.4", "grpo.learning_rate=0.001", "epochs=9"]),
        ([], ["arm=random", "generation.tasks=7", "compute.threads=2", "evaluation.samples=2"]),
        (["arm=static"], ["arm=static", "seed=1", "rollout.n=6"]),
        (["arm=static"], ["arm=genenv", "generation.tasks=7"]),
        ([], ["domain.options.explain=null"]),
    ],
)
def test_settings_of_later_epochs_may_differ(there: list[str], here: list[str]) -> None:
    check_branch(POINT, tiny(*there), tiny(*here))


def test_all_that_bootstrap_reads_is_taken_over() -> None:
    read = set(STAGE.reads) - {*COMPUTE_FIELDS, "bootstrap.easy_skew"}
    assert read <= set(STARTED_WITH) and {"models", "data.base_file"} <= set(STARTED_WITH)


def test_at_its_start_a_run_has_neither_trained_weights_nor_a_set() -> None:
    check_branch(START, tiny(), tiny("arm=static", "training.lora.rank=4"))
    with pytest.raises(ConfigError, match=r"domain\.name"):
        check_branch(START, tiny(), tiny("domain.name=trails"))


@mutation(
    "a branch has the name of a run with the same settings", BRANCHING,
    "digest([str(point), identity(", "digest([identity(",
)  # fmt: skip
def test_a_branch_has_a_name_of_its_own() -> None:
    name = branch_name(tiny(), POINT)
    assert name.startswith("a-at1-") and name == branch_name(tiny("epochs=7"), POINT)
    others = {branch_name(tiny("seed=1"), POINT), branch_name(tiny(), START)}
    assert name not in others and len(others) == 2
    assert branch_name(resolve("tiny", fields={"run_id": "mine"}), POINT) == "mine"
    alike = [BranchPoint(run_id="r" * 90 + end, epoch=1) for end in "ab"]  # names are cut
    assert len({branch_name(tiny(), point) for point in alike}) == 2
    long = BranchPoint(run_id="r" * 100, epoch=99_999)
    resolve("tiny", fields={"run_id": branch_name(tiny(), long)})


@mutation(
    "what is taken over may be an end", BRANCHING,
    "asked.epoch <= self.epoch", "asked.epoch < self.epoch",
)  # fmt: skip
def test_a_stage_that_is_taken_over_is_neither_an_end_nor_drawn_anew() -> None:
    POINT.check_later(None, "--until")
    POINT.check_later(Until(stage="rollout", epoch=2), "--until")
    with pytest.raises(ConfigError, match="--force rollout@1: epoch 1 is taken over from run a"):
        POINT.check_later(Until(stage="rollout", epoch=1), "--force")


@mutation(
    "a field that only the older configuration has is no difference", BRANCHING,
    "dict.fromkeys((*other, *one))", "dict.fromkeys(other)",
)  # fmt: skip
@mutation(
    "a field that is not there has no value of its own", BRANCHING,
    "other.get(name, missing)", "other.get(name)",
)  # fmt: skip
@pytest.mark.parametrize(
    ("old", "new", "apart", "as_none"),
    [
        ({"a": 1, "b": {"c": 2}}, {"b": {"c": 2}, "a": 1}, [], []),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, [("a.b", 1, 2)], None),
        ({"a": {}}, {"a": {"b": 1}}, [("a.b", ABSENT, 1)], [("a.b", None, 1)]),
        ({"a": {"b": 1}}, {"a": {}}, [("a.b", 1, ABSENT)], [("a.b", 1, None)]),
        ({"a": {}}, {"a": {"b": None}}, [("a.b", ABSENT, None)], []),
        ({}, {"a": {}}, [("a", ABSENT, {})], [("a", None, {})]),
        ({"a": None}, {"a": {"b": 1}}, [("a", None, {"b": 1})], None),
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}, [("a", [1, {"b": 2}], [1, {"b": 3}])], None),
        (
            {"a": {"model": "m", "revision": None}},
            {"a": {"file": "f"}},
            [("a.file", ABSENT, "f"), ("a.model", "m", ABSENT), ("a.revision", None, ABSENT)],
            [("a.file", None, "f"), ("a.model", "m", None)],
        ),
    ],
)  # fmt: skip
def test_nested_mappings_differ_field_by_field(
    old: dict[str, Any],
    new: dict[str, Any],
    apart: list[tuple[str, Any, Any]],
    as_none: list[tuple[str, Any, Any]] | None,
) -> None:
    """`apart` with fields that are not there as such, `as_none` with them as null."""
    assert list(differing(old, new)) == apart
    found = list(differing(old, new, missing=None))
    assert found == (apart if as_none is None else as_none)
    below = differing(old, new, "x")
    assert [path for path, _, _ in below] == [f"x.{path}" for path, _, _ in apart]
