"""Stage `score`: compares what pi_env answered in the place of the tools with the truth.

`genenv_core.play.fidelity` has the rule; this module makes its rows. The stage `rwr_update` asks a
new pi_env again at the same turns, and needs the same seeds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any

from genenv_core.domains.protocol import Domain
from genenv_core.domains.steps import EPISODE_TURN
from genenv_core.ids import stage_seed
from genenv_core.play.fidelity import Answered, answered, text_of
from genenv_core.types import Task, TaskDraft

EpisodeSeed = Callable[[int, int], int]
"""(place of the group among the epoch's, sample_index) -> seed of the attempt's episode."""


def episode_seed(seed: int, epoch: int, place: int, sample: int) -> int:
    """Return the seed that the stage `rollout` of an epoch has for an attempt's episode.

    `seed` is the run's, `place` that of the attempt's group among the epoch's, from 0.
    """
    return stage_seed(seed, "rollout", epoch, place, sample, EPISODE_TURN)


def observed(
    traces: Iterable[Mapping[str, Any]],
    tasks: Mapping[str, Task],
    domain: Domain,
    seed_of: EpisodeSeed,
) -> list[dict[str, Any]]:
    """Return the rows of `observations`: every answer that pi_env gave in the place of the tools.

    Args:
        traces: rows of `traces` with their `messages`, groups in the order of their places.
        tasks: by id; those of all traces.
        domain: opens the episodes that give the true answers.
        seed_of: the seed that the stage `rollout` has for an episode.
    """
    rows: list[dict[str, Any]] = []
    for trace, _, one in replayed(traces, tasks, domain, seed_of):
        found = one.fidelity
        rows.append(
            {
                **{name: trace[name] for name in ("trace_id", "epoch", "task_id")},
                "turn": one.turn,
                "fits_schema": found.schema,
                "same_state": found.state,
                "content_similarity": found.content,
                "fidelity": found.value,
                "said": text_of(one.said),
                "true_content": text_of(one.truth) if one.truth.messages else None,
            }
        )
    return rows


def replayed(
    traces: Iterable[Mapping[str, Any]],
    tasks: Mapping[str, Task],
    domain: Domain,
    seed_of: EpisodeSeed,
    *,
    only: Container[str] | None = None,
) -> Iterator[tuple[Mapping[str, Any], TaskDraft, Answered]]:
    """Yield every turn at which the stage `rollout` asked pi_env, with its trace and task.

    The arguments are those of `observed`. `only` names the traces to play again, None for all; the
    other traces still count for the places of groups.
    """
    places: dict[str, int] = {}
    for trace in traces:
        place = places.setdefault(trace["group_id"], len(places))
        if only is not None and trace["trace_id"] not in only:
            continue
        if '"simulated"' not in trace["messages"]:
            continue  # most runs: their transcripts need no reading
        seed = seed_of(place, trace["sample_index"])
        draft = tasks[trace["task_id"]].draft
        for one in answered(domain, draft, seed, json.loads(trace["messages"])):
            yield trace, draft, one
