"""The fields of the configuration that each stage sees, and those in the stage's key.

Invariants: a stage can read the fields that it declares and no others; changing a declared field
changes the stage's key, changing any other does not, for every stage and every single field; run
id and root are in no key, the seed is in all; each input counts by its content; a stage names its
own module and installed libraries.
"""

from __future__ import annotations

import importlib.util
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

import tasks
from genenv_core.config.load import resolve
from genenv_core.config.schema import RunConfig
from genenv_core.config.sections.benchmark import MeasureConfig
from genenv_core.config.sections.compute import VllmServing
from genenv_core.config.sections.endpoint import EndpointAsking
from genenv_core.config.sections.limits import LimitsConfig, PricesConfig
from genenv_core.config.sections.placement import PlacementConfig
from genenv_core.config.sections.unions.alternatives import fields_of, sections_of
from genenv_core.config.sections.unions.benchmark import MeasuredCheckpoint, MeasuredEndpoint
from genenv_core.config.sections.unions.compute import VllmCompute
from genenv_core.config.sections.unions.teacher import EndpointTeacher, FileTeacher, ModelTeacher
from genenv_core.config.stages import STAGES as LISTED
from genenv_core.domains.desk import DeskDomain
from genenv_core.errors import StageError
from genenv_core.storage.records.code import imported_modules
from genenv_core.storage.records.keys import difference, stage_key
from genenv_core.storage.records.manifest import ArtifactRef, CheckpointRef, FileRef
from genenv_core.types import Policy
from tasks.stage import Stage, StageContext
from tasks.stage.key import ConfigView, config_fields, parts_of
from tests.mutations import mutation
from tests.unit.builders_stage import NO_INPUTS
from tests.unit.plugged import add_own_domain

INPUTS = "tasks/stage/inputs.py"
KEY = "tasks/stage/key.py"


def for_every_stage(config: RunConfig) -> RunConfig:
    """Return a configuration with a model to measure too, so that every stage has what it reads."""
    return config.model_copy(update={"benchmark": MeasuredCheckpoint(model="m")})


CONFIG = for_every_stage(resolve("tiny"))

AT_LEAST = 109
"""Fields that a configuration had when this was written: the walk must not lose any unseen."""

EXAMPLE = f"{Path(__file__).parents[3]}/docs/examples/reinforce.py:Reinforce"
"""An algorithm of one's own, which adds its section to what its stage reads."""

READ = (
    *("temperature", "items", "categories", "draw", "precision", "attempt_seconds"),
    *("certify_base", "certify_heldout"),
)
"""Fields of the section benchmark that its stage reads; the model comes as its input."""

ENDPOINT = {"url": "http://host:8000/v1", "model_name": "big"}

UNIONS: dict[str, list[BaseModel]] = {
    "teacher": [
        ModelTeacher(model="./big"),
        EndpointTeacher.model_validate(ENDPOINT),
        FileTeacher(file="tasks.jsonl"),
    ],
    "benchmark": [CONFIG.benchmark, MeasuredEndpoint.model_validate(ENDPOINT)],
    "compute": [CONFIG.compute, VllmCompute(engine="transformers")],
}
"""Sections that are one of several, with one of each kind; `engine` stays, so that one field at a
time changes."""

NEVER = {"run_id", "root"}
ALWAYS = {"seed"}


class OtherDomain(DeskDomain):
    name = "other"


@dataclass(frozen=True)
class Inner:
    heldout: float


@dataclass(frozen=True)
class Inputs:
    pool: ArtifactRef
    agent: CheckpointRef
    file: FileRef
    history: list[ArtifactRef]
    best: float | None = 0.5
    made: Inner | None = None


GIVEN = ("pool", "agent", "file", "history")


def stages() -> dict[str, Stage]:
    found: dict[str, Stage] = {}
    for module in pkgutil.iter_modules(tasks.__path__, "tasks."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, Stage):
                found[value.name] = value
    return found


STAGES = stages()


def fields(
    classes: tuple[type[BaseModel], ...] = (RunConfig,), path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], FieldInfo]]:
    for name, field in fields_of(classes).items():
        if inner := sections_of(field.annotation):
            yield from fields(inner, (*path, name))
        else:
            yield (*path, name), field


