"""Stores finished attempts one by one, so that a measurement continues at the unfinished item.

The file lies in the stage's folder that survives a crash; the commit of the stage removes it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from genenv_core.canonical import canonical_json
from genenv_core.play.attempt import Player, SeedOf
from genenv_core.types import FinishReason, Rollout, SamplingParams, TaskDraft


class Journaled:
    """A player that writes finished attempts into a file, and does not repeat those in it.

    Args:
        player: makes the attempts.
        kept: the file. It belongs to one stage key, so equal ids are equal tasks.
        wanted: ids of the tasks to read from the file.
        tell: the journal calls it for each finished task.
    """

    def __init__(
        self, player: Player, kept: Path, wanted: Container[str], tell: Callable[[], None]
    ) -> None:
        """Read what an earlier process finished."""
        self._player, self._kept, self._tell = player, kept, tell
        self._done = {task: made for task, made in _read(kept) if task in wanted}

    def groups(
        self,
        batches: Sequence[Sequence[tuple[str, TaskDraft]]],
        *,
        n: int,
        params: SamplingParams,
        seed_of: SeedOf,
    ) -> Iterator[tuple[int, list[Rollout]]]:
        """Yield as `Player.groups` does: first the stored tasks, then each other one as it ends."""
        numbered = list(enumerate(task for batch in batches for task in batch))
        number_of = {task_id: number for number, (task_id, _) in numbered}
        for task_id, number in number_of.items():
            if task_id in self._done:
                self._tell()
                yield number, self._done[task_id]
        open_ = [[task for task in batch if task[0] not in self._done] for batch in batches]
        waiting = [task_id for batch in open_ for task_id, _ in batch]
        for place, rollouts in self._player.groups(
            [batch for batch in open_ if batch], n=n, params=params, seed_of=seed_of
        ):
            if not any(one.error for one in rollouts):  # another try may have no error
                self._keep(waiting[place], rollouts)
            self._tell()
            yield number_of[waiting[place]], rollouts

    def answer_probabilities(
        self, tasks: Sequence[tuple[str, TaskDraft]], *, params: SamplingParams, seed_of: SeedOf
    ) -> list[float] | None:
        """Return what the player returns."""
        return self._player.answer_probabilities(tasks, params=params, seed_of=seed_of)

    def _keep(self, task_id: str, rollouts: Sequence[Rollout]) -> None:
        line = canonical_json({"task": task_id, "rollouts": [asdict(one) for one in rollouts]})
        with self._kept.open("ab") as file:
            # The line break in front ends a line that a crash cut off.
            file.write(b"\n" + line)


def _read(kept: Path) -> Iterator[tuple[str, list[Rollout]]]:
    """Yield each task in a file with its attempts; skip a line that a crash cut off."""
    if not kept.is_file():
        return
    with kept.open("rb") as file:
        for line in file:
            try:
                values = json.loads(line)
                found = values["task"], [_rollout(one) for one in values["rollouts"]]
            except (ValueError, KeyError, TypeError):
                continue
            yield found


def _rollout(values: dict[str, Any]) -> Rollout:
    for name, value in values.items():
        if isinstance(value, list):
            values[name] = tuple(cast("list[Any]", value))
    values["finish_reason"] = FinishReason(values["finish_reason"])
    return Rollout(**values)
