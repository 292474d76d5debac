"""Where a run is asked to end.

Invariants: an end covers what comes before it in the order of a run, and nothing after; a bad text
is refused with the text, what is wrong and what there is; the configuration does not know of it.
"""

from __future__ import annotations

import pytest

from genenv_core.config.load import dump, resolve
from genenv_core.config.until import Until, read_until, start_stages
from genenv_core.errors import ConfigError
from tests.mutations import mutation

CONFIG = resolve("tiny", fields={"epochs": 3})


@pytest.mark.parametrize(
    ("text", "stage", "epoch"),
    [
        ("rollout@2", "rollout", 2),
        ("rollout", "rollout", 1),
        ("bootstrap", "bootstrap", 0),
        ("evaluate", "evaluate", 1),
        ("evaluate@0", "evaluate", 0),
        (" publish@3 ", "publish", 3),
    ],
)
def test_an_end_is_a_stage_of_an_epoch(text: str, stage: str, epoch: int) -> None:
    assert read_until(text, CONFIG) == Until(stage=stage, epoch=epoch)
    assert "until" not in dump(CONFIG)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rolout@1", "'rolout' is no stage of .*did you mean 'rollout'"),
        ("benchmark", "'benchmark' is no stage"),
        ("rollout@two", "'two' is no number"),
        ("rollout@-1", "'-1' is no number"),
        ("rollout@", "'' is no number"),
        ("rollout@4", "the run ends with epoch 3"),
        ("bootstrap@1", "epoch 1 has no bootstrap, only generate_tasks"),
        ("rollout@0", "epoch 0 has no rollout, only bootstrap, evaluate, publish"),
    ],
)
def test_a_bad_end_is_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_until(text, CONFIG)


@mutation(
    "no run ends at its warm start", "genenv_core/config/until.py",
    "[WARM] if config.warm_started else []", "[]",
)  # fmt: skip
def test_epoch_0_has_a_warm_start_where_a_given_model_gets_one() -> None:
    given = ["models.env=./e", "warm_start.steps=6"]
    start = ["bootstrap", "warm_start", "evaluate", "publish"]
    assert start_stages(resolve("tiny", overrides=given)) == start
    assert read_until("warm_start", resolve("tiny", overrides=given)).epoch == 0
    assert "warm_start" not in start_stages(resolve("tiny", overrides=["models.env=./e"]))
    with pytest.raises(ConfigError, match="'warm_start' is no stage"):
        read_until("warm_start", CONFIG)


@mutation(
    "a run goes on after its end", "genenv_core/config/until.py",
    "<= (self.epoch, order.index(self.stage))", "<= (self.epoch, len(order))",
)  # fmt: skip
def test_what_an_end_covers() -> None:
    end = Until(stage="grpo_update", epoch=2)
    for stage, epoch in (("publish", 1), ("bootstrap", 0), ("pool", 2), ("grpo_update", 2)):
        assert end.covers(stage, epoch)
    for stage, epoch in (("rwr_update", 2), ("evaluate", 2), ("generate_tasks", 3)):
        assert not end.covers(stage, epoch)
