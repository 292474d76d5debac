"""What was rejected and why, and what looks as if pi_env were gaming its reward."""

from __future__ import annotations

from starlette.requests import Request

from flows.view.pages import Page, about
from flows.view.reading import Reader
from genenv_core.storage.sql.duck import text


def page(reader: Reader, request: Request) -> Page:
    """Return the rejections and suspects of a run; raises NotFound."""
    run = request.path_params["run"]
    about(reader, run)
    own = f"run_id = {text(run)}"
    return Page(
        "rejected.html.j2", f"Rejections and suspects of {run}",
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
            "kinds": reader.panel(
                "kinds", "Suspects by reason",
                "SELECT reason, count(*) AS suspects, min(epoch) AS first_epoch, "
                f"max(epoch) AS last_epoch FROM suspects WHERE {own} "
                "GROUP BY reason ORDER BY suspects DESC, reason",
            ),
            "suspects": reader.panel(
                "suspects", "Suspects",
                "SELECT epoch, reason, task_id, family, value, threshold, detail FROM suspects "
                f"WHERE {own} ORDER BY reason, epoch, task_id LIMIT 1000",
            ),
        },
    )  # fmt: skip
