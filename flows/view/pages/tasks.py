"""The task map: pi_env's tasks by difficulty or family, and by how often the agent solved them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from starlette.requests import Request

from flows.view.pages import Page, about, filled
from flows.view.reading import Panel, Reader, Row, parameter, whole_number
from flows.view.shown import colour_of, whole
from genenv_core.storage.sql.duck import text

POINTS = 2500
"""Most tasks that the map draws one by one; of more it draws how many are in each place."""

BY = {
    "difficulty": "difficulty",
    "family": "family",
    "similarity": "similarity to the nearest earlier task",
    "test_similarity": "similarity to the nearest test task",
}
"""Columns for the map's horizontal axis, with their names for people."""
USED = {
    "any": "all that were attempted",
    "agent": "those that trained the agent",
    "env": "those that trained pi_env",
}
ORDERS = {
    "alpha": "abs(p_hat - alpha), task_id",
    "p_hat": "p_hat, task_id",
    "difficulty": "difficulty, task_id",
    "epoch": "epoch, task_id",
    "advantages": "advantages DESC NULLS LAST, task_id",
    "similarity": "similarity DESC NULLS LAST, task_id",
    "test_similarity": "test_similarity DESC NULLS LAST, task_id",
}
NAMES = {"alpha": "nearest to alpha", "advantages": "trained most"}
"""Names for people of the orders whose own names say little."""

WORDS = {
    "advantages": "How hard the agent's updates pushed: the sum of abs(advantage) over the "
    "attempts that they used, once for each update.",
    "tasks": "Tasks of this place of the map.",
    "attempts": "Attempts at them.",
    "success": "Share of these attempts that succeeded.",
    "some_solved": "Share of the tasks that some attempts solved and others did not.",
}
"""Descriptions of the columns that the question of the means makes."""

SETTLED = ("alpha", "n")
"""Columns that the page states once above the table where their values never change."""

STEPS = (1, 2, 5, 10)
"""Distances between two ticks of an axis, each times a power of ten."""

MARK = 9.0
CLUSTER = (110.0, 30.0)
"""Width and height of the room for the tasks in one place of the map."""

PAD = 18
SIDE = CLUSTER[0] / 2 + 6
"""Room above, below and beside the outermost tasks, enough for half a cluster."""

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 900, 390, 68, 52, 22, 14

LABEL = 14
"""Most letters of a family beside the axis."""

LETTER = 13.0
"""Width of a letter beside an axis on a phone, where the drawing shrinks and its letters do not."""


Place = Callable[[Any], float]


@dataclass(frozen=True, slots=True)
class Mark:
    """One task on the map, or several in one place: where, how large, and its text for people."""

    x: float
    y: float
    size: float
    colour: str
    label: str
    task_id: str = ""


def page(reader: Reader, request: Request) -> Page:
    """Return the task map of a run, which the page draws while it streams.

    Raises NotFound and QueryError.
    """
    run, asked = request.path_params["run"], request.query_params
    about(reader, run)
    epoch, by = whole_number(asked, "epoch"), parameter(asked, "by", BY)
    used, order = parameter(asked, "used", USED), parameter(asked, "sort", ORDERS)
    chosen = _chosen(run, epoch, used, asked.get("q", ""))
    epochs = reader.panel(
        "epochs", "Epochs with tasks",
        f"SELECT epoch, count(*) AS tasks FROM task_scores WHERE run_id = {text(run)} "
        "AND source <> 'base' GROUP BY epoch ORDER BY epoch",
    )  # fmt: skip
    settings = reader.panel(
        "settings", "Target", f"SELECT alpha, k_min FROM settings WHERE run_id = {text(run)}"
    )

    def drawn() -> dict[str, Any]:
        """Return the tasks and the map of them."""
        points = reader.panel(
            "tasks", "Tasks",
            f"{_with_advantages(run, chosen)}\nORDER BY {ORDERS[order]}\nLIMIT {POINTS + 1}",
        )  # fmt: skip
        many = len(points) > POINTS
        alike = {name: points.rows[0][name] for name in SETTLED if _is_settled(points, name)}
        columns = [name for name in points.columns if name not in alike]
        points = filled(replace(points, truncated=many, columns=columns))
        binned = _binned(reader, chosen, by) if many else None
        return {
            "points": points, "binned": binned, "map": _map(points, binned, by, settings),
            "alike": {name: value for name, value in alike.items() if value is not None},
        }  # fmt: skip

    return Page(
        "tasks.html.j2", f"Tasks of {run}",
        {
            "run": run, "epochs": epochs, "epoch": epoch, "by": by, "used": used, "sort": order,
            "q": asked.get("q", ""), "BY": BY, "USED": USED, "ORDERS": ORDERS,
            "NAMES": NAMES,
            "settings": settings, "words": WORDS, "drawn": drawn,
            "of_base": _of_base(run, epoch) if used == "agent" else "",
            "means": partial(_means, reader, chosen, by),
            "shape": {"width": WIDTH, "height": HEIGHT, "left": LEFT, "bottom": BOTTOM},
        },
        streams=True,
    )  # fmt: skip


