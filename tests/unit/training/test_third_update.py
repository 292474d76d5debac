"""A third algorithm of genenv costs what CONTRIBUTING says: its module, its trainer, its place.

Invariants: with these three `agent_update.algorithm` takes its name; nobody is asked whether its
code may be loaded; its code is in the key of its stage; its trainer computes the update; an
unknown name is answered with it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.preparing import _check_algorithm
from flows.replaying import REACHES
from genenv_core.config.load import resolve
from genenv_core.config.schema import RunConfig
from genenv_core.errors import ConfigError
from genenv_core.training.updates import table
from genenv_core.training.updates.algorithm import get_algorithm
from tasks.grpo_update import STAGE
from tasks.stage.key import chosen_modules
from tests.mutations import mutation
from tests.unit.training.builders_training import grpo_of, grpo_rows, load, tiny_checkpoint
from tests.unit.training.third_update import UPDATE, ThirdRequest


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    """Return a run by the third algorithm, which has its place in the table."""
    monkeypatch.setattr(table, "OF_AGENT", (*table.OF_AGENT, UPDATE))
    monkeypatch.setitem(table.UPDATES, "third", UPDATE)
    return resolve("tiny", overrides=["agent_update.algorithm=third"])


@mutation(
    "only genenv's first algorithm is taken for its own", "flows/preparing.py",
    "if not (is_foreign(update) and ARMS", "if not (update.own and ARMS",
)  # fmt: skip
def test_a_run_takes_its_name(config: RunConfig) -> None:
    _check_algorithm(config)
    assert {UPDATE.trainer, UPDATE.rule} <= {*chosen_modules(STAGE.as_asked(config), config, None)}


@mutation(
    "a replay asks for genenv's own algorithm", "flows/replaying.py",
    "is_foreign(config.agent_update)", "config.agent_update.own",
)  # fmt: skip
def test_a_replay_does_not_ask_for_it(config: RunConfig) -> None:
    assert not REACHES["agent_update.algorithm"](config)


@mutation(
    "an unknown algorithm is answered with GRPO alone",
    "genenv_core/training/updates/algorithm.py", "also=_of_genenv(),", 'also=("grpo",),',
)  # fmt: skip
def test_an_unknown_name_is_answered_with_it(config: RunConfig) -> None:
    with pytest.raises(ConfigError, match=r"known: grpo, .*third; .*did you mean 'third'"):
        get_algorithm("thirt", {})


@pytest.mark.slow
def test_its_trainer_computes_the_update(config: RunConfig, tmp_path: Path) -> None:
    policy = tiny_checkpoint(tmp_path / "agent", seed=1)
    rows = grpo_rows(2, 4, sampler=load(policy))
    given = grpo_of(tmp_path, "made", rows, policy, groups_per_step=1, passes=1)
    result = table.run_update(ThirdRequest(**dict(given)))
    assert result.steps == 2 and {*result.metrics} >= {"loss", "ratio_mean", "grad_norm"}
    assert "clip_fraction" not in result.metrics
