"""The page on a run in the Prefect UI: where it stands, and where to look further."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from typing import Any

from prefect.artifacts import create_markdown_artifact

from flows.artifacts import Publisher, table
from flows.environment import MLFLOW_VARIABLE
from genenv_core.config.schema import RunConfig

log = logging.getLogger("genenv.flows")

COMMANDS = (
    "genenv status {run} --root {root}",
    "genenv report {run} --root {root} -o report.html",
    "genenv resume {run} --root {root}",
)
QUERIES = (
    ("SELECT epoch, p_hat, r_env, share_in_band FROM curriculum", "ORDER BY epoch"),
    ("SELECT failure, sum(attempts) AS n FROM failures", "GROUP BY failure ORDER BY n DESC"),
    ("SELECT epoch, stage, attempt, state, seconds, error FROM stage_runs", "ORDER BY started_at"),
)
"""What a summary suggests to ask, around its `WHERE run_id = ...`."""


def publish_summary(config: RunConfig, publisher: Publisher) -> None:
    """Make the summary artifact of a flow run; whatever fails in it is a line in the log."""
    try:
        create_markdown_artifact(
            summary(config, publisher.rows, publisher.failure, _mlflow(config)),
            key=publisher.key("summary"),
            description=f"{config.run_id}: where it stands and where to look further",
        )
    except Exception as error:  # the run matters more
        log.warning("the summary was not sent: %s: %s", type(error).__name__, str(error)[:300])


def summary(config: RunConfig, rows: dict[int, dict[str, Any]], failure: str, mlflow: str) -> str:
    """Return the page as markdown; `mlflow` is the address of the MLflow run, '' without one."""
    run, root = config.run_id, config.root
    done = len([number for number in rows if number > 0])
    parts = [f"# {run}: {done} of {config.epochs} epochs in this flow run"]
    if failure:
        parts.append(
            f"**Stopped:** {failure}\n\n**Retry** continues it; finished stages are reused."
        )
    if rows:
        parts += [_change(rows), _markdown_table(table(rows))]
    link = f"- MLflow: [metrics and model versions of {run}]({mlflow})\n" if mlflow else ""
    commands = "\n".join(command.format(run=run, root=root) for command in COMMANDS)
    queries = "\n".join(f"{select}\n  WHERE run_id = '{run}' {rest};" for select, rest in QUERIES)
    parts.append(
        f"## Look further\n\n{link}- on the command line, where the root is:\n\n"
        f"```\n{commands}\n```\n\n- with SQL, in `genenv sql --root {root}`:\n\n"
        f"```sql\n{queries}\n```"
    )
    return "\n\n".join(parts)


def _change(rows: dict[int, dict[str, Any]]) -> str:
    first, last = rows[min(rows)], rows[max(rows)]
    return (
        f"Held-out success {first['heldout_success']:.3f} in epoch {min(rows)}, "
        f"{last['heldout_success']:.3f} in epoch {max(rows)} (sampled)."
    )


def _markdown_table(cells: list[dict[str, str]]) -> str:
    titles = list(cells[0])
    lines = [titles, ["---"] * len(titles), *(list(cell.values()) for cell in cells)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _mlflow(config: RunConfig) -> str:
    """Return the address of the run in MLflow's own UI, '' when there is none to give."""
    base = os.environ.get(MLFLOW_VARIABLE)
    if not base or not config.tracking.enabled or "mlflow" not in sys.modules:
        return ""
    from tasks.mlflow_client import open_client
    from tasks.stores import artifacts_of

    with contextlib.suppress(Exception):  # a link less
        client = open_client(config, artifacts_of(config.root).store.home)
        experiment = client.get_experiment_by_name(config.tracking.experiment)
        if experiment is None:
            return ""
        found = client.search_runs(
            [experiment.experiment_id], f"tags.`genenv.run_id` = '{config.run_id}'"
        )
        if found:
            return f"{base}/#/experiments/{experiment.experiment_id}/runs/{found[0].info.run_id}"
    return ""
