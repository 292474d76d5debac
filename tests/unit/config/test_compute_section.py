"""The section compute: its field `engine` says which fields it has.

Invariants: a field of the other engine is refused with the value of `engine` that has it; a record
of a genenv whose section had all fields is read as the run that it was, under the same name and
with equal keys, whatever version of vLLM is the default by then.
"""

from __future__ import annotations

from typing import Any, ClassVar, get_args

import pytest
from pydantic import BaseModel

from genenv_core.config.load import as_recorded, dump, resolve, run_name
from genenv_core.config.moved import as_now
from genenv_core.config.sections.compute import EngineKind, VllmConfig
from genenv_core.config.sections.unions.alternatives import Alternatives
from genenv_core.config.sections.unions.compute import ENGINES, TransformersCompute, VllmCompute
from genenv_core.errors import ConfigError
from tasks.stage.key import config_fields
from tests.mutations import mutation

ALTERNATIVES = "genenv_core/config/sections/unions/alternatives.py"
COMPUTE = "genenv_core/config/sections/unions/compute.py"
MOVED = "genenv_core/config/moved.py"

VLLM = "compute.engine=vllm"
UNUSED = {
    "version": "0.31.0", "dtype": "auto", "max_model_len": None, "tensor_parallel": 1,
    "arguments": [],
}  # fmt: skip
"""Values of section compute.vllm in records and keys of runs that sample with transformers."""


def test_there_is_a_class_of_each_engine() -> None:
    assert set(ENGINES.classes) == set(get_args(EngineKind))


@mutation(
    "a field of another engine is dropped in silence", ALTERNATIVES,
    "if _equal(given.pop(name), default):", "if given.pop(name) or self.field:",
)  # fmt: skip
@mutation(
    "a value that is no engine is the second one", ALTERNATIVES,
    "if name == value.get(self.field)), first)", "if name == value.get(self.field)), 'vllm')",
)  # fmt: skip
@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (
            [VLLM, "compute.device=cuda"],
            "compute.device does nothing without compute.engine transformers: remove it, or set "
            "compute.engine to transformers",
        ),
        (
            ["compute.vllm.dtype=float32"],
            "compute.vllm does nothing without compute.engine vllm: remove it, or set "
            "compute.engine to vllm",
        ),
        (["compute.vllm=3"], "compute.vllm does nothing without compute.engine vllm: remove it"),
        (["compute.engine=vlm"], "engine: expected 'transformers' or 'vllm', got 'vlm' (did you"),
        (["compute.engine=[vllm]"], "engine: expected 'transformers' or 'vllm', got ['vllm']"),
        (["compute=3"], "compute should be a section with engine, got 3"),
        ([VLLM, "compute.vllm.dtyp=auto"], "dtyp is no field (did you mean 'compute.vllm.dtype'?)"),
    ],
)
def test_what_the_engine_has_no_use_for_is_refused(overrides: list[str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve("tiny", overrides=overrides)
    assert words in str(caught.value)


@mutation(
    "the numbers of an engine that a run does not use are refused as others", ALTERNATIVES,
    "return type(default).model_validate(value) == default", "return False",
)  # fmt: skip
def test_each_engine_has_its_own_fields() -> None:
    plain = resolve("tiny", overrides=["compute.vllm.version=0.31.0", "compute.engine=null"])
    assert plain.compute == TransformersCompute()
    assert dump(plain)["compute"] == {"engine": "transformers", "threads": 1, "device": "cpu"}
    served = resolve("tiny", overrides=[VLLM, "compute.device=cpu", "compute.vllm.dtype=float32"])
    assert served.compute == VllmCompute(vllm=VllmConfig(dtype="float32"))
    assert {*dump(served)["compute"]} == {"engine", "threads", "vllm"}


@mutation(
    "a later default of vLLM changes keys of runs that do not use it", COMPUTE,
    'vllm: ClassVar[VllmConfig] = VllmConfig(version="0.31.0")',
    "vllm: ClassVar[VllmConfig] = VllmConfig(version='0.32.0')",
)  # fmt: skip
@mutation(
    "the section of an older run has no fields of another engine in its name", MOVED,
    '"device": VllmCompute.device,', "",
)  # fmt: skip
@pytest.mark.parametrize(
    ("given", "fields", "name"),
    [
        ({}, {}, "tiny-genenv-s0-33ac56"),
        ({"device": "cuda"}, {}, "tiny-genenv-s0-591945"),
        ({"engine": "vllm"}, {"dtype": "bfloat16"}, "tiny-genenv-s0-331dff"),
    ],
)
def test_an_older_record_is_the_run_that_it_was(
    given: dict[str, Any], fields: dict[str, Any], name: str
) -> None:
    """The names are those that genenv gave while one class had all fields."""
    section = {"engine": "transformers", "device": "cpu", "threads": 1, **given}
    old = {**dump(resolve("tiny")), "compute": {**section, "vllm": {**UNUSED, **fields}}}
    config = as_recorded(old, "r")
    assert dump(config) == as_now(old) == as_now(dump(config))
    assert run_name(config, "tiny") == name
    leaves = {f"compute.vllm.{field}": one for field, one in {**UNUSED, **fields}.items()}
    found = config_fields(config, ("compute.device", "compute.vllm"))
    assert found == {"compute.device": section["device"], **leaves, "compute.vllm.arguments": ()}


class Plain(BaseModel):
    size: ClassVar[int] = 1


class Sized(BaseModel):
    size: int = 2


@mutation(
    "a record is compared with a later default", ALTERNATIVES,
    "default = getattr(own, name, field", "default = getattr(None, name, field",
)  # fmt: skip
def test_a_record_may_hold_what_a_class_has_in_place_of_a_field() -> None:
    kinds = Alternatives("box", "boxes", {"plain": Plain, "sized": Sized}, field="kind")
    assert kinds.checked({"size": 1}) == {}
    with pytest.raises(ValueError, match=r"box\.size does nothing without box\.kind sized: remove"):
        kinds.checked({"size": 2})
