"""`genenv what-if`: reads the epochs of a run, to foresee another choice of their tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from genenv_core.config.branching import differing
from genenv_core.config.load import as_recorded, dump, overridden
from genenv_core.config.schema import RunConfig
from genenv_core.domains.protocol import shares_of
from genenv_core.domains.registry import get_domain
from genenv_core.epoch.writing.foreseeing import ChoosingRule, LoggedEpoch
from genenv_core.errors import ConfigError
from genenv_core.ids import stage_seed
from genenv_core.storage.records.draws import read_draws
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.sql.catalog import query
from genenv_core.storage.sql.sources import open_tables
from genenv_core.storage.store.protocol import Store

CHOOSES = {
    "generation": ("choose_by", "random_share", "tasks", "candidates"),
    "curriculum": ("alpha", "beta", "k_min"),
}
"""The fields, by section, whose change `genenv what-if` foresees."""

STAGE = "generate_tasks"

TASKS = """
    SELECT t.epoch, t.task_id, t.family, t.chance, t.choice, t.predicted_p, t.predicted_sd,
        s.successes, s.n
    FROM tasks AS t LEFT JOIN task_scores AS s ON s.run_id = t.run_id AND s.task_id = t.task_id
    WHERE t.source = 'generated' AND t.valid
    ORDER BY t.epoch, t.task_id
"""
"""Ids of one epoch sort in the order in which pi_env wrote its tasks."""


def recorded_config(store: Store, run: str) -> RunConfig:
    """Return the configuration that a run of the store started with; raises ConfigError."""
    recorded = RunLog(store, run).info().config
    return as_recorded(recorded, run, {"root": store.uri, "run_id": run})


def other_rule(config: RunConfig, overrides: Sequence[str]) -> ChoosingRule:
    """Return the rule of a configuration with changes; raises ConfigError outside `CHOOSES`."""
    if not overrides:
        raise ConfigError(f"--set is missing: name what is to be foreseen, one of {_fields()}")
    before = dump(config)
    other = overridden(before, f"run {config.run_id}", overrides=overrides)
    for name, _, _ in differing(before, dump(other)):
        section, _, field = name.partition(".")
        if field not in CHOOSES.get(section, ()):
            raise ConfigError(
                f"--set {name}: it changes more than which of the written tasks are "
                f"attempted, and only that is foreseen ({_fields()}); play it instead: "
                f"genenv run --from {config.run_id}@EPOCH --set {name}=VALUE"
            )
    return ChoosingRule(other.generation, other.curriculum)


def _fields() -> str:
    return ", ".join(f"{section}.{field}" for section in CHOOSES for field in CHOOSES[section])


def logged_epochs(
    store: Store, config: RunConfig, within: tuple[int, int] | None
) -> Iterator[LoggedEpoch]:
    """Yield the epochs of a run that chose tasks by prediction, in order.

    Without `within`, only the last one. Raises ConfigError where no epoch did.
    """
    run = str(config.run_id)
    with open_tables(store, [run], tables=["tasks", "task_scores"]) as connection:
        rows = query(connection, TASKS)
    known = rows.filter(pl.col("predicted_p").is_not_null())
    epochs: list[int] = known.filter(pl.col("n").is_not_null())["epoch"].unique().sort().to_list()
    chosen = [one for one in epochs if within is None or within[0] <= one <= within[1]]
    if not chosen:
        there = f"; those of {run} are {epochs[0]} to {epochs[-1]}" if epochs else ""
        raise ConfigError(
            f"run {run} has no such epoch whose tasks were chosen by prediction and attempted: "
            f"that needs generation.candidates above 1, and an epoch before{there}"
        )
    draws = read_draws(store, run)
    shares = shares_of(get_domain(config.domain.name, config.domain.options))
    for epoch in chosen if within else chosen[-1:]:
        draw = draws.number(STAGE, epoch)
        drawn = ("draw", draw) if draw else ()
        yield LoggedEpoch(
            epoch=epoch,
            tasks=rows.filter(pl.col("epoch") == epoch),
            attempts=known.filter((pl.col("epoch") <= epoch) & pl.col("n").is_not_null()),
            rule=ChoosingRule(config.generation, config.curriculum),
            seed=stage_seed(config.seed, STAGE, epoch, "choice", *drawn),
            n=config.rollout.n,
            shares=shares,
        )