def candidates(path: str, annotation: Any, old: Any) -> list[Any]:
    """Return possible values of a field that differ from the old one."""
    special = {
        "domain.name": ["other"],
        "domain.options": [{"max_calls": 3}],
        "data.base_mapping": [{"program": "text"}],
        "models.agent_revision": ["a" * 40],
        "models.env_revision": ["b" * 40],
        "models.agent_chat_template_kwargs": [{"enable_thinking": False}],
        "models.env_chat_template_kwargs": [{"enable_thinking": False}],
        "execution.test_fault": ["rollout:1"],
        "benchmark.items": [8],
        "benchmark.categories": [("lv1 calls",)],
        "benchmark.draw": [8],
        "benchmark.precision": [0.1],
        "benchmark.certify_base": [8],
        "benchmark.certify_heldout": [8],
        "refill.max_tasks": [64],
        "execution.keep_checkpoints": [2],
        "benchmark.attempt_seconds": [8.0],
        "measure.benchmarks": [("bfcl",)],
        "measure.every": [2],
        "measure.items": [8],
        "limits.seconds": [60.0],
        "limits.tokens": [5000],
        "limits.cost": [2.5],
        "prices.hours": [{"rollout": 12.5}],
        "roots.read": [("s3://team/genenv",)],
        "benchmark.request": [{"max_completion_tokens": 8}],
        "execution.benchmark.key_env": ["MODEL_KEY"],
        "execution.teacher.key_env": ["TEACHER_KEY"],
        "teacher.revision": ["c" * 40],
        "teacher.chat_template_kwargs": [{"enable_thinking": False}],
        "teacher.request": [{"max_completion_tokens": 8}],
        "compute.vllm.version": ["0.32.0"],
        "compute.vllm.max_model_len": [512],
        "compute.vllm.arguments": [("--enforce-eager",)],
        "execution.vllm.urls": [("http://host:8000",)],
        "training.memory_gb": [8.0],
        "agent_update.algorithm": [EXAMPLE],
        "agent_update.options": [{"baseline": "others"}],
        "grpo.delta": [2.0],
        "grpo.max_mismatch": [0.5],
    }
    if path in special:
        return special[path]
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    if get_origin(annotation) in (Union, UnionType):
        annotation = next(kind for kind in get_args(annotation) if kind is not type(None))
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return list(annotation)
    if annotation is bool:
        return [not old]
    if annotation is int:
        return [old + 1, old - 1, old + 4, old - 4]
    if annotation is float:
        return [old / 2, old + 0.25, old - 0.25]
    if annotation is str:
        return [f"{old or 'new'}-x"]
    return []


def holding(config: RunConfig, path: tuple[str, ...]) -> RunConfig:
    """Return a configuration whose section, where it is one of several, has the field."""
    for one in UNIONS.get(path[0], ()):
        if path[1] in type(one).model_fields:
            return config.model_copy(update={path[0]: one})
    return config


def replaced(value: BaseModel, path: tuple[str, ...], new: Any) -> Any:
    # Without cross-field rules: one field at a time is the question here.
    name, *rest = path
    if isinstance(value, RunConfig):
        value = holding(value, path)
    inner = replaced(getattr(value, name), tuple(rest), new) if rest else new
    return value.model_copy(update={name: inner})


@cache
def variants() -> dict[str, RunConfig]:
    """Return, by field, the configuration with another valid value of the field."""
    changed: dict[str, RunConfig] = {}
    for path, field in fields():
        name = ".".join(path)
        old: Any = CONFIG
        for part in path:
            old = getattr(old, part, None)  # of a section that the configuration does not have
        kind = field.annotation
        for rule in field.metadata:
            kind = Annotated[kind, rule]
        for value in candidates(name, field.annotation, old):
            try:
                valid = TypeAdapter(kind).validate_python(value)
            except ValidationError:
                continue
            if valid != old:
                changed[name] = replaced(CONFIG, path, valid)
                break
    return changed


def declared(stage: Stage, name: str) -> bool:
    return any(name == read or name.startswith(f"{read}.") for read in stage.reads)


@pytest.fixture(autouse=True)
def other_domain(monkeypatch: pytest.MonkeyPatch) -> None:
    add_own_domain(monkeypatch, "other", f"{__name__}:OtherDomain.from_options")


def test_all_stages_are_here() -> None:
    assert set(STAGES) == set(LISTED)


def test_what_samples_reads_how_its_engine_computes() -> None:
    sampling = {name for name, stage in STAGES.items() if "compute.vllm" in stage.reads}
    assert sampling == {name for name, entry in LISTED.items() if entry.samples}