def _is_settled(points: Panel, name: str) -> bool:
    """Return whether a column has one value in all rows, so that the page states it once."""
    return len({row[name] for row in points}) == 1


def _chosen(run: str, epoch: int | None, used: str, words: str) -> str:
    """Return the question for the tasks of the map, without order and limit."""
    where = [f"g.run_id = {text(run)}", "g.source <> 'base'"]
    if used != "any":
        same = "u.group_id = g.group_id" if used == "agent" else "u.row_id = t.generation_id"
        when = "" if epoch is None else f" AND u.epoch = {epoch}"
        where.append(
            "EXISTS (SELECT 1 FROM update_samples AS u WHERE u.run_id = g.run_id AND "
            f"u.policy = {text(used)} AND {same} AND (u.weight IS NULL OR u.weight > 0){when})"
        )
    elif epoch is not None:
        where.append(f"g.epoch = {epoch}")
    where += [
        f"contains(lower(concat_ws(' ', t.task_id, t.family, t.prompt, t.program)), {text(word)})"
        for word in words.lower().split()
    ]
    return (
        "SELECT t.task_id, g.epoch, t.family, t.difficulty, g.successes, g.n, "
        "coalesce(g.skill, g.p_hat) AS p_hat, s.alpha, g.r_env, round(t.similarity, 2) AS "
        "similarity, round(t.test_similarity, 2) AS test_similarity, d.agent_reason, d.env_reason, "
        "g.group_id, t.prompt\n"
        "FROM task_scores AS g\n"
        "JOIN tasks AS t ON t.run_id = g.run_id AND t.task_id = g.task_id\n"
        "JOIN settings AS s ON s.run_id = g.run_id\n"
        "LEFT JOIN decisions AS d ON d.run_id = g.run_id AND d.group_id = g.group_id\n"
        f"WHERE {' AND '.join(where)}"
    )


def _with_advantages(run: str, chosen: str) -> str:
    """Return the question for the tasks, with how hard the agent's updates pushed for each."""
    return (
        "SELECT c.* EXCLUDE (group_id, prompt), round(w.advantages, 2) AS advantages, c.prompt\n"
        f"FROM (\n{chosen}\n) AS c\n"
        "LEFT JOIN (\n    SELECT group_id, sum(abs(advantage)) AS advantages FROM update_samples\n"
        f"    WHERE run_id = {text(run)} AND policy = 'agent' GROUP BY group_id\n"
        ") AS w ON w.group_id = c.group_id"
    )


def _of_base(run: str, epoch: int | None) -> str:
    """Return the question for the base tasks that trained the agent, which the map leaves out."""
    when = "" if epoch is None else f" AND epoch = {epoch}"
    return (
        "SELECT task_id, count(*) AS attempts, sum(abs(advantage)) AS advantages FROM lineage\n"
        f"WHERE run_id = {text(run)} AND policy = 'agent'{when} AND task_id IN (\n"
        f"    SELECT task_id FROM tasks WHERE run_id = {text(run)} AND source = 'base'\n)\n"
        "GROUP BY task_id ORDER BY advantages DESC, task_id"
    )


def _means(reader: Reader, chosen: str, by: str) -> Panel:
    """Return the success at the tasks in each place of the map, from left to right."""
    column = by if by == "family" else f"round({by}, 1)"
    return reader.panel(
        "means", f"Success by {BY[by]}",
        f"SELECT {column} AS {by}, count(*) AS tasks, sum(n) AS attempts, "
        "sum(successes) / sum(n) AS success,\n"
        "    avg(CAST(successes BETWEEN 1 AND n - 1 AS DOUBLE)) AS some_solved\n"
        f"FROM (\n{chosen}\n)\nGROUP BY ALL ORDER BY ALL",
    )  # fmt: skip


def _binned(reader: Reader, chosen: str, by: str) -> Panel:
    column = {"difficulty": "round(difficulty, 1)"}.get(by, by)
    return reader.panel(
        "binned", "How many tasks are where",
        f"SELECT {column} AS place, round(p_hat * 20) / 20 AS p_hat, count(*) AS tasks\n"
        f"FROM ({chosen}) GROUP BY ALL ORDER BY ALL",
    )  # fmt: skip


