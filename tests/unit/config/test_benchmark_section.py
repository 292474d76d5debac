"""The section benchmark: a run measures a checkpoint, a chat endpoint, or nothing.

Invariants: what does nothing for the model that is given is refused with what it is of; a record of
a genenv whose section had all fields is read as the run that it was, under the same name; a run
that measures nothing has no field of a measurement.
"""

from __future__ import annotations

from typing import Any

import pytest

from genenv_core.config.load import as_recorded, dump, resolve, run_name
from genenv_core.config.moved import WHOLE, as_now
from genenv_core.config.schema import RunConfig
from genenv_core.config.sections.unions.benchmark import MeasuredCheckpoint, NoMeasurement
from genenv_core.errors import ConfigError
from tests.mutations import mutation

ALTERNATIVES = "genenv_core/config/sections/unions/alternatives.py"
MOVED = "genenv_core/config/moved.py"
SCHEMA = "genenv_core/config/schema.py"

BASE = "arm=base"
MODEL = "benchmark.model=m"
ENDPOINT = ["benchmark.url=http://h/v1", "benchmark.model_name=n"]

SHARED = {
    "temperature": 0.0, "items": None, "categories": [], "draw": None, "precision": None,
    "certify_base": None, "certify_heldout": None,
}  # fmt: skip
"""Fields of every measurement, with their defaults, as they are recorded."""


def tiny(*overrides: str) -> RunConfig:
    return resolve("tiny", overrides=overrides)


@mutation(
    "a field of either model is said to be of the first one", ALTERNATIVES,
    "for one in having)", "for one in [*having][:1])",
)  # fmt: skip
@mutation(
    "a model behind a URL has its tools played by a pi_env", SCHEMA,
    'if given.given and (self.tools.execution == "simulated") != simulated:', "if False:",
)  # fmt: skip
@mutation(
    "how an endpoint is asked does nothing beside a checkpoint", SCHEMA,
    "if asks and not isinstance(given, MeasuredEndpoint):", "if False:",
)  # fmt: skip
@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["benchmark.items=3"], "items does nothing without benchmark.model or benchmark.url: rem"),
        ([BASE, MODEL, *ENDPOINT], "benchmark.model and benchmark.url are two models: keep one of"),
        ([BASE, ENDPOINT[0]], "benchmark.url needs benchmark.model_name: set it"),
        ([ENDPOINT[1]], "benchmark.model_name does nothing without benchmark.url: remove it, or"),
        ([BASE, MODEL, "benchmark.request={a: 1}"], "set benchmark.url in place of benchmark."),
        (
            [BASE, *ENDPOINT, "benchmark.simulator=s"],
            "benchmark.simulator does nothing without benchmark.model: remove it, or set",
        ),
        ([BASE, *ENDPOINT, "tools.execution=simulated"], "benchmark.simulator plays the tools"),
        ([BASE, MODEL, "benchmark.simulator=s"], "benchmark.simulator plays the tools with tools."),
        ([BASE, MODEL, "execution.benchmark.retries=1"], "execution.benchmark does nothing"),
        ([BASE, "benchmark.url=ftp://h"], "benchmark.url needs benchmark.model_name"),
        ([BASE, "benchmark.url=ftp://h", ENDPOINT[1]], "benchmark.url is no address like https://"),
        (["benchmark=3"], "benchmark should be a section with model or url, got 3"),
    ],
)  # fmt: skip
def test_what_the_model_has_no_use_for_is_refused(overrides: list[str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        tiny(*overrides)
    assert words in str(caught.value)


def test_null_takes_a_model_back_and_another_one_can_follow() -> None:
    config = tiny(BASE, *ENDPOINT, *(f"benchmark.{name}=null" for name in ("url", "model_name")))
    assert config.benchmark == NoMeasurement() and dump(config)["benchmark"] == {}
    assert tiny(BASE, MODEL).measured == MeasuredCheckpoint(model="m")
    with pytest.raises(ConfigError, match=r"set benchmark\.model or benchmark\.url"):
        _ = config.measured


@mutation(
    "a measurement of before has another name", MOVED,
    "for name, one in WHOLE.items() if name in named", 'for name, one in [("teacher", ONE_CLASS)]',
)  # fmt: skip
@mutation(
    "an older list that is empty is a field of a measurement", ALTERNATIVES,
    "[*default] if isinstance(default, tuple) else default", "default",
)  # fmt: skip
@mutation(
    "an older record has other settings than the same run of today", MOVED,
    "moved[section] = union.dump_python(known, mode=\"json\")", "union.dump_python(known)",
)  # fmt: skip
@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({}, "tiny-genenv-s0-33ac56"),
        ({"model": "m"}, "tiny-desk-s0-d12573"),
        (
            {"url": "http://h/v1", "model_name": "n", "attempt_seconds": 4.0, "request": {"a": 1}},
            "tiny-desk-s0-0aaff9",
        ),
    ],
)
def test_an_older_record_is_the_measurement_that_it_was(given: dict[str, Any], name: str) -> None:
    """The names are those that genenv gave while one class had all fields."""
    now = dump(resolve("tiny", fields={"arm": "base" if given else "genenv", "benchmark": given}))
    old = {**now, "benchmark": {**SHARED, **WHOLE["benchmark"], **given}}
    config = as_recorded(old, "r")
    assert dump(config) == now == as_now(old) == as_now(now)
    assert run_name(config, "tiny") == name
