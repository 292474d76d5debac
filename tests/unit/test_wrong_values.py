"""What a refused value should be, in words.

Invariants: every field with a pattern says in words which texts fit it, a near choice or a text
that would do is offered, and no word of a library or regular expression reaches people; this holds
for settings, for options and for the words of a command.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from prefect.utilities.schema_tools.validation import validate
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from flows.cli import app as cli
from flows.deploy.benchmark_request import BenchmarkRequest
from flows.deploy.pod_settings import PodSettings
from genenv_core.config.arms import Arm
from genenv_core.config.comparison import Comparison
from genenv_core.config.load import explain
from genenv_core.config.request import RunRequest, ShortRequest
from genenv_core.config.requests_beside import CompareRequest, EpochRequest, StageRequest
from genenv_core.config.schema import RunConfig
from genenv_core.domains.kit.served.options import ServedOptions
from genenv_core.domains.kit.several.several_domain import SeveralOptions
from genenv_core.machine.wrong_values import closest, fitting, refusal, words_of
from tests.mutations import mutation

GIVEN: tuple[type[BaseModel], ...] = (
    RunConfig, Comparison, RunRequest, ShortRequest, CompareRequest, EpochRequest, StageRequest,
    BenchmarkRequest, PodSettings, ServedOptions, SeveralOptions,
)  # fmt: skip
"""All that people fill in."""


def patterns(kind: Any, seen: set[Any]) -> Iterator[str]:
    """Yield every pattern in an annotation, and below it."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        for field in () if kind in seen else kind.model_fields.values():
            seen.add(kind)
            yield from patterns(field, seen)
        return
    metadata = kind.metadata if isinstance(kind, FieldInfo) else getattr(kind, "__metadata__", ())
    for one in metadata:
        parts = one.metadata if isinstance(one, FieldInfo) else (one,)
        yield from (part.pattern for part in parts if getattr(part, "pattern", None))
    inside = (kind.annotation,) if isinstance(kind, FieldInfo) else get_args(kind)
    for part in inside:
        if isinstance(part, type) or get_args(part):
            yield from patterns(part, seen)


def test_every_pattern_of_a_field_has_words() -> None:
    """Declare a field's pattern with `worded`."""
    seen: set[Any] = set()
    found = {pattern for kind in GIVEN for pattern in patterns(kind, seen)}
    assert len(found) >= 12
    assert [pattern for pattern in found if not words_of(pattern)] == []


def refused(value: Any, model: type[BaseModel] = RunConfig, field: str = "run_id") -> str:
    with pytest.raises(ValidationError) as caught:
        model.model_validate({field: value})
    return explain(caught.value, model)


@mutation(
    "people read a regular expression", "genenv_core/machine/wrong_values.py",
    "    _PATTERNS[pattern] = words\n", "",
)  # fmt: skip
@mutation(
    "no name is offered", "genenv_core/machine/wrong_values.py",
    "            yield from (cut, cut.lower())\n", "            yield ''\n",
)  # fmt: skip
@pytest.mark.parametrize(
    ("given", "offered"),
    [
        ("my run", "my-run"),
        ("Läufe, no. 3!", "Laufe-no.-3"),
        ("../up", "up"),
        ("x" * 101, "x" * 100),
    ],
)
def test_a_name_that_would_do_is_offered(given: str, offered: str) -> None:
    said = refused(given)
    assert said.startswith("run_id: expected up to 100 letters, digits, dots, hyphens and under")
    assert f"got {given!r} ({offered!r} would do)" in said
    assert RunConfig(run_id=offered).run_id == offered


def test_where_no_text_is_near_none_is_offered() -> None:
    assert fitting("^[0-9a-f]{40}$", "main") == ""
    assert "would do" not in refused("???")


def test_a_foreign_pattern_is_shown_where_nobody_has_words_for_it() -> None:
    item: Any = {
        "type": "string_pattern_mismatch", "loc": (), "msg": "", "input": "a b",
        "ctx": {"pattern": "^[a-z]+$"},
    }  # fmt: skip
    assert refusal(item) == (
        "expected a text that fits the regular expression ^[a-z]+$, got 'a b' ('ab' would do)"
    )


@mutation(
    "a choice is not told apart by its letters alone", "genenv_core/machine/wrong_values.py",
    "get_close_matches(name.lower(), by_letters,", "get_close_matches(name, by_letters,",
)  # fmt: skip
def test_the_nearest_choice_is_asked_for() -> None:
    assert closest("VLLM", ["transformers", "vllm"]) == " (did you mean 'vllm'?)"
    assert closest("GenEnv", ["genenv", "Static"]) == " (did you mean 'genenv'?)"
    assert closest("statik", ["genenv", "Static"]) == " (did you mean 'Static'?)"
    assert closest("genvn", Arm) == " (did you mean 'genenv'?)"
    assert closest("nothing like it", ["genenv"]) == ""


LIBRARY = (
    "input should", "unable to parse", "Value error", "valid dictionary", "Invalid value",
    "string should", "extra inputs", "field required", "^[",
)  # fmt: skip
"""Words of pydantic and click."""

