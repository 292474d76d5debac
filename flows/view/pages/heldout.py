"""The held-out tasks of a run: how the newest agent does on each, beside the one of epoch 0."""

from __future__ import annotations

from starlette.requests import Request

from flows.view.pages import Page, about
from flows.view.reading import Panel, Reader, parameter
from genenv_core.report.words import MEASURES
from genenv_core.storage.sql.duck import text
from genenv_core.types import TaskSource

LISTED = 200
"""Tasks that are listed at once."""

SPLITS = {
    TaskSource.TEST.value: "Nothing learns from them.",
    TaskSource.VALIDATION.value: "The gate alone looks at them: it stops an agent that became much "
    "worse.",
}
"""Which held-out tasks, and what they are for; results are of test tasks."""


def page(reader: Reader, request: Request) -> Page:
    """Return the held-out tasks of a run, those that got worse first; raises NotFound."""
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
    if newest and newest["epoch"]:
        question = (
            f"WITH changed AS (\n{_changed(run, newest['epoch'], newest['measure'])}\n)\n"
            "SELECT t.task_id, c.gain, c.start, c.value, t.family, t.difficulty, t.prompt\n"
            "FROM tasks AS t LEFT JOIN changed AS c ON c.task_id = t.task_id\n"
            f"{where}ORDER BY c.gain, t.task_id"
        )
    else:
        question = (
            "SELECT t.task_id, t.family, t.difficulty, t.prompt\n"
            f"FROM tasks AS t\n{where}ORDER BY t.task_id"
        )
    tasks = reader.panel("heldout", f"{split.capitalize()} tasks", question)
    return Page(
        "heldout.html.j2", tasks.title,
        {
            "run": run, "heldout": tasks, "split": split, "splits": SPLITS, "family": family,
            "newest": newest, "measures": MEASURES, "listed": LISTED,
        },
    )  # fmt: skip


def families(reader: Reader, run: str, epoch: int | None, measure: str | None) -> Panel:
    """Return how far the agent of an epoch is on each family of test tasks, the worst first.

    `epoch` and `measure` are those of the run's outcome.
    """
    return reader.panel(
        "families", "Test tasks by family, since epoch 0",
        f"WITH changed AS (\n{_changed(run, epoch, measure)}\n)\n"
        "SELECT t.family, c.epoch, c.measure, count(*) AS tasks, avg(c.start) AS start, "
        "avg(c.value) AS value, avg(c.gain) AS gain, "
        "stddev_samp(c.gain) / sqrt(count(*)) AS gain_se\n"
        "FROM changed AS c JOIN tasks AS t ON t.task_id = c.task_id\n"
        f"WHERE t.run_id = {text(run)}\nGROUP BY ALL ORDER BY gain, t.family",
    )  # fmt: skip


def _changed(run: str, epoch: int | None, measure: str | None) -> str:
    """Return the question how far an agent is on each test task since epoch 0."""
    return (
        "    SELECT n.task_id, n.epoch, n.measure, s.value AS start, n.value, "
        "n.value - s.value AS gain\n"
        "    FROM test_results AS n JOIN test_results AS s ON s.run_id = n.run_id "
        "AND s.task_id = n.task_id AND s.measure = n.measure AND s.epoch = 0\n"
        f"    WHERE n.run_id = {text(run)} AND n.epoch = {epoch or 'NULL'} "
        f"AND n.measure = {text(measure or '')}"
    )
