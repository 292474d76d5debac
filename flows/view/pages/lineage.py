"""Shows from which rows checkpoints come, as a drawing, and the rows of one checkpoint."""

from __future__ import annotations

from functools import partial
from typing import Any

from starlette.requests import Request

from flows.view.pages import Page, about
from flows.view.reading import Panel, Reader, whole_number
from genenv_core.errors import NotFound
from genenv_core.storage.sql.duck import text
from genenv_core.types import Policy

LEFT, TOP, LANE, RIGHT = 84, 70, 170, 70
"""In units of the drawing: the space before the first epoch, above the first lane, between lanes,
and at the end."""

WIDE, CLOSE, FAR = 1200, 66, 96
"""The drawing's width, and the least and the largest distance of two epochs that it may cause."""

NAMES = {Policy.AGENT: "pi_agent", Policy.ENV: "pi_env"}


def page(reader: Reader, request: Request) -> Page:
    """Return the checkpoints of a run and the epochs whose rows made them; raises NotFound.

    The page counts the rows while it streams.
    """
    run = request.path_params["run"]
    about(reader, run)
    own = f"run_id = {text(run)}"
    checkpoints = reader.panel(
        "checkpoints", "Checkpoints",
        "SELECT policy, epoch, published, is_best, gate, gate_detail, steps, digest, "
        f"parent_digest FROM checkpoints WHERE {own} ORDER BY epoch, policy",
    )  # fmt: skip

    def counted() -> tuple[Panel, dict[str, Any]]:
        """Return how many rows of each epoch are behind each update, and the drawing of them."""
        rows = reader.panel(
            "rows", "Rows behind each update",
            "SELECT policy, epoch, source, row_epoch, count(*) AS rows FROM lineage "
            f"WHERE {own} GROUP BY ALL ORDER BY policy, epoch, row_epoch, source",
        )  # fmt: skip
        return rows, _map(checkpoints, rows)

    values = {"run": run, "checkpoints": checkpoints, "counted": counted, "names": NAMES}
    return Page("lineage.html.j2", f"Lineage of {run}", values, streams=True)


def checkpoint(reader: Reader, request: Request) -> Page:
    """Return the rows that made one checkpoint; raises NotFound.

    The page asks for them while it streams.
    """
    run, policy = request.path_params["run"], request.path_params["policy"]
    epoch = whole_number(request.path_params, "epoch")
    about(reader, run)
    if policy not in NAMES:
        raise NotFound(f"there is no policy {policy!r}: {' and '.join(NAMES)} have checkpoints")
    where = f"run_id = {text(run)} AND policy = {text(policy)} AND epoch = {epoch}"
    found = reader.panel("checkpoint", "The checkpoint", f"SELECT * FROM checkpoints WHERE {where}")
    if found.first is None:
        raise NotFound(f"run {run} has no checkpoint of {policy} after epoch {epoch}")
    number, row_id = ("advantage", "trace_id") if policy == Policy.AGENT else ("weight", "row_id")
    made_of = partial(
        reader.panel, "made_of", "Rows that the update trained on",
        f"SELECT row_id AS {row_id}, task_id, source, row_epoch, policy_version, {number} "
        f"FROM lineage WHERE {where} ORDER BY abs({number}) DESC, row_id",
    )  # fmt: skip
    counted = partial(
        reader.panel, "counted", "Where they come from",
        f"SELECT source, row_epoch, count(*) AS rows, count(DISTINCT task_id) AS tasks, "
        f"min({number}) AS {number}_low, max({number}) AS {number}_high "
        f"FROM lineage WHERE {where} GROUP BY source, row_epoch ORDER BY row_epoch DESC, source",
    )  # fmt: skip
    return Page(
        "checkpoint.html.j2", f"{NAMES[Policy(policy)]} after epoch {epoch}",
        {"run": run, "found": found, "made_of": made_of, "counted": counted, "epoch": epoch},
        streams=True,
    )  # fmt: skip


def _map(checkpoints: Panel, rows: Panel) -> dict[str, Any]:
    """Return where to draw checkpoints, and the flows of rows between epochs."""
    lanes = {policy: TOP + number * LANE for number, policy in enumerate(NAMES)}
    most = max((row["rows"] for row in rows), default=1)

    last = max((row["epoch"] for row in checkpoints), default=0)
    step = max(CLOSE, min(FAR, (WIDE - LEFT - RIGHT) / max(1, last)))

    def x(epoch: int) -> float:
        return round(LEFT + epoch * step, 1)

    nodes = [
        {"x": x(row["epoch"]), "y": lanes[Policy(row["policy"])], **row} for row in checkpoints
    ]
    counts: dict[tuple[str, int], int] = {}
    arcs: list[dict[str, Any]] = []
    for row in rows:
        key = (row["policy"], row["epoch"])
        counts[key] = counts.get(key, 0) + row["rows"]
        if row["row_epoch"] is None or row["row_epoch"] >= row["epoch"]:
            continue
        begin, end, y = x(row["row_epoch"]), x(row["epoch"]), lanes[Policy(row["policy"])]
        up = min(46.0, 14.0 + 6.0 * (row["epoch"] - row["row_epoch"]))
        arcs.append(
            {
                "path": f"M{begin:.0f} {y - 12:.0f} C{begin:.0f} {y - up - 12:.0f} "
                f"{end:.0f} {y - up - 12:.0f} {end:.0f} {y - 12:.0f}",
                "width": 1 + 7 * row["rows"] / most,
                "label": f"{row['rows']} rows of epoch {row['row_epoch']} ({row['source']}) in the "
                f"update of epoch {row['epoch']}",
            }
        )
    return {
        "nodes": nodes, "arcs": arcs, "counts": counts, "lanes": lanes,
        "epochs": [(x(epoch), epoch) for epoch in range(last + 1)],
        "width": x(last) + RIGHT, "height": TOP + LANE * (len(NAMES) - 1) + 84,
    }  # fmt: skip
