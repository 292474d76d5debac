"""Finds new tasks that repeat the prompt of a held-out task, where only a server knows its tasks.

Equal arguments are one task, but other arguments may be the same task too. So this module compares
prompts as those of benchmarks (`genenv_core.domains.kit.known_items`). It leaves out words that
another data task has: these are the form of the prompts, and identify no task.
"""

from __future__ import annotations

import polars as pl

from genenv_core.domains.kit.known_items import KnownItems
from genenv_core.domains.protocol import Domain, compares_prompts, own_task
from genenv_core.epoch.rows import of_source
from genenv_core.types import HELDOUT, Rejected, Rejection, TaskDraft


class HeldoutPrompts:
    """The prompts of a run's held-out tasks; `data` are all of its data tasks."""

    def __init__(self, domain: Domain, data: pl.DataFrame) -> None:
        self._domain = domain
        heldout = of_source(data, *HELDOUT)
        others = data.filter(~pl.col("task_id").is_in(heldout["task_id"].implode()))
        self._known = KnownItems(
            ((ident, prompt, ()) for ident, prompt in heldout.select("task_id", "prompt").rows()),
            form=others["prompt"].drop_nulls(),
        )

    def refused(self, draft: TaskDraft) -> Rejected | None:
        """Return why a task repeats a held-out one; None without a reason or a comparison."""
        if not compares_prompts(own_task(self._domain, draft)[0]):
            return None
        why = self._known.repeated(draft.prompt, ())
        return Rejected(Rejection.CONTAMINATED, why) if why else None
