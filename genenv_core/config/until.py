"""Where a command ends a run before its last epoch: `STAGE[@EPOCH]`.

It belongs to one command, not to the run: no configuration and no key holds it, and the next
command without it goes on.
"""

from __future__ import annotations

import re

from genenv_core.config.arms import ARMS
from genenv_core.config.schema import RunConfig
from genenv_core.config.sections.unions.teacher import writes
from genenv_core.config.stages import DRAWN, EPOCH_STAGES, STAGES, START_STAGES, WARM
from genenv_core.errors import ConfigError
from genenv_core.machine.wrong_values import closest
from genenv_core.record import Record


class Until(Record):
    """The last stage that a command carries out, in the order of a run."""

    stage: str
    epoch: int

    def covers(self, stage: str, epoch: int) -> bool:
        """Return whether a stage of an epoch comes before the end, or is the last one."""
        order = list(STAGES)
        return (epoch, order.index(stage)) <= (self.epoch, order.index(self.stage))

    def __str__(self) -> str:
        """Return stage and epoch in words."""
        return f"{self.stage} of epoch {self.epoch}"


def set_of(config: RunConfig, epoch: int) -> int:
    """Return the epoch that wrote an epoch's tasks: 1 where one set serves all epochs."""
    return 1 if ARMS[config.arm].one_set(writes(config.teacher)) else epoch


def start_stages(config: RunConfig) -> list[str]:
    """Return the stages of epoch 0 in their order."""
    wanted = {*START_STAGES, *([WARM] if config.warm_started else [])}
    return [name for name in STAGES if name in wanted]


def stages_of(config: RunConfig, epochs: int | None = None) -> list[tuple[int, str]]:
    """Return (epoch, stage) of a co-evolution in the order of its run, up to `epochs` or its end.

    A stage that writes one set of tasks for all epochs stands in the epoch that writes it.
    """
    last = config.epochs if epochs is None else epochs
    found = {
        (set_of(config, number) if stage == "generate_tasks" else number, stage): None
        for number in range(last + 1)
        for stage in (EPOCH_STAGES if number else start_stages(config))
    }
    return list(found)


def read_until(text: str, config: RunConfig, where: str = "--until") -> Until:
    """Return the end that a text asks for; without an epoch, the first that has the stage.

    Raises ConfigError, which opens with `where` the text was given.
    """
    name, at, number = text.strip().partition("@")
    if config.benchmark.given:
        raise ConfigError(f"{where} {text!r}: a run that measures a model has one stage: leave it")
    start = start_stages(config)
    known = list(dict.fromkeys((*start, *EPOCH_STAGES)))
    if name not in known:
        hint = closest(name, known)
        raise ConfigError(f"{where} {text!r}: {name!r} is no stage of {', '.join(known)}{hint}")
    if at and not re.fullmatch(r"\d{1,6}", number):
        raise ConfigError(f"{where} {text!r}: {number!r} is no number of an epoch, as in {name}@1")
    epoch = int(number) if at else int(name in EPOCH_STAGES)
    if epoch > config.epochs:
        raise ConfigError(
            f"{where} {text!r}: the run ends with epoch {config.epochs}: name one of its epochs, "
            "or raise --epochs"
        )
    here = EPOCH_STAGES if epoch else start
    if name not in here:
        raise ConfigError(f"{where} {text!r}: epoch {epoch} has no {name}, only {', '.join(here)}")
    return Until(stage=name, epoch=epoch)


def read_forced(text: str, config: RunConfig, where: str = "--force") -> Until:
    """Return the stage and epoch to draw anew.

    Raises ConfigError as `read_until`, and for a stage that draws nothing in that epoch.
    """
    found = read_until(text, config, where)
    if found.stage not in DRAWN:
        raise ConfigError(
            f"{where} {text!r}: {found.stage} draws nothing, so again it gives the same; "
            f"{', '.join(DRAWN)} draw"
        )
    if found.stage == "generate_tasks" and (made := set_of(config, found.epoch)) != found.epoch:
        raise ConfigError(
            f"{where} {text!r}: epoch {found.epoch} plays the set that epoch {made} made: name "
            f"generate_tasks@{made}"
        )
    return found
