"""Several domains in the form of a run, and in the schema of configurations.

Invariants: the list in the form is the list of the command line, so both name one run, however few
fields are filled in; an entry has the fields and bounds that the domain `several` reads, and a
wrong one is named by its place; an empty list changes nothing; both spellings are refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from pydantic import ValidationError

from flows.deploy.requests import configuration, work_of
from genenv_core.config.load import resolve, run_name
from genenv_core.config.request import RunRequest, ShortRequest
from genenv_core.config.schema import RunConfig
from genenv_core.config.several import DomainEntry, with_the_list
from genenv_core.domains.kit.several.several_domain import SeveralPart
from genenv_core.errors import ConfigError
from tests.mutations import mutation

SEVERAL = "genenv_core/config/several.py"
REQUEST = "genenv_core/config/request.py"


def request(*entries: dict[str, Any], **more: Any) -> RunRequest:
    given = {"root": "/root", "preset": "tiny", "domains": list(entries), **more}
    return RunRequest.model_validate(given)


@mutation(
    "the form fills in what a person left out of a domain", SEVERAL,
    "exclude_unset=True, exclude_none=True", "exclude_none=True",
)  # fmt: skip
@mutation(
    "a whole weight in the form is another run", SEVERAL,
    "Annotated[int | float, With", "Annotated[float, With",
)  # fmt: skip
@pytest.mark.parametrize(
    "text",
    [
        "[{name: desk}, {name: trails}]",
        "[{name: desk, weight: 2}, {name: trails, options: {max_looks: 4}, weight: 0.5}]",
        "[{name: desk, as: short, options: {max_calls: 1}}, {name: desk, as: long, weight: 1}]",
        "[{name: trails, weight: 5}]",
    ],
)
def test_the_form_and_the_command_name_one_run(text: str) -> None:
    told = resolve("tiny", overrides=[f"domains={text}"], fields={"root": "/root"})
    made = configuration(request(*yaml.safe_load(text)))
    assert made == told.model_copy(update={"run_id": run_name(told, "tiny")})
    short = ShortRequest.model_validate({"preset": "tiny", "changes": [f"domains={text}"]})
    assert run_name(told, "tiny") == made.run_id
    assert short.changes == [f"domains={text}"]


def test_an_entry_has_what_the_domain_reads() -> None:
    form, read = (one.model_json_schema() for one in (DomainEntry, SeveralPart))
    assert list(form["properties"]) == ["name", "as", "weight", "options"]
    assert form["properties"].keys() == read["properties"].keys()
    for field in ("type", "minLength", "maxLength", "exclusiveMinimum"):
        for name in ("name", "weight", "options"):
            assert form["properties"][name].get(field) == read["properties"][name].get(field)
    texts = next(one for one in read["properties"]["as"]["anyOf"] if one["type"] == "string")
    for label in ("a" * 40, "a-b_c"):
        assert DomainEntry.model_validate({"name": "desk", "as": label}).label == label
    for label in ("", "a b", "_a", "a" * 41):
        with pytest.raises(ValidationError):
            SeveralPart.model_validate({"name": "desk", "as": label})
        with pytest.raises(ValidationError):
            DomainEntry.model_validate({"name": "desk", "as": label})
    assert texts["pattern"] and not any("default" in one for one in form["properties"].values())


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({"name": "trails", "weight": 0}, "weight"),
        ({"name": "trails", "weight": True}, "weight"),
        ({"weight": 2}, "name"),
        ({"name": "trails", "label": "cards"}, "label"),
        ({"name": "trails", "as": "two words"}, "as"),
    ],
)
def test_a_wrong_entry_is_named_by_its_place(wrong: dict[str, Any], place: str) -> None:
    with pytest.raises(ValidationError) as refused:
        request({"name": "desk"}, wrong)
    assert [one["loc"] for one in refused.value.errors()] == [("domains", 1, place)]


def test_what_only_the_domains_know_is_named_as_the_command_does() -> None:
    with pytest.raises(ConfigError, match=r"domains\[1\]\.name 'nope' is unknown"):
        work_of(request({"name": "desk"}, {"name": "nope"}))
    with pytest.raises(ConfigError, match=r"domains\[1\]\.options\.q is no option"):
        work_of(request({"name": "desk"}, {"name": "trails", "options": {"q": 1}}))


@mutation(
    "an empty list of domains is a list", REQUEST,
    "            if not value:\n                continue\n        if isinstance(value, BaseModel):",
    "        if isinstance(value, BaseModel):",
)  # fmt: skip
def test_an_empty_list_is_as_the_preset_has_it() -> None:
    assert configuration(request()).domain == resolve("tiny").domain


@mutation(
    "the form takes both spellings", "flows/deploy/requests.py",
    '    one_or_the_other(changes, "request")\n', "",
)  # fmt: skip
def test_both_spellings_in_one_form_are_refused() -> None:
    both = request({"name": "desk"}, {"name": "trails"}, domain={"name": "desk"})
    with pytest.raises(ConfigError, match=r"^request: domain and domains: .* not both"):
        configuration(both)


def test_the_list_stands_behind_the_section_in_form_and_schema(tmp_path: Path) -> None:
    whole = with_the_list(RunConfig.model_json_schema())
    for schema in (RunRequest.model_json_schema(), whole):
        names = list(schema["properties"])
        assert names.index("domains") == names.index("domain") + 1
        listed = schema["properties"]["domains"]
        assert listed["items"] == {"$ref": "#/$defs/DomainEntry"} and "default" not in listed
    good = {"domains": [{"name": "desk", "weight": 2}, {"name": "trails", "as": "cards"}]}
    jsonschema.validate(good, whole)
    with pytest.raises(jsonschema.ValidationError) as refused:
        jsonschema.validate({"domains": [{"name": "desk"}, {"name": "trails", "wight": 2}]}, whole)
    assert list(refused.value.path) == ["domains", 1]