def _map(points: Panel, binned: Panel | None, by: str, settings: Panel) -> dict[str, Any]:
    """Return the marks, the axes and the band of the map, in units of its drawing."""
    column = by if binned is None else "place"
    chosen = (points if binned is None else binned).rows
    rows = [row for row in chosen if row[column] is not None]
    measured = by != "family"
    places = sorted({row[column] for row in rows})
    along = {place: index for index, place in enumerate(places)}
    families = sorted({row["family"] for row in points if row["family"] is not None})
    low, high = (min(places), max(places)) if places and measured else (0, len(places))

    def x(place: Any) -> float:
        if measured:
            share = (place - low) / (high - low) if high > low else 0.5
        else:
            share = (along[place] + 0.5) / len(places)
        return LEFT + SIDE + share * (WIDTH - LEFT - RIGHT - 2 * SIDE)

    def y(p_hat: float) -> float:
        return TOP + PAD + (1 - p_hat) * (HEIGHT - TOP - BOTTOM - 2 * PAD)

    marks = (
        _bins(rows, x, y, by)
        if binned is not None
        else _points(rows, x, y, column, families, len(places))
    )
    target = settings.first or {"alpha": None, "k_min": None}
    band = None
    if target["alpha"] is not None:
        top, bottom = (
            min(1.0, target["alpha"] + target["k_min"]), max(0.0, target["alpha"] - target["k_min"])
        )  # fmt: skip
        band = {"y": y(top), "height": y(bottom) - y(top), "alpha": y(target["alpha"])}
    if measured and places:
        only_whole = all(float(place).is_integer() for place in places)
        values = [one for one in round_values(low, high) if not only_whole or one.is_integer()]
        ticks = [(x(value), f"{value:g}") for value in values]
    else:
        ticks = [(x(place), str(place)[:LABEL]) for place in places[:: max(1, len(places) // 12)]]
    return {
        "marks": marks, "band": band, "ticks": ticks, "step": _step(ticks),
        "families": families if binned is None else [], "unplaced": len(rows) < len(chosen),
        "levels": [(y(value), value) for value in (0, 0.25, 0.5, 0.75, 1)],
    }  # fmt: skip


def _bins(rows: list[Row], x: Place, y: Place, by: str) -> list[Mark]:
    """Return a circle for each place; the more tasks it has, the larger it is."""
    most = max((row["tasks"] for row in rows), default=1)
    return [
        Mark(
            x(row["place"]), y(row["p_hat"]), 2 + 12 * (row["tasks"] / most) ** 0.5, "s0",
            f"{row['tasks']} tasks, p_hat {row['p_hat']:.2f}, {by} "
            f"{row['place'] if by == 'family' else whole(row['place'])}",
        )
        for row in rows
    ]  # fmt: skip


def _points(
    rows: list[Row], x: Place, y: Place, column: str, families: list[str], places: int
) -> list[Mark]:
    """Return a circle for each task; those in one place lie side by side, so that none hides."""
    together: dict[tuple[Any, float], list[Row]] = {}
    for row in rows:
        together.setdefault((row[column], row["p_hat"]), []).append(row)
    levels = max((row["n"] for row in rows), default=1)
    room = (
        min(CLUSTER[0], 0.8 * (WIDTH - LEFT - RIGHT) / max(places, 1)),
        min(CLUSTER[1], (HEIGHT - TOP - BOTTOM - 2 * PAD) / levels),
    )
    marks: list[Mark] = []
    for (place, p_hat), here in together.items():
        gap, across, down = _heap(len(here), room)
        for number, row in enumerate(here):
            column_of, row_of = number % across, number // across
            in_row = min(across, len(here) - row_of * across)
            colour = colour_of(families.index(row["family"])) if row["family"] in families else "s6"
            label = (
                f"{row['task_id']}: {row['successes']} of {row['n']}, epoch {row['epoch']}, "
                f"family {row['family']}, difficulty {whole(row['difficulty'])}"
            )
            marks.append(
                Mark(
                    x(place) + (column_of - (in_row - 1) / 2) * gap,
                    y(p_hat) + (row_of - (down - 1) / 2) * gap,
                    0.47 * gap, colour, label, row["task_id"],
                )
            )  # fmt: skip
    return marks


def _heap(count: int, room: tuple[float, float]) -> tuple[float, int, int]:
    """Return how far apart the circles of one place lie, how many in a row, and how many rows.

    They stay in the room of their place, so heaps of two places never touch.
    """
    gap = min(MARK, *room)
    while True:
        across = min(count, int(room[0] / gap))
        down = -(-count // across)
        if down * gap <= room[1]:
            return gap, across, down
        gap *= 0.95


def _step(ticks: list[tuple[float, str]]) -> int:
    """Return how many ticks a phone skips to, so that each label has room."""
    widest = max((len(label) for _, label in ticks), default=0)
    return max(1, math.ceil(len(ticks) * (widest + 1) * LETTER / (WIDTH - LEFT)))


def round_values(low: float, high: float) -> list[float]:
    """Return up to eleven round values between two, in order."""
    span = max(high - low, 0.1)
    size = 10.0 ** (math.floor(math.log10(span)) - 1)
    step = next(size * times for times in STEPS if span / (size * times) <= 10)
    first = math.floor(low / step)
    values = [round((first + n) * step, 6) for n in range(13)]
    return [value for value in values if low <= value <= high]
