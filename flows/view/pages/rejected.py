"""What a run rejected and why, signs that pi_env games its reward, and the rows behind each number.

Suspects have a page of their own: their question reads every attempt with its text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from starlette.requests import Request

from flows.view.meaning import described
from flows.view.pages import Page, about, filled
from flows.view.reading import Panel, Reader, Row, parameter, whole_number
from flows.view.shown import TASK_ID
from genenv_core.report.words import percent
from genenv_core.storage.sql.duck import text

LISTED = 200
"""Most rows behind a cell on one page."""

FROM = {
    "tasks": "pi_env's texts that became no task",
    "agent": "tasks whose attempts pi_agent's update may not use",
    "env": "tasks whose attempts pi_env's update may not use",
}
"""What a row is missing from, as `rejections.kept_from` names it."""

SMALL = 0.005
"""A positive share below it would round to nothing."""

BARS = 10
"""The number of the longest bar behind a number; the style sheet names them w0, the shortest, w1
and so on."""

REASON = re.compile(r"`(\w+)`: (.*?)(?= `\w+`: |$)", re.DOTALL)
"""Matches a reason and its meaning in the dictionary."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """Counts by reason and epoch: `groups` holds a panel's rows by group, reason and epoch."""

    panel: Panel
    epochs: list[int]
    groups: dict[str, dict[str, dict[int, Row]]]
    counted: str
    """The column with the counts; beside it is the column `share`."""

    @classmethod
    def of(cls, panel: Panel, counted: str) -> Matrix:
        """Return the matrix of rows with an epoch, a reason and perhaps a group."""
        groups: dict[str, dict[str, dict[int, Row]]] = {}
        for row in panel:
            reasons = groups.setdefault(row.get("kept_from", ""), {})
            reasons.setdefault(row["reason"], {})[row["epoch"]] = row
        epochs = {row["epoch"] for row in panel}
        between = list(range(min(epochs, default=0), max(epochs, default=-1) + 1))
        return cls(panel, between, groups, counted)

    def totals(self, group: str) -> dict[int, Row]:
        """Return by epoch how many rows the reasons of a group refused in all, and their share.

        A group with one reason needs no sum. Rows without a group get none either: a row may have
        several reasons there, and would count twice.
        """
        found: dict[int, Row] = {}
        if not group or len(self.groups[group]) < 2:
            return found
        for cells in self.groups[group].values():
            for epoch, row in cells.items():
                total = found.setdefault(epoch, {self.counted: 0, "share": 0.0})
                total[self.counted] += row[self.counted]
                total["share"] += row["share"] or 0.0
        return found

    @property
    def reasons(self) -> list[str]:
        """Return the reasons of all groups in order, each once."""
        return list(dict.fromkeys(reason for group in self.groups.values() for reason in group))


def bar(share: float | None) -> str:
    """Return the name of the bar behind a share, '' for none."""
    return f"w{min(BARS, round(share * BARS))}" if share else ""


def share(part: float | None) -> str:
    """Return a share as percent, '' for None; a positive share is never 0%."""
    return "<1%" if part and part < SMALL else percent(part)


def page(reader: Reader, request: Request) -> Page:
    """Return the rejections of a run, or the rows behind one; raises NotFound, QueryError.

    The page asks for them while it streams.
    """
    run = request.path_params["run"]
    about(reader, run)
    if request.query_params.get("reason"):
        return _rejected(reader, run, request.query_params)
    own = f"run_id = {text(run)}"
    by_epoch = (
        "SELECT epoch, kept_from, rejection AS reason, rejections, share FROM rejections "
        f"WHERE {own} ORDER BY kept_from = 'tasks' DESC, kept_from, "
        "sum(rejections) OVER (PARTITION BY kept_from, rejection) DESC, reason, epoch"
    )
    return Page(
        "rejected.html.j2", f"Rejections of {run}",
        {
            "run": run, "FROM": FROM,
            "matrix": lambda: Matrix.of(
                reader.panel("by_epoch", "By epoch", by_epoch), "rejections"
            ),
            "bar": bar, "share": share, "meaning": _meaning("rejections", "rejection"),
            "reasons": partial(
                reader.panel, "reasons", "Reasons",
                "SELECT rejection, kept_from, sum(rejections) AS rows, min(epoch) AS first_epoch, "
                "max(epoch) AS last_epoch, arg_max(example_task_id, epoch) AS task_id, "
                "arg_max(example_detail, epoch) AS detail, arg_max(example_text, epoch) AS text\n"
                f"FROM rejections WHERE {own}\nGROUP BY kept_from, rejection\n"
                "ORDER BY kept_from = 'tasks' DESC, kept_from, rows DESC, rejection",
            ),
        },
        streams=True,
    )  # fmt: skip


