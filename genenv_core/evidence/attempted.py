"""Task sets that a model attempts: chooses tasks, finds their flaws, judges the attempts.

`genenv_core.evidence.written` does the same for the tasks that pi_env wrote in a run, from SQL.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import polars as pl

from genenv_core.algorithm.advantages import zero_signal
from genenv_core.algorithm.stats import mean, sample_std
from genenv_core.domains.protocol import Domain
from genenv_core.epoch.rows import data_tasks, frame, to_tasks
from genenv_core.errors import DomainError, EngineError
from genenv_core.evidence.worth import AttemptedTask, GroupCounts, WorthCheck, worth_of
from genenv_core.play.certificate import Check
from genenv_core.play.checking.set_flaws import SetCheck
from genenv_core.play.checking.sets import (
    CertifiedTask,
    FlawCount,
    SetTask,
    certified,
    compared,
    counted,
    draw_sets,
)
from genenv_core.play.checking.shapes import StopChecking
from genenv_core.types import Flaw, TaskSource

ANY_FLAW = "any_flaw"
"""Name of the check that counts the tasks with any flaw."""

FLOORS = (Flaw.ACCEPTS_TRIVIAL, Flaw.ACCEPTS_CANARY)
"""Flaws of tasks that a trivial or senseless answer solves."""

REMEDIES_OF_SET = {
    "reachable": "look at tasks that no attempt solved: genenv sql 'FROM scores JOIN tasks USING "
    "(run_id, task_id)', or let a better model attempt them",
    "separating": "most tasks are always or never solved by this model: leave those out, or "
    "attempt each more often (--samples)",
    "headroom": "the model solves nearly all: give it harder tasks",
    "variance": "all tasks are about as hard, so what tells them apart is luck: attempt each more "
    "often (--samples), or take tasks of more kinds",
    "signal": "this model learns nothing from most groups: leave out tasks that it always or never "
    "solves, or attempt each more often (--samples)",
    "chance": "the model hardly does better than a guess: give it easier tasks, or take a better "
    "one",
}
"""Remedies for a set that no run wrote, by check; all other checks take their rule's remedy."""


REMEDIES_OF_RUN = {
    **REMEDIES_OF_SET,
    "reachable": "look at tasks that no attempt solved, and whether the domain's score is "
    "too strict",
    "separating": "most tasks are always or never solved by this agent: leave those out of the "
    "domain's tasks, or attempt each more often (rollout.n; of test tasks, evaluation.samples)",
    "variance": "all tasks are about as hard, so what tells them apart is luck: attempt each more "
    "often (rollout.n; of test tasks, evaluation.samples), or let the domain draw more kinds",
    "signal": "this agent learns nothing from most groups: leave out tasks that it always or never "
    "solves, or attempt each more often (rollout.n; of test tasks, evaluation.samples)",
}
"""Remedies for a run's base tasks or test tasks, by check."""


@runtime_checkable
class HoldsTasks(Protocol):
    """A domain that draws no tasks but holds them, such as an exported folder."""

    def held_tasks(self) -> Sequence[SetTask]:
        """Return all tasks."""
        ...


def tasks_of_sets(
    domain: Domain, base: int, heldout: int, seed: int, fewer: Container[str] = ()
) -> list[SetTask]:
    """Return the tasks that a domain holds, or draw so many from it; `fewer` as in draw_sets.

    Raises DomainError where the domain has a fault, ConfigError where it has fewer tasks.
    """
    if isinstance(domain, HoldsTasks):
        return list(domain.held_tasks())
    try:
        return draw_sets(domain, base, heldout, seed, fewer)
    except StopChecking as stop:
        raise DomainError(f"domain {domain.name}: {stop.fault}") from stop


def first_of_sets(tasks: Sequence[SetTask], most: int | None) -> list[SetTask]:
    """Return the first `most` tasks of each set, before all others; all with None."""
    if most is None:
        return list(tasks)
    seen: dict[str, int] = {}
    chosen = list[SetTask]()
    for one in tasks:
        seen[one.set_name] = seen.get(one.set_name, 0) + 1
        if seen[one.set_name] <= most:
            chosen.append(one)
    return chosen


def set_frame(tasks: Sequence[SetTask], scope: str) -> pl.DataFrame:
    """Return rows of the table `tasks`, with one numbering."""
    return data_tasks({TaskSource.BENCHMARK: [one.draft for one in tasks]}, scope)


def played_flaws(domain: Domain, tasks: Sequence[SetTask]) -> list[CertifiedTask]:
    """Return all tasks with all their checks; raises DomainError where the domain has a fault."""
    try:
        found = list(certified(domain, tasks))
        for place, one in compared(domain, found):
            found[place] = one
    except StopChecking as stop:
        raise DomainError(f"domain {domain.name}: {stop.fault}") from stop
    return found


def flaw_frame(found: Sequence[CertifiedTask], task_ids: Sequence[str]) -> pl.DataFrame:
    """Return `set_flaws`: a row for each task and check."""
    return frame(
        "set_flaws",
        [
            {
                "task_id": task_id,
                "set_name": one.task.set_name,
                "flaw": check.flaw.value,
                "passed": check.passed,
                "detail": check.detail,
            }
            for task_id, one in zip(task_ids, found, strict=True)
            for check in one.checks
        ],
    )


def stored_flaws(tasks: pl.DataFrame, flaws: pl.DataFrame) -> list[CertifiedTask]:
    """Rebuild the result of `played_flaws` from rows of `tasks` and `set_flaws`."""
    checks: dict[str, list[Check | SetCheck]] = {}
    names: dict[str, str] = {}
    for row in flaws.iter_rows(named=True):
        flaw = row["flaw"]
        own = flaw in set(Flaw)
        check = Check(Flaw(flaw), row["detail"]) if own else set_check(flaw, row["detail"])
        checks.setdefault(row["task_id"], []).append(check)
        names[row["task_id"]] = row["set_name"]
    return [
        CertifiedTask(SetTask(names[one.task_id], one.draft), tuple(checks[one.task_id]))
        for one in to_tasks(tasks)
    ]


