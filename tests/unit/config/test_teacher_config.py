"""The section teacher, and the set that an arm with one set plays.

Invariants: an arm has one teacher at most and says what is missing; what would do nothing is
refused; a key is no value of the configuration, and no refusal repeats one; a set belongs to the
arms that have one, and can be as large as the bound of its generations.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from genenv_core.config.comparison import Comparison, planned_runs
from genenv_core.config.load import dump, resolve
from genenv_core.config.schema import RunConfig
from genenv_core.config.sections.unions.teacher import ModelTeacher
from genenv_core.config.until import set_of
from genenv_core.epoch.attempting.windows import Window, window_of
from genenv_core.errors import ConfigError
from tests.mutations import mutation

ALTERNATIVES = "genenv_core/config/sections/unions/alternatives.py"
WINDOWS = "genenv_core/epoch/attempting/windows.py"

OFFLINE = "arm=offline"
URL = "teacher.url=http://host:8000/v1"
NAMED = "teacher.model_name=big"
MODEL = "teacher.model=./big"
FILE = "teacher.file=x"
COMMIT = "teacher.revision=" + "a" * 40


def tiny(*overrides: str) -> RunConfig:
    return resolve("tiny", overrides=overrides)


@mutation(
    "a second teacher is dropped in silence", ALTERNATIVES,
    "if len(chosen) > 1:", "if False:",
)  # fmt: skip
@mutation(
    "a field of another teacher is dropped in silence", ALTERNATIVES,
    'instead = f" in place of {self.name}.{chosen}" if chosen else ""', "continue",
)  # fmt: skip
@pytest.mark.parametrize(
    ("overrides", "texts"),
    [
        ([OFFLINE], ["has no teacher: set teacher.file, teacher.model or teacher.url"]),
        ([OFFLINE, MODEL, FILE], ["model and teacher.file are two teachers", "keep one"]),
        ([OFFLINE, MODEL, URL, NAMED], ["teacher.model and teacher.url are two", "keep one"]),
        ([OFFLINE, MODEL, URL, FILE], ["teacher.model, teacher.url and teacher.file are three"]),
        ([OFFLINE, URL], ["teacher.url needs teacher.model_name: set it"]),
        ([OFFLINE, NAMED], ["teacher.model_name does nothing without teacher.url: remove it"]),
        (
            [OFFLINE, MODEL, "teacher.request={top_k: 1}"],
            ["teacher.request does nothing", "set teacher.url in place of teacher.model"],
        ),
        (
            [OFFLINE, URL, NAMED, COMMIT],
            ["teacher.revision does nothing without teacher.model: remove it"],
        ),
        ([OFFLINE, MODEL, COMMIT], ["teacher.revision does nothing for './big'"]),
        ([OFFLINE, "teacher.model=org/big"], ["'org/big' is no directory", "set teacher.revision"]),
        ([OFFLINE, "teacher.model=bootstrap"], ["names no checkpoint", "arm static"]),
        (
            [OFFLINE, MODEL, "teacher.chat_template_kwargs={tools: null}"],
            ["teacher.chat_template_kwargs 'tools'", "set by genenv itself"],
        ),
        ([OFFLINE, URL, NAMED, "teacher.request={stream: true}"], ["'stream' is set by genenv"]),
        (
            [OFFLINE, MODEL, "teacher.modle=1"],
            ["teacher.modle is no field (did you mean 'teacher.model'?)"],
        ),
        ([OFFLINE, "teacher=3"], ["teacher should be a section with model or url or file, got 3"]),
        ([FILE], ["teacher.file does nothing for arm genenv", "set arm to offline"]),
        ([MODEL], ["teacher.model does nothing for arm genenv", "set arm to offline"]),
        ([URL, NAMED], ["teacher.url does nothing for arm genenv", "set arm to offline"]),
        (["data.set_tasks=4"], ["data.set_tasks does nothing for arm genenv", "arm static"]),
        (
            [OFFLINE, FILE, "data.set_tasks=4"],
            ["data.set_tasks does nothing", "teacher.file is a set of its own"],
        ),
        (
            ["arm=static", "data.set_tasks=25"],
            ["generation.max_generations 24", "data.set_tasks 25", "raise the first"],
        ),
        (
            ["arm=static", "execution.teacher.concurrency=2"],
            ["execution.teacher does nothing", "teacher.url"],
        ),
        (
            [OFFLINE, URL, NAMED, "compute.engine=vllm", "generation.structured=true"],
            ["generation.structured does nothing for teacher.url"],
        ),
    ],
)
def test_what_cannot_be_is_refused_with_the_remedy(overrides: list[str], texts: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        tiny(*overrides)
    for text in texts:
        assert text in str(caught.value)


def test_null_takes_a_teacher_back_and_another_one_can_follow() -> None:
    config = tiny(OFFLINE, URL, NAMED, "teacher.url=null", "teacher.model_name=null", MODEL)
    assert config.teacher == ModelTeacher(model="./big")
    assert tiny(MODEL, "teacher.model=null") == tiny()


@mutation(
    "a pasted key is repeated in the refusal", "genenv_core/machine/named_secrets.py",
    '"key_env is the name of an', 'f"key_env {name} is the name of an',
)  # fmt: skip
@pytest.mark.parametrize(
    "setting",
    [
        "execution.teacher.key_env=sk-s3cret",
        "execution.teacher.key_env=s3cret",
        "teacher.url=https://me:s3cret@host/v1",
        "teacher.url=https://host/v1?key=s3cret",
        "teacher.request={api_key: s3cret}",
        "teacher.request={Authorization: s3cret}",
    ],
)
def test_a_key_is_refused_and_not_repeated(setting: str) -> None:
    with pytest.raises(ConfigError, match=r"execution\.teacher\.key_env") as caught:
        tiny(OFFLINE, URL, NAMED, setting)
    assert "s3cret" not in str(caught.value)


@mutation(
    "every epoch attempts the first window of a set", WINDOWS,
    "Window((epoch - 1) * count, count)", "Window(0, count)",
)  # fmt: skip
def test_one_set_is_made_for_epoch_1_and_windows_follow_each_other() -> None:
    static = tiny("arm=static", "data.set_tasks=20")
    taught = tiny(OFFLINE, URL, NAMED, "data.set_tasks=20")
    for config in (static, taught):
        assert [set_of(config, epoch) for epoch in (1, 2, 3)] == [1, 1, 1]
        assert [window_of(config, epoch) for epoch in (1, 2)] == [Window(0, 8), Window(8, 8)]
    assert window_of(tiny("arm=static"), 2) is None and set_of(tiny("arm=static"), 2) == 1
    assert set_of(tiny(OFFLINE, FILE), 2) == 2 and set_of(tiny(), 2) == 2


@mutation(
    "a window does not go on with the first task behind the last one", WINDOWS,
    "(self.first + offset) % size", "min(self.first + offset, size - 1)",
)  # fmt: skip
@mutation(
    "a window takes a task of a small set twice", WINDOWS,
    "range(min(self.count, size))", "range(self.count if size else 0)",
)  # fmt: skip
def test_a_window_takes_no_task_twice_and_goes_on_behind_the_last() -> None:
    assert Window(0, 3).places(8) == [0, 1, 2]
    assert Window(6, 3).places(8) == [6, 7, 0]
    assert Window(9, 3).places(8) == [1, 2, 3]
    assert sorted(Window(12, 8).places(5)) == [0, 1, 2, 3, 4]
    assert Window(3, 2).places(0) == []


def test_a_comparison_has_teachers_of_two_sizes() -> None:
    teacher = {"url": "http://host/v1", "model_name": "big"}
    arms = {
        "genenv": None,
        "static": {"data": {"set_tasks": 24}},
        "teacher2": {"arm": "offline", "teacher": teacher, "data": {"set_tasks": 12}},
        "teacher4": {"arm": "offline", "teacher": teacher, "data": {"set_tasks": 24}},
    }
    comparison = Comparison.model_validate({"base": "tiny", "arms": arms, "seeds": [0]})
    configs = {run.arm: run.config for run in planned_runs(comparison)}
    assert {name: config.data.set_tasks for name, config in configs.items()} == {
        "genenv": 0, "static": 24, "teacher2": 12, "teacher4": 24,
    }  # fmt: skip


@mutation(
    "a directory of this name is not seen", "genenv_core/config/sections/models.py",
    "        if is_hub_id(model) and os.path.isdir(model)\n", "        if False\n",
)  # fmt: skip
@pytest.mark.parametrize("field", ["models.agent", "models.env", "teacher.model"])
@pytest.mark.parametrize("name", ["mine", "notemplate/m"])
def test_a_directory_is_that_directory_however_it_is_spelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).mkdir(parents=True)
    offline = [OFFLINE] if field == "teacher.model" else []
    bare = resolve("tiny", overrides=[*offline, f"{field}={name}"])
    assert bare == resolve("tiny", overrides=[*offline, f"{field}=./{name}"])
    assert bare == RunConfig.model_validate(dump(bare))
    commit = "teacher.revision" if offline else f"{field}_revision"
    hub = resolve("tiny", overrides=[*offline, f"{field}={name}", f"{commit}={'a' * 40}"])
    section, _, last = field.partition(".")
    assert getattr(getattr(hub, section), last) == name


@pytest.mark.parametrize("field", ["models.agent", "teacher.model"])
def test_a_name_that_is_neither_has_both_readings(field: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve("tiny", overrides=[f"{field}=models/other"])
    said = str(caught.value)
    assert f"{field} 'models/other' is no directory (looked for {Path.cwd() / 'models/ot'}" in said
    assert "as the id of a hub repository it needs a commit: name the directory, or set " in said