VALUES: dict[str, Any] = {
    "text": "abc", "number": -1.5, "large": 10**30, "list": [1], "mapping": {"x": 1}, "none": None,
    "truth": True, "empty": "",
}  # fmt: skip


def paths(model: type[BaseModel], *above: str) -> Iterator[tuple[str, ...]]:
    for name, field in model.model_fields.items():
        kind = field.annotation
        yield (*above, field.alias or name)
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from paths(kind, *above, field.alias or name)


@mutation(
    "pydantic's words for a whole number", "genenv_core/machine/wrong_values.py",
    '    "int_parsing": "a whole number, such as 4",\n', "",
)  # fmt: skip
@mutation(
    "pydantic's words for a section", "genenv_core/machine/wrong_values.py",
    '    "model_type": "a section with fields",\n', "",
)  # fmt: skip
@pytest.mark.parametrize("kind", VALUES)
def test_no_setting_is_refused_in_the_words_of_a_library(kind: str) -> None:
    """Every field of a configuration, with a wrong value of every kind."""
    told: list[str] = []
    for path in paths(RunConfig):
        value = VALUES[kind]
        for name in reversed(path):
            value = {name: value}
        try:
            RunConfig.model_validate(value)
        except ValidationError as error:
            told.append(explain(error))
    assert told
    # Truths are the one thing that `Section` refuses in its own words.
    own = "input should be a number, not true or false"
    assert [one for one in told if any(word in one.replace(own, "") for word in LIBRARY)] == []


COMMANDS = {
    "run --seed abc": "run: --seed: expected a whole number, such as 4, got 'abc' (`genenv run -h`",
    "export x --pool d_trian": "export: --pool: expected d_train, d_env, tasks, got 'd_trian' (did "
    "you mean 'd_train'?)",
    "up --port 99999": "up: --port: expected 65535 or less, got '99999'",
    "eval bfcl --samples 0": "eval: --samples: expected 1 or more, got '0'",
    "sql x --timeout soon": "sql: --timeout: expected a number, such as 0.5, got 'soon'",
    "rn": "genenv: there is no command 'rn' (did you mean 'run'?) (`genenv -h`",
    "domain chek": "domain: there is no command 'chek' (did you mean 'check'?)",
    "run --epohcs 3": "run: there is no option --epohcs (did you mean --epochs?)",
    "run --seed": "--seed needs a value behind it",
    "run --json=3": "--json takes no value: leave it out",
    "run tiny quick": "run: 'quick' is more than it takes: leave it out, or quote a text with",
    "bundle": "bundle: RUN is missing: give it (`genenv bundle -h` shows how)",
}


@mutation(
    "Typer says itself what is wrong", "flows/cli/app.py",
    "        if line := usage_line(error):\n", "        if line := None:\n",
)  # fmt: skip
@mutation(
    "a refused choice in pydantic's words", "flows/cli/usage.py",
    'CHOICE = "value_error"', 'CHOICE = ""',
)  # fmt: skip
@pytest.mark.parametrize("words", COMMANDS)
def test_wrong_words_of_a_command_are_one_line(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["genenv", *words.split()])
    monkeypatch.setattr(os, "_exit", sys.exit)  # plainly ends a process that has other threads
    with pytest.raises(SystemExit) as ended:
        cli.plainly(lambda: cli.app(standalone_mode=False, prog_name="genenv"))
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("genenv: ") and COMMANDS[words] in line
    assert not any(word in line for word in LIBRARY)


@pytest.mark.parametrize("words", ["", "domain"])
def test_help_is_no_error_of_words(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["genenv", *words.split()])
    monkeypatch.setattr(os, "_exit", sys.exit)  # plainly ends a process that has other threads
    with pytest.raises(SystemExit):
        cli.plainly(lambda: cli.app(standalone_mode=False, prog_name="genenv"))
    said = capsys.readouterr()
    assert "Usage: genenv" in said.out + said.err


@mutation(
    "the API of Prefect shows people a regular expression",
    "genenv_core/config/sections/section.py",
    "            refuse_in_words(field)\n", "            pass\n",
)  # fmt: skip
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"run_id": "my run"},
            "up to 100 letters, digits, dots, hyphens and underscores, a letter",
        ),
        ({"root": "here"}, "an absolute directory, as in /data/genenv, or s3://BUCKET/PREFIX"),
        ({"placement": {"rollout": "a b"}}, "up to 63 letters, digits, dots, hyphens and under"),
        ({"models": {"agent_revision": "main"}}, "the whole id of a commit: 40 digits and letters"),
        ({"run_id": "my-run", "root": "/here", "placement": {"rollout": "gpu"}}, None),
    ],
)
def test_a_form_is_refused_in_words(given: dict[str, Any], said: str | None) -> None:
    made = json.loads(json.dumps(RunRequest.model_json_schema()).replace("$defs", "definitions"))
    errors = [error.message for error in validate(given, made)]
    right = [f"'{said}" in error and "was expected" in error for error in errors]
    assert right == [True] * bool(said)
