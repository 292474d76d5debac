"""The held-out tasks of a run: how the agent of an epoch does on each, beside the agent of another.

The newest agent stands beside that of epoch 0 unless the address names others.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from starlette.requests import Request

from flows.view.pages import Page, about
from flows.view.reading import Panel, Reader, parameter, whole_number
from genenv_core.errors import QueryError
from genenv_core.report.words import MEASURES, spans
from genenv_core.storage.sql.duck import text
from genenv_core.types import TaskSource

LISTED = 200
"""Most tasks on the page."""

WORDS = {
    "tasks": "Test tasks of the family that both agents attempted.",
    "start": "The measure with the earlier agent.",
    "value": "The measure with the later agent.",
    "gain": "value - start.",
    "gain_se": "Standard error of the gain, over the tasks of the family.",
}
"""Descriptions of the columns that these questions make."""

SPLITS = {
    TaskSource.TEST.value: "Nothing learns from them.",
    TaskSource.VALIDATION.value: "The gate alone looks at them: it stops an agent that became much "
    "worse.",
}
"""The sets of held-out tasks, and their purpose; results are of test tasks."""


def page(reader: Reader, request: Request) -> Page:
    """Return the held-out tasks of a run, with those that got worse first.

    The page asks for families and tasks while it streams. Raises NotFound, and QueryError for an
    epoch without measurements.
    """
    run = request.path_params["run"]
    about(reader, run)
    split = parameter(request.query_params, "split", SPLITS)
    family = request.query_params.get("family")
    of_family = "" if family is None else f" AND t.family = {text(family)}"
    where = f"WHERE t.run_id = {text(run)} AND t.source = {text(split)}{of_family}\n"
    newest = None
    if split == TaskSource.TEST:
        newest = reader.panel(
            "newest", "The newest agent",
            f"SELECT epoch, measure FROM outcomes WHERE run_id = {text(run)}",
        ).rows[0]  # fmt: skip
    measured, since, epoch, of_families = list[int](), 0, 0, None
    if newest and newest["epoch"]:
        measured = _measured(reader, run, newest["measure"])
        since = _chosen(request, "since", measured, 0)
        epoch = _chosen(request, "epoch", measured, newest["epoch"])
        if family is None:
            of_families = partial(families, reader, run, epoch, newest["measure"], since=since)
        question = (
            f"WITH changed AS (\n{_changed(run, since, epoch, newest['measure'])}\n)\n"
            "SELECT t.task_id, c.gain, c.start, c.value, t.family, t.difficulty, t.prompt\n"
            "FROM tasks AS t LEFT JOIN changed AS c ON c.task_id = t.task_id\n"
            f"{where}ORDER BY c.gain, t.task_id"
        )
    else:
        question = (
            "SELECT t.task_id, t.family, t.difficulty, t.prompt\n"
            f"FROM tasks AS t\n{where}ORDER BY t.task_id"
        )
    title = f"{split.capitalize()} tasks"
    return Page(
        "heldout.html.j2", title,
        {
            "run": run, "heldout": partial(reader.panel, "heldout", title, question),
            "split": split, "splits": SPLITS, "family": family,
            "newest": newest, "measures": MEASURES, "listed": LISTED, "measured": measured,
            "words": WORDS, "since": since, "epoch": epoch, "families": of_families,
        },
        streams=True,
    )  # fmt: skip


def _measured(reader: Reader, run: str, measure: str) -> list[int]:
    """Return the epochs whose agent has measurements on the test tasks."""
    found = reader.panel(
        "measured", "Epochs in which test tasks were attempted",
        f"SELECT DISTINCT epoch FROM test_results WHERE run_id = {text(run)} "
        f"AND measure = {text(measure)}\nORDER BY epoch",
    )  # fmt: skip
    return [row["epoch"] for row in found]


def _chosen(request: Request, name: str, measured: Sequence[int], usual: int) -> int:
    """Return an epoch from the address, `usual` without one; raises QueryError for any other."""
    given = whole_number(request.query_params, name)
    if given is None:
        return usual
    if given not in measured:
        known = spans(measured)
        raise QueryError(f"{name}={given}: test tasks were measured after epochs {known}")
    return given


def families(
    reader: Reader, run: str, epoch: int | None, measure: str | None, *, since: int = 0
) -> Panel:
    """Return the change of an epoch's agent on each family of test tasks, the worst first.

    `epoch` and `measure` are those of the run's outcome, or others that it has. The change is from
    the agent of epoch `since`.
    """
    return reader.panel(
        "families", f"Test tasks by family, since epoch {since}",
        f"WITH changed AS (\n{_changed(run, since, epoch, measure)}\n)\n"
        "SELECT t.family, c.epoch, c.measure, count(*) AS tasks, avg(c.start) AS start, "
        "avg(c.value) AS value, avg(c.gain) AS gain, "
        "stddev_samp(c.gain) / sqrt(count(*)) AS gain_se\n"
        "FROM changed AS c JOIN tasks AS t ON t.task_id = c.task_id\n"
        f"WHERE t.run_id = {text(run)}\nGROUP BY ALL ORDER BY gain, t.family",
    )  # fmt: skip


def _changed(run: str, since: int, epoch: int | None, measure: str | None) -> str:
    """Return the question for an agent's change on each test task since another epoch."""
    return (
        "    SELECT n.task_id, n.epoch, n.measure, s.value AS start, n.value, "
        "n.value - s.value AS gain\n"
        "    FROM test_results AS n JOIN test_results AS s ON s.run_id = n.run_id "
        "AND s.task_id = n.task_id AND s.measure = n.measure "
        f"AND s.epoch = {since}\n"
        f"    WHERE n.run_id = {text(run)} AND n.epoch = {'NULL' if epoch is None else epoch} "
        f"AND n.measure = {text(measure or '')}"
    )
