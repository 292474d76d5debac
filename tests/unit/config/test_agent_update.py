"""The algorithm of the agent's update in the configuration, and what of it is in the keys.

Invariants: its code and its options are in the key of its stage and in no other; a comment is not;
with GRPO no key has the section; GRPO's own settings, and a pay by GRPO's advantages, are refused
beside another algorithm, and options without one; a name that leads nowhere says what to do.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import genenv_core.storage.records.code as code
from genenv_core.config.load import resolve
from genenv_core.errors import ConfigError
from genenv_core.storage.records.keys import stage_key
from genenv_core.training.updates.algorithm import get_algorithm
from tasks.stage.key import parts_of
from tests.mutations import mutation
from tests.unit.builders_stage import NO_INPUTS
from tests.unit.config.test_stage_config import STAGES, for_every_stage

SCHEMA = "genenv_core/config/schema.py"
KEY = "tasks/stage/key.py"
EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "reinforce.py"
OWN = "agent_update.algorithm=mine_for_keys.py:Reinforce"


def _forget() -> None:
    for cached in (code.code_version, code._read, code._source):
        cached.cache_clear()


@pytest.fixture(name="mine")
def a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return an algorithm's file in the current folder; forget its module afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    path = tmp_path / "mine_for_keys.py"
    path.write_text(EXAMPLE.read_text(encoding="utf-8"), encoding="utf-8")
    yield path
    sys.modules.pop(path.stem, None)
    _forget()


def keys(*overrides: str) -> dict[str, str]:
    _forget()
    config = resolve("tiny", overrides=[OWN, *overrides])
    return {
        name: stage_key(parts_of(stage, for_every_stage(config), 1, NO_INPUTS))
        for name, stage in STAGES.items()
    }


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    return {name for name in before if before[name] != after[name]}


@mutation(
    "an algorithm's code is in no key", KEY,
    "chosen += [kind.trainer, kind.rule, *load(kind.rule).modules(config.agent_update)]", "pass",
)  # fmt: skip
@mutation(
    "an algorithm's options are in no key", "tasks/grpo_update.py",
    '("agent_update",)', '("agent_update.algorithm",)',
)  # fmt: skip
def test_its_code_and_options_are_in_the_key_of_its_stage_alone(mine: Path) -> None:
    before, text = keys(), mine.read_text(encoding="utf-8")
    mine.write_text(text.replace("return -batch.adv", "return -2 * batch.adv"), encoding="utf-8")
    assert changed(before, keys()) == {"grpo_update"}
    mine.write_text(f"# a remark\n{text}", encoding="utf-8")
    assert changed(before, keys()) == set()
    assert changed(before, keys("agent_update.options={baseline: others}")) == {"grpo_update"}


def test_with_grpo_no_key_has_the_section() -> None:
    config = resolve("tiny")
    for stage in STAGES.values():
        parts = parts_of(stage, for_every_stage(config), 1, NO_INPUTS)
        assert not any(name.startswith("agent_update") for name in parts["config"])


REFUSED = [
    ([OWN, "grpo.clip_low=0.1", "grpo.delta=3"], r"grpo.clip_low is of GRPO's loss and does "
     r"nothing with agent_update.algorithm mine_for_keys.py:Reinforce: remove it, "
     r"or take it back by --set grpo.clip_low=0.2 --set grpo.delta=null$"),
    ([OWN, "grpo.attribution=true"], "grpo.attribution is of GRPO's loss"),
    ([OWN, "rwr.pay=signal"], "rwr.pay signal pays pi_env for the advantages of GRPO"),
    (["agent_update.options={a: 1}"], "agent_update.options does nothing for grpo"),
]  # fmt: skip


@mutation(
    "what only GRPO has is taken beside another algorithm", SCHEMA,
    "if others := self.grpo.of_its_loss:", "if others := {}:",
)  # fmt: skip
@mutation(
    "pi_env is paid for advantages that nobody has", SCHEMA,
    'if self.rwr.pay == "signal":', "if False:",
)  # fmt: skip
@mutation(
    "options of no algorithm are taken", "genenv_core/config/sections/updates.py",
    "if self.options and not self.own:", "if False:",
)  # fmt: skip
@pytest.mark.parametrize(("overrides", "message"), REFUSED)
def test_what_would_do_nothing_is_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve("tiny", overrides=overrides)


NOWHERE = [
    ("ppo", r"'ppo' is unknown; known: grpo; a class of your own is named by its place: my_a"),
    ("grp", r"did you mean 'grpo'\? a package offers others by an entry point in genenv.updates"),
    ("nothing.py:Mine", "there is no file"),
    ("mine_for_keys.py:Missing", "has no 'Missing'; its own classes are"),
    ("pathlib:Path", "the plug-in pathlib:Path failed with TypeError"),
]


@pytest.mark.parametrize(("name", "message"), NOWHERE)
def test_a_name_that_leads_nowhere_says_what_to_do(mine: Path, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        get_algorithm(name, {})


@mutation(
    "refused options are pydantic's text", "genenv_core/machine/plugin_failures.py",
    "    except ValidationError as error:\n", "    except ZeroDivisionError as error:\n",
)  # fmt: skip
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"baseline": "moon"}, "agent_update.options.baseline: expected 'group' or 'others', got "
         "'moon' (options of mine_for_keys.py:Reinforce: baseline)"),
        ({"bas": 1, "bos": 2}, "agent_update.options.bas is no option; agent_update.options.bos is "
         "no option (options of mine_for_keys.py:Reinforce: baseline)"),
    ],
)  # fmt: skip
def test_options_are_refused_by_the_algorithm(
    mine: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        get_algorithm("mine_for_keys.py:Reinforce", options)
    assert str(refused.value) == message
