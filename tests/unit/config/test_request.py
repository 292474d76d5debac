"""The form of a run: a preset and changes to it.

Invariants: every field of the configuration is in the form, with its bounds; a field that is left
out has the preset's value, whatever the default; nothing unknown or out of range passes, and the
refusal names its path; a run is continued with its own configuration.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from flows.deploy.requests import configuration, next_epoch, recorded
from genenv_core.config.load import preset_names, preset_values, resolve, run_name
from genenv_core.config.request import MEASURING, OWN, EpochRequest, Preset, RunRequest, overrides
from genenv_core.config.schema import RunConfig
from genenv_core.errors import ConfigError
from tasks.upkeep.opening import open_run


def leaves(model: type[BaseModel], path: tuple[str, ...] = ()) -> set[str]:
    found: set[str] = set()
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            found |= leaves(inner, (*path, name))
        else:
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
    assert leaves(RunRequest) - OWN == others


def test_bounds_choices_and_what_presets_set_are_in_the_schema():
    schema = RunRequest.model_json_schema()
    alpha = at(schema, "curriculum", "alpha")
    assert (alpha["minimum"], alpha["maximum"]) == (0, 1)
    steps = at(schema, "rwr", "steps")
    assert "[1 to 100000; default 16; paper 32; paper-small 32; tiny 2]" in steps["description"]
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
    open_run(first)
    again = configuration(RunRequest.model_validate({"resume": "mine", "epochs": 7}))
    assert again == first.model_copy(update={"epochs": 7})
    assert recorded(EpochRequest(run_id="mine")) == first
    assert next_epoch(first) == 1
    with pytest.raises(ConfigError, match=r"rwr, run_id beside resume"):
        configuration(request(tmp_path, resume="mine", rwr={"steps": 1}, run_id="other"))
    with pytest.raises(ConfigError, match=r"no run .nobody.*known: mine"):
        configuration(request(tmp_path, resume="nobody"))