def _rejected(reader: Reader, run: str, asked: Mapping[str, str]) -> Page:
    """Return the rows that the run rejected for a reason, of all epochs or the one asked for."""
    kept_from, reason = parameter(asked, "from", FROM), asked["reason"]
    epoch = whole_number(asked, "epoch")
    when = "" if epoch is None else f" AND {{}}epoch = {epoch}"
    counted = partial(
        reader.panel, "counted", "How many",
        "SELECT sum(rejections) AS rows, sum(rejections) / sum(rejections / share) AS share "
        f"FROM rejections WHERE run_id = {text(run)} AND kept_from = {text(kept_from)} "
        f"AND rejection = {text(reason)}{when.format('')}",
    )  # fmt: skip
    if kept_from == "tasks":
        sql = (
            "SELECT epoch, task_id, rejection_detail AS detail, "
            "coalesce(generation_text, program) AS text FROM tasks\n"
            f"WHERE run_id = {text(run)} AND source NOT IN ('base', 'validation', 'test') "
            f"AND rejection = {text(reason)}{when.format('')}\nORDER BY epoch, task_id"
        )
    else:
        sql = (
            "SELECT s.epoch, s.task_id, s.p_hat, s.distance, t.family, t.difficulty, "
            "coalesce(t.generation_text, t.program) AS text FROM selections AS s\n"
            "JOIN tasks AS t ON t.run_id = s.run_id AND t.task_id = s.task_id\n"
            f"WHERE s.run_id = {text(run)} AND s.update = {text(kept_from)} "
            f"AND s.reason = {text(reason)}{when.format('s.')}\nORDER BY s.epoch, s.task_id"
        )
    where = "all epochs" if epoch is None else f"epoch {epoch}"
    meaning = _meaning("rejections", "rejection").get(reason, "")
    return Page(
        "behind.html.j2", f"{reason} of {where}",
        {
            "run": run, "way": "rejections", "share": share, "listed": LISTED,
            "counted": counted, "behind": partial(reader.panel, "behind", "Rows", sql),
            "about": f"{meaning} Missing from {kept_from}: {FROM[kept_from]}.".strip(),
        },
        streams=True,
    )  # fmt: skip


def suspects(reader: Reader, request: Request) -> Page:
    """Return the suspects of a run, or the rows behind one reason; raises NotFound, QueryError.

    The page asks for them while it streams.
    """
    run, asked = request.path_params["run"], request.query_params
    about(reader, run)
    own = f"run_id = {text(run)}"
    if reason := asked.get("reason"):
        return _suspected(reader, own, run, reason, whole_number(asked, "epoch"))
    sql = (
        "SELECT s.epoch, s.reason, count(*) AS suspects, "
        "nullif(count(DISTINCT s.task_id), 0) / any_value(n.tasks) AS share\n"
        f"FROM suspects AS s LEFT JOIN (\n{_new_tasks(own)}\n) AS n ON n.epoch = s.epoch\n"
        f"WHERE s.{own}\nGROUP BY s.epoch, s.reason\n"
        "ORDER BY sum(count(*)) OVER (PARTITION BY s.reason) DESC, s.reason, s.epoch"
    )
    values = {
        "run": run, "bar": bar, "share": share, "meaning": _meaning("suspects", "reason"),
        "matrix": lambda: Matrix.of(reader.panel("by_epoch", "Suspects", sql), "suspects"),
    }  # fmt: skip
    return Page("suspects.html.j2", f"Suspects of {run}", values, streams=True)


def _suspected(reader: Reader, own: str, run: str, reason: str, epoch: int | None) -> Page:
    when = "" if epoch is None else f" AND epoch = {epoch}"
    where = f"{own} AND reason = {text(reason)}{when}"
    counted = f"SELECT count(*) AS rows FROM suspects WHERE {where}"
    rows = (
        "SELECT s.epoch, s.task_id, s.family, s.value, s.threshold, s.detail, t.prompt AS text, "
        "o.prompt AS earlier_text\n"
        f"FROM (SELECT * FROM suspects WHERE {where}) AS s\n"
        "LEFT JOIN tasks AS t ON t.run_id = s.run_id AND t.task_id = s.task_id\n"
        "LEFT JOIN tasks AS o ON o.run_id = s.run_id "
        f"AND o.task_id = regexp_extract(s.detail, {text(TASK_ID)})\n"
        "ORDER BY s.epoch, s.task_id, s.family"
    )
    of = "all epochs" if epoch is None else f"epoch {epoch}"
    values = {
        "run": run, "way": "suspects", "share": share, "listed": LISTED,
        "about": _suspicion(reason),
        "counted": lambda: reader.panel("counted", "How many", counted),
        "behind": lambda: filled(reader.panel("behind", "Rows", rows)),
    }  # fmt: skip
    return Page("behind.html.j2", f"{reason} of {of}", values, streams=True)


def _suspicion(reason: str) -> str:
    """Return what suspects of this reason are and what their numbers count, '' if unknown."""
    meaning, value = (_meaning("suspects", name).get(reason, "") for name in ("reason", "value"))
    if not value:
        return meaning
    listed = "A row is listed where the value, without its sign, reaches the threshold."
    return f"{meaning} Its value: {value} {listed}"


def _new_tasks(own: str) -> str:
    """Return the question for how many valid tasks are new in each epoch."""
    return (
        f"SELECT epoch, count(*) AS tasks FROM tasks WHERE {own} AND valid "
        "AND source NOT IN ('base', 'validation', 'test') GROUP BY epoch"
    )


def _meaning(view: str, column: str) -> dict[str, str]:
    """Return the meaning of each reason in a column of a view, from the dictionary."""
    return dict(REASON.findall(described()[view][column]))
