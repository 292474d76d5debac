"""The form of a run: a preset and changes to it.

Invariants: every field of the configuration is in the form, with its bounds; a field that is left
out has the preset's value, whatever the default; nothing unknown or out of range passes, and the
refusal names its path; a run is continued with its own configuration.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from prefect.utilities.schema_tools.validation import is_valid_schema, validate
from pydantic import BaseModel, ValidationError

from flows.deploy.benchmark_request import BenchmarkRequest
from flows.deploy.requests import configuration, next_epoch, point_of, recorded, work_of
from genenv_core.config.branching import BranchPoint, branch_name
from genenv_core.config.load import preset_names, preset_values, resolve, run_name
from genenv_core.config.request import (
    MEASURING,
    OWN,
    USUAL,
    Preset,
    RunRequest,
    ShortRequest,
    overrides,
)
from genenv_core.config.requests_beside import CompareRequest, EpochRequest
from genenv_core.config.schema import RunConfig
from genenv_core.config.sections.limits import LimitsConfig
from genenv_core.config.sections.unions.alternatives import paths_of, sections_of
from genenv_core.config.until import Until
from genenv_core.errors import ConfigError
from genenv_core.storage.records.labels import Labels, read_labels
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.store.local import LocalStore
from tasks.upkeep.opening import open_run
from tests.mutations import mutation

MINE = BranchPoint(run_id="mine", epoch=1)


def leaves(model: type[BaseModel], path: tuple[str, ...] = ()) -> set[str]:
    found: set[str] = set()
    for name, field in model.model_fields.items():
        classes = sections_of(field.annotation)
        for inner in classes:
            found |= leaves(inner, (*path, name))
        if not classes:
            found.add(".".join((*path, name)))
    return found


def at(schema: dict[str, Any], *path: str) -> dict[str, Any]:
    """Return the JSON schema of a field by its path."""
    here = schema
    for name in path:
        reference = here.get("$ref", "").rpartition("/")[2]
        here = (schema["$defs"][reference] if reference else here)["properties"][name]
    return here


def request(root: Path, **fields: Any) -> Any:
    return RunRequest.model_validate({"root": str(root), **fields})


def test_presets_are_those_that_there_are():
    assert sorted(preset.value for preset in Preset) == preset_names()


def test_every_field_of_the_configuration_is_in_the_form():
    measuring = {".".join(path) for path in MEASURING}
    others = {
        name
        for name in leaves(RunConfig) - OWN
        if not any(f"{name}.".startswith(f"{section}.") for section in measuring)
    }
    assert leaves(RunRequest) - OWN == others | {"domains"}


def test_bounds_choices_and_what_presets_set_are_in_the_schema():
    schema = RunRequest.model_json_schema()
    alpha = at(schema, "curriculum", "alpha")
    assert (alpha["minimum"], alpha["maximum"]) == (0, 1)
    steps = at(schema, "rwr", "steps")
    assert (
        "[1 to 100000; default 16; laptop 3; paper 32; paper-small 32; tiny 2]"
        in steps["description"]
    )
    assert at(schema, "grpo", "loss_type")["enum"] == ["dapo", "grpo", "dr_grpo", "bnpo"]
    assert at(schema, "preset")["default"] == "quickstart"
    assert at(schema, "rwr", "lambda")["type"] == "number"
    assert schema["additionalProperties"] is False


def test_a_field_that_is_left_out_has_no_default_that_a_form_would_send():
    schema = RunRequest.model_json_schema()
    switches = {("data", "skip_bad"), ("evaluation", "greedy"), ("curriculum", "filter_agent")}
    for path in (("rwr", "steps"), ("epochs",), ("curriculum", "alpha"), ("data", "base_file")):
        assert "default" not in at(schema, *path)
    for path in switches:
        assert at(schema, *path)["default"] in (True, False)


READS = """
import yaml

read, load = [], yaml.load
yaml.load = lambda text, loader: (read.append(text), load(text, loader))[1]
import genenv_core.config.request

