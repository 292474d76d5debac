"""One field that finds runs, tasks, generations, traces and checkpoints: by id or by words."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from flows.view.pages import Page
from flows.view.reading import Reader
from genenv_core.storage.sql.duck import text

MOST = 50


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
        return RedirectResponse(_place(request, ids.first), 303)
    found = reader.panel(
        "words", "By words",
        "SELECT run_id, epoch, task_id, source, family, difficulty, rejection, prompt FROM tasks\n"
        "WHERE contains(lower(concat_ws(' ', task_id, family, prompt, program, generation_text)), "
        f"{text(words.lower())})\nORDER BY run_id DESC, epoch DESC, task_id LIMIT {MOST}",
    )  # fmt: skip
    return Page("found.html.j2", f"Search: {words}", {"q": words, "ids": ids, "found": found})


def _place(request: Request, row: dict[str, str]) -> str:
    kind = {"run": "", "task": f"tasks/{row['id']}", "trace": f"traces/{row['id']}"}[row["kind"]]
    return f"/runs/{row['run_id']}/{kind}".rstrip("/")
