"""`python -m flows.evidence.taught`: does what `grpo.attribution` measures hold?

The command plays updates of stored runs again from their rows: whole, without each family of tasks,
and with random halves of the tasks. What the exact P(answer) of the test tasks loses without a
family is the truth, with which it compares the family's alignment. It measures the alignment with
the validation tasks. It needs no new run.

Rows that an update leaves out stay in its optimizer steps, without a loss (`grpo.mask_truncated`
does that). So both updates take the same steps in the same order, whose luck is as large as a
family's worth.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from flows.running.environment import quiet
from genenv_core.config.schema import RunConfig
from genenv_core.config.stages import update_of
from genenv_core.domains.registry import get_domain
from genenv_core.epoch.rows import of_source, to_tasks
from genenv_core.evidence.gradients import check_single
from genenv_core.evidence.taught import UpdatePart, judged_parts
from genenv_core.storage.records.artifacts import Artifacts
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.sql.catalog import query
from genenv_core.storage.sql.sources import open_tables
from genenv_core.storage.store.local import LocalStore
from genenv_core.training.updates.grpo import GrpoRequest
from genenv_core.training.updates.table import run_update
from genenv_core.types import Policy, TaskSource

ROWS = """
    SELECT u.group_id, t.family, g.successes, g.n, x.prompt_ids, x.token_ids AS completion_ids,
        x.logprobs, x.loss_mask, s.reward, r.finish_reason = 'length' AS truncated
    FROM update_samples AS u
    INNER JOIN traces AS r ON r.trace_id = u.row_id
    INNER JOIN trace_tokens AS x ON x.trace_id = u.row_id
    INNER JOIN scores AS s ON s.trace_id = u.row_id
    INNER JOIN task_scores AS g ON g.group_id = u.group_id
    INNER JOIN tasks AS t ON t.task_id = r.task_id
    WHERE u.policy = 'agent' AND u.epoch = {epoch} ORDER BY u.group_id, u.row_id
