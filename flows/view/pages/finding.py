"""One field that finds runs, tasks, generations, groups and traces by id, and tasks by words."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from flows.view.pages import Page
from flows.view.reading import Reader, Row
from genenv_core.addresses import path_of
from genenv_core.storage.sql.duck import text

MOST = 50
"""Tasks, and ids, that are listed."""


def page(reader: Reader, request: Request) -> Page | Response:
    """Return what was found, or go straight to it when it is one thing with this very id."""
    words = request.query_params.get("q", "").strip()
    asked = text(words)
    ids = reader.panel(
        "ids", "By id",
        f"SELECT 'run' AS kind, run_id, run_id AS id FROM runs WHERE run_id = {asked}\n"
        "UNION ALL SELECT 'task', run_id, task_id FROM tasks "
        f"WHERE task_id = {asked} OR generation_id = {asked}\n"
        "UNION ALL SELECT 'trace', run_id, trace_id FROM traces "
        f"WHERE trace_id = {asked}\n"
        "UNION ALL SELECT 'task', run_id, task_id FROM task_scores "
        f"WHERE group_id = {asked}\nORDER BY run_id DESC LIMIT {MOST}",
    )  # fmt: skip
    if ids.first and len({(row["kind"], row["id"]) for row in ids}) == 1:
        return RedirectResponse(place(ids.first), 303)
    found = reader.panel(
        "words", "By words",
        "SELECT run_id, epoch, task_id, source, family, difficulty, rejection, prompt FROM tasks\n"
        "WHERE contains(lower(concat_ws(' ', task_id, family, prompt, program, generation_text)), "
        f"{text(words.lower())})\nORDER BY run_id DESC, epoch DESC, task_id LIMIT {MOST}",
    )  # fmt: skip
    return Page(
        "found.html.j2", f"Search: {words}",
        {"searched": words, "ids": ids, "found": found, "most": MOST, "place": place},
    )  # fmt: skip


def place(row: Row) -> str:
    """Return the page of what has an id."""
    below = {"run": (), "task": ("tasks", row["id"]), "trace": ("traces", row["id"])}
    return path_of(row["run_id"], *below[row["kind"]])