def test_every_field_of_the_configuration_is_tried() -> None:
    everything = {".".join(path) for path, _ in fields()}
    assert everything == set(variants())
    assert len(everything) >= AT_LEAST
    assert all(config != CONFIG for config in variants().values())


@pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES)
def test_a_key_depends_on_the_declared_fields_and_on_no_other(stage: Stage) -> None:
    base = parts_of(stage, CONFIG, 1, NO_INPUTS)
    counted = 0
    for name, config in variants().items():
        parts = parts_of(stage, config, 1, NO_INPUTS)
        changed = stage_key(parts) != stage_key(base)
        asked = stage.as_asked(config)
        expected = name in ALWAYS or (name not in NEVER and declared(asked, name))
        assert changed is expected, f"{stage.name}: {name}"
        if changed and name not in ALWAYS:
            counted += declared(stage, name)
            lines = difference(base, parts)
            assert any(line.startswith(f"config.{name}") for line in lines), lines
    assert counted == len(set(config_fields(CONFIG, stage.reads)) & set(variants()))
    assert counted >= len(stage.reads)


def test_variables_of_a_chat_template_are_in_the_keys_of_the_stages_that_render_it() -> None:
    renders = {
        policy: {
            stage.name
            for stage in STAGES.values()
            if declared(stage, f"models.{policy}_chat_template_kwargs")
        }
        for policy in Policy
    }
    assert renders == {
        Policy.AGENT: {"warm_start", "rollout", "evaluate", "benchmark"},
        Policy.ENV: {"warm_start", "generate_tasks", "rollout", "rwr_update", "benchmark"},
    }


def test_some_fields_make_no_key_and_these_are_they() -> None:
    unread = {
        name
        for name, config in variants().items()
        if not any(declared(stage.as_asked(config), name) for stage in STAGES.values())
    }
    # In keys by other ways (the seed; files and models by content; arm, teacher and the size of a
    # set by what a flow passes on),
    # or in none on purpose: where a run is, how long it is, how it is carried out, who watches it,
    # what it may spend.
    assert unread == {
        "agent_update.options",  # without an algorithm of one's own, which makes it count
        "arm",
        "data.base_file",
        "data.set_tasks",
        *(f"limits.{name}" for name in LimitsConfig.model_fields),
        *(f"measure.{name}" for name in MeasureConfig.model_fields),
        "epochs",
        "execution.checkpoint_seconds",
        "execution.gradient_checkpointing",
        "execution.keep_checkpoints",
        *(f"execution.benchmark.{name}" for name in EndpointAsking.model_fields),
        *(f"execution.teacher.{name}" for name in EndpointAsking.model_fields),
        *(f"execution.vllm.{name}" for name in VllmServing.model_fields),
        "execution.open_attempts",
        "execution.retries",
        "execution.retry_seconds",
        "execution.test_fault",
        "execution.tool_workers",
        "execution.updates_at_once",
        "models.agent",
        "models.agent_revision",
        "models.env",
        "models.env_revision",
        *(f"placement.{name}" for name in PlacementConfig.model_fields),
        *(f"prices.{name}" for name in PricesConfig.model_fields),
        "refill.max_tasks",  # without refill.groups, which makes it count
        "root",
        "roots.read",
        "run_id",
        "seed",
        *(
            f"{section}.{name}"
            for section in ("teacher", "benchmark")
            for one in UNIONS[section]
            for name in type(one).model_fields
            if section != "benchmark" or name not in READ
        ),
        "tracking.enabled",
        "tracking.experiment",
        "tracking.upload",
        "tracking.uri",
        "warm_start.examples",
    }


@pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES)
def test_a_stage_can_read_what_it_declares_and_nothing_else(stage: Stage) -> None:
    refused = 0
    for path, _ in fields():
        name, expected = ".".join(path), holding(CONFIG, path)
        value: Any = ConfigView(expected, stage)
        if declared(stage, name):
            for part in path:
                value, expected = getattr(value, part), getattr(expected, part)
            assert value == expected
            continue
        with pytest.raises(StageError) as caught:
            for part in path:
                value = getattr(value, part)
        refused += 1
        message = str(caught.value)
        assert f"stage {stage.name} reads config." in message
        assert f"`reads` in {stage.modules[0]}" in message
    known = {".".join(path) for path, _ in fields()}
    assert refused + len(known & set(config_fields(CONFIG, stage.reads))) == len(known)