"""
TOLD = ("family", "successes", "n")
"""Columns that an update does not read."""


@dataclass(frozen=True, slots=True)
class StoredUpdate:
    """An update of a run to play again: its start, its rows, and the answers that judge it.

    `answers` are the reference answers of the held-out tasks, by their source.
    """

    run: str
    config: RunConfig
    epoch: int
    checkpoint: Path
    rows: pl.DataFrame
    answers: Mapping[TaskSource, Sequence[Any]]

    def request(self, folder: Path, left_out: pl.Expr, seed: int) -> GrpoRequest:
        """Return the update with some rows left out of its loss; the policy goes into `folder`."""
        stored, config = folder / "rows.parquet", self.config
        masked = left_out | (pl.col("truncated") & config.grpo.mask_truncated)
        self.rows.with_columns(truncated=masked).drop(TOLD).write_parquet(stored)
        return GrpoRequest(
            checkpoint=self.checkpoint,
            output=folder / "agent",
            rows=stored,
            settings=config.grpo.model_copy(
                update={"kl_reference": "start", "mask_truncated": True}
            ),
            training=config.training,
            seed=seed,
            threads=config.compute.threads,
            group_size=config.rollout.n,
            temperature=config.rollout.temperature,
        )

    def after(self, left_out: pl.Expr, *, seed: int = 0) -> dict[TaskSource, float]:
        """Return the mean P(answer) by source after the update with some rows left out."""
        with tempfile.TemporaryDirectory() as folder:
            made = run_update(self.request(Path(folder), left_out, seed))
            return self.measured(made.checkpoint)

    def measured(self, checkpoint: Path) -> dict[TaskSource, float]:
        """Return the mean P(answer) of a checkpoint by source."""
        from genenv_core.training.grpo.influence import probabilities  # loads torch

        config = self.config
        return {
            source: math.fsum(probabilities(checkpoint, answers, config.rollout.temperature))
            / len(answers)
            for source, answers in self.answers.items()
        }


def main(arguments: Sequence[str] | None = None) -> None:
    """Play the updates of the given runs again, and print how well the alignment ranks."""
    parser = argparse.ArgumentParser(prog="python -m flows.evidence.taught", description=__doc__)
    parser.add_argument("runs", nargs="+", help="finished runs with the weights of all epochs")
    parser.add_argument("--root", type=Path, default=Path("genenv-data"))
    parser.add_argument("--splits", type=int, default=2, help="random halvings of each update")
    parser.add_argument("--output", type=Path, help="a file that gets a line of JSON for each part")
    options = parser.parse_args(arguments)
    quiet()
    parts: list[UpdatePart] = []
    updates = [
        update for run in options.runs for update in stored_updates(LocalStore(options.root), run)
    ]
    for update in sorted(updates, key=lambda one: one.epoch):
        for part in played(update, splits=options.splits):
            parts.append(part)
            if options.output is not None:
                with options.output.open("a", encoding="utf-8") as lines:
                    lines.write(json.dumps(part.as_values()) + "\n")
        print(f"{update.run} epoch {update.epoch}: {len(parts)} parts so far", flush=True)
    for line in judged_parts(parts):
        print(line)


def stored_updates(store: LocalStore, run: str) -> Iterator[StoredUpdate]:
    """Yield the agent updates of a finished run, in order, without skipped ones."""
    from tasks.policies.attribution import scored_answers

    log, artifacts = RunLog(store, run), Artifacts(store)
    config = RunConfig.model_validate(log.info().config)
    domain = get_domain(config.domain.name, config.domain.options)
    stage, epoch = "bootstrap", 0
    answers: dict[TaskSource, Sequence[Any]] = {}
    for number in range(1, config.epochs + 1):
        made = artifacts.find(stage, log.keys(epoch)[stage])
        assert made is not None
        checkpoint = artifacts.checkpoint(made, "agent")
        with open_tables(store, [run]) as connection:
            check_single(connection)
            rows = query(connection, ROWS.format(epoch=number))
            if not answers:
                tasks = query(connection, "FROM tasks WHERE epoch = 0")
                answers = {
                    source: scored_answers(config, domain, checkpoint, of)
                    for source in (TaskSource.VALIDATION, TaskSource.TEST)
                    if (of := to_tasks(of_source(tasks, source)))
                }
        if not rows.is_empty():
            yield StoredUpdate(run, config, number, checkpoint, rows, answers)
        published = artifacts.find("publish", log.keys(number)["publish"])
        assert published is not None
        if published.facts["published"]["agent"]:
            stage, epoch = update_of(Policy.AGENT), number


def played(update: StoredUpdate, *, splits: int) -> Iterator[UpdatePart]:
    """Yield the alignment and the worth of each family, and of each of two random halves.

    A family's worth is what P(answer) loses without it, that of a half what it gains by it alone.
    The function also plays the first update of a run with its groups in another order.
    """
    from genenv_core.training.grpo.influence import influence

    nothing = pl.lit(False)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        request = update.request(Path(folder), nothing, 0)
        found = influence(request, update.answers[TaskSource.VALIDATION])
    told: dict[str, Any] = {"run": update.run, "epoch": update.epoch}
    told["measuring_s"] = time.perf_counter() - began
    aligned = pl.DataFrame(
        {"group_id": [one.group_id for one in found], "alignment": [o.alignment for o in found],
         "tokens": [one.tokens for one in found]}
    )  # fmt: skip
    groups = update.rows.unique("group_id").select("group_id", *TOLD).join(aligned, on="group_id")
    before = update.measured(update.checkpoint)
    began = time.perf_counter()
    whole = update.after(nothing)
    told["update_s"] = time.perf_counter() - began
    yield UpdatePart.of(groups, kind="whole", name="gain", worth=_less(whole, before), **told)
    for family in sorted(groups["family"].unique()):
        of_it = pl.col("family") == family
        worth = _less(whole, update.after(of_it))
        yield UpdatePart.of(groups.filter(of_it), kind="family", name=family, worth=worth, **told)
    for split in range(splits):
        names = sorted(groups["group_id"])
        random.Random(f"{update.run} {update.epoch} {split}").shuffle(names)
        for half in range(2):
            of_it = pl.col("group_id").is_in(names[half::2])
            worth = _less(update.after(~of_it), before)
            name = f"{split}.{half}"
            yield UpdatePart.of(groups.filter(of_it), kind="half", name=name, worth=worth, **told)
    if update.epoch == 1:
        worth = _less(whole, update.after(nothing, seed=1))
        yield UpdatePart.of(groups, kind="order", name="other", worth=worth, **told)


def _less(one: Mapping[TaskSource, float], other: Mapping[TaskSource, float]) -> dict[str, float]:
    return {source.value: one[source] - other[source] for source in one}


if __name__ == "__main__":
    main()
