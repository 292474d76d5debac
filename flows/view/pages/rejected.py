"""What was rejected and why, and what looks as if pi_env were gaming its reward.

Suspects are a page of their own: their question reads every attempt with its text.
"""

from __future__ import annotations

from starlette.requests import Request

from flows.view.pages import Page, about
from flows.view.reading import Reader
from genenv_core.storage.sql.duck import text

EXAMPLES = 50
"""Suspects that are listed of each reason, the first ones; all are counted."""


def page(reader: Reader, request: Request) -> Page:
    """Return the rejections of a run; raises NotFound."""
    run = request.path_params["run"]
    about(reader, run)
    own = f"run_id = {text(run)}"
    return Page(
        "rejected.html.j2", f"Rejections of {run}",
        {
            "run": run,
            "reasons": reader.panel(
                "reasons", "Reasons",
                "SELECT kept_from, rejection, sum(rejections) AS rows, min(epoch) AS first_epoch, "
                "max(epoch) AS last_epoch, arg_max(example_task_id, epoch) AS task_id, "
                "arg_max(example_detail, epoch) AS detail, arg_max(example_text, epoch) AS text\n"
                f"FROM rejections WHERE {own}\nGROUP BY kept_from, rejection\n"
                "ORDER BY kept_from = 'tasks' DESC, kept_from, rows DESC, rejection",
            ),
            "by_epoch": reader.panel(
                "by_epoch", "By epoch",
                "SELECT epoch, kept_from, rejection, rejections, share FROM rejections "
                f"WHERE {own} ORDER BY epoch, kept_from, rejections DESC, rejection",
            ),
        },
    )  # fmt: skip


def suspects(reader: Reader, request: Request) -> Page:
    """Return the suspects of a run, which are asked for while the page is on its way; NotFound."""
    run = request.path_params["run"]
    about(reader, run)
    sql = (
        "SELECT reason, count(*) OVER same AS with_this_reason, epoch, task_id, family, value, "
        f"threshold, detail\nFROM suspects WHERE run_id = {text(run)}\n"
        "WINDOW same AS (PARTITION BY reason)\n"
        f"QUALIFY row_number() OVER (same ORDER BY epoch, task_id) <= {EXAMPLES}\n"
        "ORDER BY reason, epoch, task_id"
    )
    values = {
        "run": run, "examples": EXAMPLES,
        "suspects": lambda: reader.panel("suspects", "Suspects", sql),
    }  # fmt: skip
    return Page("suspects.html.j2", f"Suspects of {run}", values, streams=True)