print(len(read), len(set(read)))
"""


@mutation(
    "the form reads each preset once a field",
    "genenv_core/config/request.py",
    "@cache\ndef _presets",
    "def _presets",
)
def test_the_form_is_made_from_one_reading_of_each_preset():
    said = subprocess.run([sys.executable, "-c", READS], capture_output=True, text=True, check=True)
    assert said.stdout.split() == [str(len(preset_names()))] * 2


def test_no_preset_changes_a_switch():
    # A form sends every switch as it shows it, so what it shows has to hold in every preset. The
    # options of a domain are one field, a mapping that it sends or leaves out as a whole.
    def switches(values: dict[str, Any]) -> list[str]:
        inner = [v for name, v in values.items() if isinstance(v, dict) and name != "options"]
        own = [name for name, value in values.items() if isinstance(value, bool)]
        return own + [name for v in inner for name in switches(v)]

    assert [switches(preset_values(name)) for name in preset_names()] == [[]] * len(preset_names())


def test_omitted_fields_keep_the_presets_values(tmp_path: Path):
    given = request(
        tmp_path,
        preset="tiny",
        arm="random",
        rwr={"lambda": 2, "steps": 3},
        bootstrap={"agent": {"layers": 2}},
        evaluation={"greedy": True},
    )
    wanted = resolve(
        "tiny",
        overrides=["arm=random", "rwr.lambda=2", "rwr.steps=3", "bootstrap.agent.layers=2"],
        fields={"root": str(tmp_path)},
    )
    named = wanted.model_copy(update={"run_id": run_name(wanted, "tiny")})
    assert configuration(given) == named  # so `genenv run` and the form continue one run


def test_a_mapping_is_replaced_and_not_merged(tmp_path: Path):
    given = request(tmp_path, preset="tiny", domain={"options": {"max_calls": 2}})
    assert configuration(given).domain.options == {"max_calls": 2}


def test_a_switch_that_differs_from_the_preset_is_an_override():
    given = RunRequest.model_validate({"evaluation": {"greedy": False}})
    assert overrides(given) == {"evaluation": {"greedy": False}}


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"nope": 1}, ("nope",)),
        ({"rwr": {"stepz": 1}}, ("rwr", "stepz")),
        ({"curriculum": {"alpha": 2}}, ("curriculum", "alpha")),
        ({"preset": "huge"}, ("preset",)),
        ({"root": "relative/path"}, ("root",)),
        ({"run_id": "../up"}, ("run_id",)),
        ({"bootstrap": {"agent": {"heads": 0}}}, ("bootstrap", "agent", "heads")),
        ({"execution": {"test_fault": "rm -rf"}}, ("execution", "test_fault")),
    ],
)
def test_what_does_not_fit_is_refused_with_its_path(values: dict[str, Any], path: tuple[str, ...]):
    with pytest.raises(ValidationError) as refused:
        RunRequest.model_validate(values)
    assert refused.value.errors()[0]["loc"][: len(path)] == path


def test_values_that_conflict_are_refused_when_they_are_resolved(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"mixture\.new"):
        configuration(request(tmp_path, mixture={"new": 0.1}))
    with pytest.raises(ConfigError, match=r"generation\.max_generations 3"):
        configuration(request(tmp_path, preset="tiny", generation={"max_generations": 3}))


def test_without_a_root_anywhere_both_places_are_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("GENENV_ROOT", raising=False)
    with pytest.raises(ConfigError, match=r"request\.root.*GENENV_ROOT"):
        configuration(RunRequest.model_validate({}))


def test_a_run_is_continued_with_its_own_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("GENENV_ROOT", str(tmp_path))
    first = configuration(request(tmp_path, preset="tiny", run_id="mine", rwr={"steps": 5}))
    open_run(first, {})
    again = configuration(RunRequest.model_validate({"resume": "mine", "epochs": 7}))
    assert again == first.model_copy(update={"epochs": 7})
    assert recorded(EpochRequest(run_id="mine")) == first
    assert next_epoch(RunLog(LocalStore(tmp_path), "mine")) == 1
    with pytest.raises(ConfigError, match=r"run_id, rwr: a run goes on with the configuration"):
        configuration(request(tmp_path, resume="mine", rwr={"steps": 1}, run_id="other"))
    with pytest.raises(ConfigError, match=r"no run .nobody.*known: mine"):
        configuration(request(tmp_path, resume="nobody"))
    raised = configuration(request(tmp_path, resume="mine", limits={"tokens": 5000}))
    assert raised == first.model_copy(update={"limits": LimitsConfig(tokens=5000)})


def test_labels_of_the_form_name_the_same_run_and_are_kept_with_it(tmp_path: Path):
    plain = request(tmp_path, preset="tiny")
    labelled = request(tmp_path, preset="tiny", tags=["a", "b"], note="why", pin=True)
    assert overrides(labelled) == overrides(plain)
    config = configuration(labelled)
    assert config == configuration(plain)
    open_run(config, {}, work_of(labelled).said)
    store = LocalStore(tmp_path)
    assert read_labels(store, str(config.run_id)) == Labels(
        tags=("a", "b"), note="why", pinned=True
    )
    # An empty form takes nothing away.
    again = request(tmp_path, resume=config.run_id, tags=["c"])
    open_run(configuration(again), {}, work_of(again).said)
    assert read_labels(store, str(config.run_id)).tags == ("a", "b", "c")
    assert read_labels(store, str(config.run_id)).pinned
    with pytest.raises(ConfigError, match="'a b'"):
        work_of(request(tmp_path, tags=["a b"]))


def test_the_form_has_the_end_of_the_run_and_it_is_no_setting(tmp_path: Path):
    ends = request(tmp_path, preset="tiny", until="pool@2")
    config = configuration(ends)
    assert config == configuration(request(tmp_path, preset="tiny"))
    assert work_of(ends).run.options.until == Until(stage="pool", epoch=2)
    assert work_of(request(tmp_path, preset="tiny")).run.options.until is None
    with pytest.raises(ConfigError, match=r"request.until 'pool@9'"):
        work_of(request(tmp_path, preset="tiny", until="pool@9"))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GENENV_ROOT", str(tmp_path))
    return tmp_path


def test_the_short_form_has_what_people_set_most_in_this_order():
    usual = ["preset", *USUAL, "tags", "changes", "until", "force"]
    assert list(ShortRequest.model_json_schema()["properties"]) == usual
    whole = ["preset", "resume", "from", "run_id", "root"]
    assert list(RunRequest.model_json_schema()["properties"])[:5] == whole


def test_both_forms_and_the_command_name_one_run(root: Path):
    short = ShortRequest.model_validate(
        {"preset": "tiny", "seed": 3, "changes": [" rwr.steps = 3", "rollout={n: 3}"]}
    )
    whole = RunRequest.model_validate(
        {"preset": "tiny", "seed": 3, "rwr": {"steps": 3}, "rollout": {"n": 3}}
    )
    told = resolve("tiny", overrides=short.changes, fields={"root": str(root), "seed": 3})
    assert configuration(short) == configuration(whole)
    assert configuration(short).run_id == run_name(told, "tiny")


FORMS = (ShortRequest, CompareRequest, BenchmarkRequest)

IN_REQUEST = "genenv_core/config/request.py"


@mutation(
    "fields of other forms' changes are not checked", "genenv_core/config/requests_beside.py",
    "    changes: list[Change]", "    changes: list[str]",
)  # fmt: skip
@mutation(
    "the API lets unknown fields pass", IN_REQUEST,
    '"then": {"if": exists, "else": instead}', '"then": {}',
)  # fmt: skip
@mutation(
    "the API does not say the new name", IN_REQUEST,
    "    for old, new in MOVED.items():\n", "    for old, new in ():\n",
)  # fmt: skip
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("change", "instead"),
    [
        ("evaluation.heldout_tasks=10", "'evaluation.FIELD=VALUE with one of samples, greedy'"),
        ("grpo.lambda=2", "'rwr.lambda=VALUE'"),
        ("alpha = 0.4", "'curriculum.alpha=VALUE or training.lora.alpha=VALUE'"),
        ("execution.vllm.urlz=x", "'execution.vllm.FIELD=VALUE with one of urls, "),
        ("grop.x=1", "'FIELD=VALUE with one of domains, arm, epochs, "),
        ("data.offline_file=x", "'teacher.file=VALUE'"),
    ],
)
def test_prefects_api_refuses_a_change_of_a_field_that_does_not_exist(
    form: type[BaseModel], change: str, instead: str
):
    wrong = validate({"changes": ["epochs=3", change]}, _changes_of(form))
    assert [list(error.path) for error in wrong] == [["changes", 1]] * len(wrong)
    assert {error.message for error in wrong} == {wrong[0].message}
    assert wrong[0].message.startswith(instead) and wrong[0].message.endswith(" was expected")


def test_prefects_api_accepts_a_change_of_every_field_and_section():
    known = [*paths_of((RunConfig,)), "domains", "domain.options.max_calls", "run_id"]
    assert len(known) > 200
    changes = [f"{name}=1" for name in known] + [" rwr.steps = 3", "rollout={n: 3}"]
    schema = _changes_of(ShortRequest)
    assert [one for one in changes if validate({"changes": [one]}, schema)] == []


def test_the_schema_of_a_form_is_one_of_prefects():
    is_valid_schema(ShortRequest.model_json_schema())


def _changes_of(form: type[BaseModel]) -> Any:
    """Return the JSON schema of the changes of a form alone."""
    field = form.model_json_schema()["properties"]["changes"]
    return {"type": "object", "properties": {"changes": field}}


def test_fields_of_the_short_form_win_over_its_changes(root: Path):
    given = {"preset": "tiny", "epochs": 5, "changes": ["epochs=4", "seed=9", "run_id=mine"]}
    config = configuration(ShortRequest.model_validate(given))
    assert (config.epochs, config.seed, config.run_id) == (5, 9, "mine")


def test_another_domain_in_the_short_form_begins_without_the_options_of_the_first(root: Path):
    given = {"preset": "trails", "changes": ["domain.name=desk"]}
    config = configuration(ShortRequest.model_validate(given))
    assert (config.domain.name, config.domain.options) == ("desk", {})


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("rwr.stepz=3", "request.*rwr.stepz"),
        ("rollout.n=0", "request.*rollout.n.*0"),
        ("rollout.n=[", r"request.changes 'rollout.n=\['.*no YAML"),
        ("epochs.x=1", r"request.changes 'epochs.x=1'.*not a section"),
        ("root=here", "root 'here'.*absolute"),
        ("run_id=../up", "run_id"),
    ],
)
def test_a_wrong_change_is_refused_as_the_command_does(root: Path, change: str, told: str):
    with pytest.raises(ConfigError, match=told):
        configuration(ShortRequest.model_validate({"preset": "tiny", "changes": [change]}))


@pytest.mark.parametrize("change", ["rollout.n", "=3", "a b=3", "", "--set x=1"])
def test_what_is_no_change_is_refused_before_a_flow_run_is_made(change: str):
    with pytest.raises(ValidationError) as refused:
        ShortRequest.model_validate({"changes": [change]})
    assert refused.value.errors()[0]["loc"] == ("changes", 0)


def test_the_form_branches_off_from_a_run_with_its_settings(tmp_path: Path):
    first = configuration(request(tmp_path, preset="tiny", run_id="mine", rwr={"steps": 5}))
    open_run(first, {})
    given = {"from": "mine@1", "epochs": 7, "grpo": {"learning_rate": 0.001}}
    config = configuration(request(tmp_path, **given))
    expected = first.grpo.model_copy(update={"learning_rate": 0.001})
    name = {"run_id": branch_name(config.model_copy(update={"run_id": None}), MINE)}
    assert config == first.model_copy(update={"epochs": 7, "grpo": expected, **name})
    assert point_of(request(tmp_path, **given)) == MINE and point_of(request(tmp_path)) is None
    assert configuration(request(tmp_path, run_id="other", **given)).run_id == "other"
    with pytest.raises(ConfigError, match=r"no run .nobody.*known: mine"):
        configuration(request(tmp_path, **{"from": "nobody@1"}))
    with pytest.raises(ConfigError, match=r"request.from 'mine': expected RUN@EPOCH"):
        configuration(request(tmp_path, **{"from": "mine"}))
    with pytest.raises(ConfigError, match=r"resume mine: from: a run goes on"):
        configuration(request(tmp_path, resume="mine", **{"from": "mine@1"}))


def test_roots_to_read_from_are_absolute_in_forms(tmp_path: Path) -> None:
    team = ["s3://team/genenv", "/mnt/team"]
    config = configuration(request(tmp_path, roots={"read": team}))
    assert config.roots.read == tuple(team)
    assert config.run_id == configuration(request(tmp_path)).run_id
    with pytest.raises(ConfigError, match=r"roots\.read './team' has to be an absolute directory"):
        configuration(request(tmp_path, roots={"read": ["./team"]}))
