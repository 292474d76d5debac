"""`python -m flows.evidence.foreseen`: do the intervals of `genenv what-if` hold the played means?

A case is an epoch of a stored run and another rule of choosing. The command draws the run's own
rule with the seed of the case and plays it. Then `foresee` says what the other rule would show, and
the command plays that one too, with the same seed, as a branch does. A played attempt is a draw
from the task's exact P(answer), of the agent that attempted the epoch, so every written task has a
truth. The first case of an epoch is the run's own choice with its stored verdicts. The command
needs no new run.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from flows.running.environment import quiet
from genenv_core.algorithm.stats import mean
from genenv_core.config.schema import RunConfig
from genenv_core.config.stages import update_of
from genenv_core.domains.registry import get_domain
from genenv_core.epoch.attempting.choosing import Chooser
from genenv_core.epoch.rows import to_tasks
from genenv_core.epoch.writing.foreseeing import ChoosingRule, LoggedEpoch, foresee, other_choice
from genenv_core.errors import ConfigError
from genenv_core.evidence.foreseen import logged_epochs, other_rule, recorded_config
from genenv_core.ids import seed_from
from genenv_core.storage.records.artifacts import Artifacts
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.sql.catalog import query
from genenv_core.storage.sql.sources import open_tables
from genenv_core.storage.store.local import LocalStore
from genenv_core.types import Policy, TaskChoice

RULES: Mapping[str, Sequence[str]] = {
    "choose_by task": ["generation.choose_by=task"],
    "choose_by family": ["generation.choose_by=family"],
    "random_share 1": ["generation.random_share=1"],
    "random_share .5": ["generation.random_share=0.5"],
    "candidates 2": ["generation.candidates=2"],
    "candidates 1": ["generation.candidates=1"],
    "alpha .7": ["curriculum.alpha=0.7"],
    "alpha .3": ["curriculum.alpha=0.3"],
    "k_min .25": ["curriculum.k_min=0.25"],
}
"""The other rules; a run skips its own."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Play the cases of the given runs, and print how many intervals hold the played mean."""
    parser = argparse.ArgumentParser(prog="python -m flows.evidence.foreseen", description=__doc__)
    parser.add_argument("runs", nargs="+", help="finished runs with the weights of all epochs")
    parser.add_argument("--root", type=Path, default=Path("genenv-data"))
    parser.add_argument("--every", type=int, default=3, help="takes each n-th epoch")
    parser.add_argument("--cases", type=int, default=1, help="of each epoch and rule")
    parser.add_argument("--output", type=Path, help="a file that gets a line of JSON for each mean")
    options = parser.parse_args(arguments)
    quiet()
    found: list[dict[str, Any]] = []
    for run in options.runs:
        store = LocalStore(options.root)
        for row in cases_of(store, run, every=options.every, cases=options.cases):
            found.append(row)
            if options.output is not None:
                with options.output.open("a", encoding="utf-8") as lines:
                    lines.write(json.dumps(row) + "\n")
    for line in coverage(found):
        print(line)


