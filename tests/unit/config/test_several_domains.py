"""`domains` in a configuration: the spelling for a run of several domains.

Invariants: it stands for section `domain` in a file, in `--set` and in plain values, and the
resolved configuration, which has that section alone, resolves to itself; the options of a preset's
domain are not those of the parts; a list of one is that domain; both spellings together, and
anything but a list of domains, are refused; a run of one domain keeps its name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from genenv_core.config.load import dump, preset_values, resolve, run_name, to_yaml, validated
from genenv_core.errors import ConfigError
from tests.mutations import mutation

SEVERAL = "genenv_core/config/several.py"
LOAD = "genenv_core/config/load.py"

BOTH = "domains=[{name: desk, weight: 2}, {name: trails, options: {max_looks: 4}}]"
PARTS: list[dict[str, Any]] = [
    {"name": "desk", "weight": 2},
    {"name": "trails", "options": {"max_looks": 4}},
]


def test_several_domains_are_one_section(tmp_path: Path) -> None:
    config = resolve("tiny", overrides=[BOTH])
    assert (config.domain.name, config.domain.options) == ("several", {"parts": PARTS})
    assert config.data == resolve("tiny").data
    again = tmp_path / "again.yaml"
    again.write_text(to_yaml(config), encoding="utf-8")
    assert "domains" not in dump(config) and resolve(str(again)) == config


@mutation(
    "a file cannot name several domains", LOAD,
    "return with_one_section(cast(dict[str, Any], values))",
    "return cast(dict[str, Any], values)",
    by="unit/config/test_several_domains.py::test_a_file_names_them_too",
)  # fmt: skip
def test_a_file_names_them_too(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    lines = "domains:\n- {name: desk, weight: 2}\n- {name: trails, options: {max_looks: 4}}\n"
    for start in ("", "preset: tiny\n"):
        file.write_text(start + lines, encoding="utf-8")
        assert resolve(str(file)).domain.options == {"parts": PARTS}
        assert preset_values(str(file))["domain"]["name"] == "several"
        one = resolve(str(file), overrides=["domain.name=desk"]).domain
        assert (one.name, one.options) == ("desk", {})
    assert resolve(str(file), overrides=["epochs=3"]).domain.options == {"parts": PARTS}


@mutation(
    "plain values cannot name several domains", LOAD,
    "RunConfig.model_validate(with_one_section({**values, **given}))",
    "RunConfig.model_validate({**values, **given})",
)  # fmt: skip
def test_plain_values_name_them_too() -> None:
    assert validated({"domains": PARTS}, "here").domain.options == {"parts": PARTS}


def test_a_list_of_one_is_that_domain() -> None:
    options = {"max_calls": 3, "max_operand": 4}
    one = resolve("tiny", overrides=[f"domains=[{{name: desk, weight: 5, options: {options}}}]"])
    assert one == resolve("tiny")
    named = resolve("tiny", overrides=["domains=[{name: desk, as: mine}]"])
    assert named.domain.name == "several"  # which says what is wrong


def test_a_run_of_one_domain_keeps_its_name() -> None:
    assert (
        run_name(resolve("tiny"), "tiny")
        == "tiny-genenv-s0-"
        + run_name(resolve("tiny", overrides=["domain.name=desk"]), "tiny").rpartition("-")[2]
    )
    assert run_name(resolve("tiny", overrides=[BOTH]), "tiny") != run_name(resolve("tiny"), "tiny")


@mutation(
    "the last of both spellings wins", LOAD,
    '    one_or_the_other((text.partition("=")[0].strip() for text in given), option)\n', "",
)  # fmt: skip
@pytest.mark.parametrize("other", ["domain.name=desk", "domain={name: desk}", "domain.options={}"])
def test_both_spellings_are_refused(other: str) -> None:
    for overrides in ([BOTH, other], [other, BOTH]):
        with pytest.raises(ConfigError, match=r"--set: domain.* and domains: .* not both"):
            resolve("tiny", overrides=overrides)


def test_a_file_with_both_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("domain: {name: desk}\ndomains: [{name: trails}]\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"mine\.yaml: domain and domains: .* not both"):
        resolve(str(file))


@pytest.mark.parametrize("value", ["desk", "[]", "[desk, trails]", "{name: desk}", "[{as: a}]", ""])
def test_anything_but_a_list_of_domains_is_refused(value: str) -> None:
    with pytest.raises(
        ConfigError, match=r"domains .*give a list of domains, as in \[\{name: desk"
    ):
        resolve("tiny", overrides=[f"domains={value}"])


def test_a_field_of_the_list_says_where_it_belongs() -> None:
    with pytest.raises(ConfigError, match=r"domains\.weight: .*list domains, with their options"):
        resolve("tiny", overrides=["domains.weight=2"])