def set_check(flaw: str, detail: str) -> SetCheck:
    """Return a check by the name of its flaw."""
    from genenv_core.play.checking.set_flaws import SetFlaw

    return SetCheck(SetFlaw(flaw), detail)


def worth_of_attempts(
    found: Sequence[CertifiedTask],
    task_ids: Sequence[str],
    scores: pl.DataFrame,
    first_error: str = "",
) -> list[WorthCheck]:
    """Return the checks of attempts; `task_ids` are those of `found`, `scores` are the verdicts.

    The verdicts of a task in an epoch are a group; only groups of two or more show whether rewards
    differ. Raises EngineError where no attempt has a verdict, with `first_error` as the reason.
    """
    rows: dict[str, list[Mapping[str, Any]]] = {}
    of_group: dict[tuple[str, int], list[float]] = {}
    for row in scores.iter_rows(named=True):
        rows.setdefault(row["task_id"], []).append(row)
        of_group.setdefault((row["task_id"], row["epoch"]), []).append(row["reward"])
    if not rows:
        raise EngineError(
            f"no attempt has a verdict, so nothing is known of the tasks; the first: {first_error}"
        )
    attempted = list[AttemptedTask]()
    for task_id, one in zip(task_ids, found, strict=True):
        if verdicts := rows.get(task_id):
            successes = sum(row["success"] for row in verdicts)
            solved = successes > 0 or _domain_solves(one)
            chance = one.task.draft.chance
            attempted.append(AttemptedTask(len(verdicts), successes, solved, chance))
    rewards = [of for of in of_group.values() if len(of) > 1]
    groups = GroupCounts(
        len(rewards),
        sum(not zero_signal(of) for of in rewards),
        mean([sample_std(of) for of in rewards]) if rewards else 0.0,
    )
    return worth_of(attempted, groups, floor_of(found))


def _domain_solves(one: CertifiedTask) -> bool:
    return any(check.flaw is Flaw.UNREACHABLE and check.passed for check in one.checks)


def floor_of(found: Sequence[CertifiedTask]) -> tuple[int, int]:
    """Return how many tasks a trivial or senseless answer solves, and how many have that check."""
    checks = [[check for check in one.checks if check.flaw in FLOORS] for one in found]
    made = [of for of in checks if of]
    return sum(not all(check.passed for check in of) for of in made), len(made)


def check_rows(flaws: Sequence[FlawCount], checks: Sequence[WorthCheck]) -> list[dict[str, Any]]:
    """Return a row for each flaw and each check of attempts, for a file.

    A flaw's limit is 0: no task should have one.
    """
    of_flaws: list[dict[str, Any]] = [
        {
            "check": count.flaw.value if count.flaw else ANY_FLAW,
            "estimate": count.having / count.checked, "low": count.low, "high": count.high,
            "n": count.checked, "unit": "tasks", "limit": 0.0, "at_least": False,
            "verdict": "fail" if count.having else "pass", "detail": count.detail,
        }
        for count in flaws
    ]  # fmt: skip
    of_attempts: list[dict[str, Any]] = [
        {
            "check": check.name,
            "estimate": check.estimate, "low": check.low, "high": check.high,
            "n": check.n, "unit": check.rule.unit,
            "limit": check.rule.limit, "at_least": check.rule.at_least,
            "verdict": check.worth.value, "detail": check.fact,
        }
        for check in checks
    ]  # fmt: skip
    return of_flaws + of_attempts


def set_checks_frame(found: Sequence[CertifiedTask], checks: Sequence[WorthCheck]) -> pl.DataFrame:
    """Return `certified_sets`: `check` and `limit`, words of SQL, become `name` and `wanted`."""
    rows = check_rows(counted(found), checks)
    return frame(
        "certified_sets",
        [{"name": row.pop("check"), "wanted": row.pop("limit"), **row} for row in rows],
    )


def stored_checks(rows: pl.DataFrame) -> list[WorthCheck]:
    """Return the checks of attempts among rows of `certified_sets`."""
    from genenv_core.evidence.worth import RULES

    columns = ("name", "estimate", "low", "high", "n", "detail")
    return [
        WorthCheck(*(row[name] for name in columns))
        for row in rows.iter_rows(named=True)
        if row["name"] in RULES
    ]


def in_markdown(
    title: str, run: str, root: str, facts: Mapping[str, Any] | None, failure: str
) -> str:
    """Return the page of a run that certifies a task set, as markdown for the UI.

    `root` is the option that names the root in a command. `facts` are those of the stage, None
    before its end.
    """
    parts = [f"# {title}"]
    if failure:
        parts.append(f"**Stopped:** {failure}\n\n**Retry** goes on at the task that was cut off.")
    if facts:
        checks = [f"| {check} | {verdict} |" for check, verdict in facts["checks"].items()]
        parts += [
            f"{facts['flawed']} of {facts['tasks']} tasks have a flaw; {facts['verdicts']} of "
            f"{facts['attempts']} attempts have a verdict",
            "\n".join(["| check | verdict |", "| --- | --- |", *checks]),
        ]
    parts.append(
        f"## Look further\n\n```\ngenenv resume {run}{root}\n```\n\nshows intervals too; "
        f"with SQL, in `genenv sql{root}`:\n\n```sql\n"
        f"FROM certified_sets WHERE run_id = '{run}';\n"
        f"FROM set_flaws WHERE run_id = '{run}' AND NOT passed;\n```"
    )
    return "\n\n".join(parts)