def cases_of(store: LocalStore, run: str, *, every: int, cases: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each mean of each case of a run."""
    config = recorded_config(store, run)
    rules = {name: other_rule(config, given) for name, given in RULES.items()}
    truths = exact_success(store, run, config)
    for place, logged in enumerate(logged_epochs(store, config, (1, config.epochs))):
        if place % every:
            continue
        truth = truths[logged.epoch]
        for name, other in rules.items():
            if other == logged.rule:
                continue
            for case in range(cases):
                seed = seed_from("foreseen", run, logged.epoch, name, case)
                yield from _case(logged if not case else None, logged, other, truth, seed, name)


def _case(
    stored: LoggedEpoch | None,
    epoch: LoggedEpoch,
    other: ChoosingRule,
    truth: np.ndarray,
    seed: int,
    name: str,
) -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    logged = stored or played(epoch, truth, seed, rng)
    try:
        found = foresee(logged, other)
    except ConfigError as error:
        yield {"rule": name, "epoch": epoch.epoch, "refused": str(error)}
        return
    chosen = other_choice(logged, other, logged.attempts, draws=1).chosen
    chances = logged.tasks["chance"].fill_null(0.0).to_numpy()[chosen].tolist()
    successes: list[int] = rng.binomial(logged.n, truth[chosen]).tolist()
    measures = other.measures()
    for one in found.measures:
        measure = measures[one.measure]
        values = [measure(k, logged.n, c) for k, c in zip(successes, chances, strict=True)]
        yield {
            "rule": name,
            "epoch": epoch.epoch,
            "unseen": found.chosen - found.shared,
            "measure": one.measure,
            "logged": one.played,
            "foreseen": one.foreseen.value,
            "low": one.foreseen.low,
            "high": one.foreseen.high,
            "played": mean(values),
        }


def played(
    epoch: LoggedEpoch, truth: np.ndarray, seed: int, rng: np.random.Generator
) -> LoggedEpoch:
    """Draw an epoch's own rule with another seed, attempt its tasks anew, and return the epoch."""
    rule = epoch.rule
    choices = [TaskChoice.NOT_CHOSEN.value] * epoch.tasks.height
    chooser = Chooser(epoch.tasks, epoch.shares)
    for place, choice in chooser.attempted(rule.generation, rule.curriculum, seed).items():
        choices[place] = choice.value
    tasks = epoch.tasks.with_columns(
        choice=pl.Series(choices),
        successes=pl.Series(rng.binomial(epoch.n, truth), dtype=epoch.tasks["successes"].dtype),
        n=pl.lit(epoch.n, dtype=epoch.tasks["n"].dtype),
    )
    attempted = tasks.filter(pl.col("choice") != TaskChoice.NOT_CHOSEN.value)
    earlier = epoch.attempts.filter(pl.col("epoch") < epoch.epoch)
    return replace(epoch, tasks=tasks, attempts=pl.concat([earlier, attempted]), seed=seed)


def exact_success(store: LocalStore, run: str, config: RunConfig) -> dict[int, np.ndarray]:
    """Return by epoch the exact P(answer) of the valid tasks that pi_env wrote, in their order."""
    from genenv_core.training.grpo.influence import probabilities  # loads torch
    from tasks.policies.attribution import scored_answers

    log, artifacts = RunLog(store, run), Artifacts(store)
    domain = get_domain(config.domain.name, config.domain.options)
    with open_tables(store, [run], tables=["tasks"]) as connection:
        rows = query(
            connection,
            "FROM tasks WHERE source = 'generated' AND valid ORDER BY epoch, task_id",
        )
    stage, made_in = "bootstrap", 0
    found: dict[int, np.ndarray] = {}
    for epoch in range(1, config.epochs + 1):
        made = artifacts.find(stage, log.keys(made_in)[stage])
        assert made is not None
        checkpoint = artifacts.checkpoint(made, "agent")
        tasks = to_tasks(rows.filter(pl.col("epoch") == epoch))
        answers = scored_answers(config, domain, checkpoint, tasks)
        assert len(answers) == len(tasks)
        found[epoch] = np.array(probabilities(checkpoint, answers, config.rollout.temperature))
        published = artifacts.find("publish", log.keys(epoch)["publish"])
        assert published is not None
        if published.facts["published"]["agent"]:
            stage, made_in = update_of(Policy.AGENT), epoch
    return found


def coverage(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each measure of each rule: cases, coverage, width, error."""
    done = [row for row in rows if "refused" not in row]
    lines = ["rule | mean of | cases | unseen | held | half-width | error | bias"]
    groups = [(row["rule"], row["measure"]) for row in done]
    every = [("all", measure) for measure in dict.fromkeys(m for _, m in groups)]
    for rule, measure in [*dict.fromkeys(groups), *every, ("all", "all")]:
        of = [
            row
            for row in done
            if rule in (row["rule"], "all") and measure in (row["measure"], "all")
        ]
        errors = [row["foreseen"] - row["played"] for row in of]
        held = [float(row["low"] <= row["played"] <= row["high"]) for row in of]
        numbers = (
            f"{mean([float(row['unseen']) for row in of]):.0f}",
            f"{mean(held):.3f}",
            f"{mean([(row['high'] - row['low']) / 2 for row in of]):.3f}",
            f"{mean([error**2 for error in errors]) ** 0.5:.3f}",
            f"{mean(errors):+.3f}",
        )
        lines.append(f"{rule} | {measure} | {len(of)} | {' | '.join(numbers)}")
    lines.append(f"refused: {len(rows) - len(done)}")
    return lines


if __name__ == "__main__":
    main()