@mutation(
    "a stage may read what its key does not hold", KEY,
    '        raise StageError(\n            f"stage {self._stage.name} reads config.',
    "        return value\n        raise StageError(\n"
    '            f"stage {self._stage.name} reads config.',
)  # fmt: skip
def test_a_refusal_names_the_field() -> None:
    stage = Stage("toy", ("tasks.toy",), ("rwr.steps",))
    view: Any = ConfigView(CONFIG, stage)
    assert view.rwr.steps == CONFIG.rwr.steps
    with pytest.raises(StageError, match=r"stage toy reads config\.rwr\.kl_cap, which is not in"):
        _ = view.rwr.kl_cap
    with pytest.raises(StageError, match=r"config\.rwr_"):
        _ = ConfigView(CONFIG.model_copy(update={"rwr_": 1}), stage).rwr_


@mutation(
    "a stage sees the whole section of what is measured", "tasks/stage/context.py",
    'cast("MeasuredCheckpoint | MeasuredEndpoint", self.config.benchmark)',
    'cast("MeasuredCheckpoint | MeasuredEndpoint", vars(self.config)["_value"].benchmark)',
)  # fmt: skip
def test_what_is_measured_is_seen_as_far_as_the_stage_reads_it() -> None:
    stage: Any = STAGES["benchmark"]
    config: Any = ConfigView(CONFIG, stage)
    seen: Any = SimpleNamespace(config=config)
    measured: Any = StageContext.measured.fget(seen)  # type: ignore[attr-defined]
    assert measured.temperature == CONFIG.measured.temperature
    assert measured.attempt_seconds is None
    with pytest.raises(StageError, match=r"stage benchmark reads config\.benchmark\.model, "):
        _ = measured.model


@mutation(
    "an input that equals its default is in the key", INPUTS,
    "if value != left}", "if value is not left}",
)  # fmt: skip
@mutation("inputs are in no key", KEY, "inputs=identities(inputs)", "inputs={}")
@mutation(
    "the age of a checkpoint is in no key", INPUTS,
    'return f"{value.digest}@{value.policy_version}"', "return value.digest",
)  # fmt: skip
@pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES)
def test_epoch_and_inputs_count_and_inputs_by_content(stage: Stage) -> None:
    ref = ArtifactRef(stage="pool", key="k" * 64, digest="d" * 64)
    model = CheckpointRef(artifact=ref, name="agent", digest="e" * 64, policy_version=1)
    file = FileRef(path="/a/base.jsonl", sha256="f" * 64)
    inputs = Inputs(ref, model, file, [ref])

    def key(epoch: int = 1, **changed: Any) -> str:
        return stage_key(parts_of(stage, CONFIG, epoch, replace(inputs, **changed)))

    assert key() == key()
    distinct = [
        key(),
        key(epoch=2),
        key(pool=ref.model_copy(update={"digest": "0" * 64})),
        key(agent=model.model_copy(update={"digest": "0" * 64})),
        key(agent=model.model_copy(update={"policy_version": 2})),
        key(file=file.model_copy(update={"sha256": "0" * 64})),
        key(history=[ref, ref]),
        key(best=0.25),
        key(best=None),
        key(made=Inner(0.5)),
        key(made=Inner(0.25)),
    ]
    assert len(set(distinct)) == len(distinct)
    # What is left out, or equals its default, is in no key, so a new input changes none.
    for equal in (inputs, replace(inputs, best=float("0.5"))):  # the second is another object
        assert set(parts_of(stage, CONFIG, 1, equal)["inputs"]) == set(GIVEN)
    # Where an equal output came from, or lies, does not count.
    assert key(pool=ref.model_copy(update={"key": "0" * 64})) == key()
    assert key(
        agent=model.model_copy(update={"artifact": ref.model_copy(update={"key": "0"})})
    ) == (key())
    assert key(file=file.model_copy(update={"path": "/b/base.jsonl"})) == key()


@pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES)
def test_a_stage_names_its_module_and_installed_libraries(stage: Stage) -> None:
    assert stage.modules[0] == f"tasks.{stage.name}"
    for module in stage.modules:
        assert importlib.util.find_spec(module.split(".")[0])
        assert imported_modules(module), f"{module} is not found"
    for library in stage.libraries:
        assert version(library)
