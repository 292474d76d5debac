"""One field that finds things by their id, and runs and tasks by words in any order."""

from __future__ import annotations

import re
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from flows.view.pages import Page
from flows.view.reading import Panel, Reader, Row, parameter
from genenv_core.addresses import path_of
from genenv_core.errors import QueryError
from genenv_core.storage.sql.duck import text

MOST = 50
"""Most hits, and ids, on the page."""

CUT = re.compile(r"([a-z])(\d+)(?:…|\.{3})(\d+)(?:\.(\d+))?")
"""Matches an id as `flows.view.shown.brief` cuts it."""

PART = re.compile(r'"([^"]*)"|(\S+)')
"""Matches a part of a search: the text between quotation marks, or a word."""

WITHIN = {"all": "all runs", "run": "the run that the search came from"}
"""Where a search looks."""

WORDS = 60
"""Most different words of a search: it looks for each of them in every task."""


def page(reader: Reader, request: Request) -> Page | Response:
    """Return the hits, or a redirect to the only thing that has this very id.

    Hits in the run that the search came from stand first; `within` this run there are no others.
    The page asks for its hits while it streams. Raises QueryError, such as for more than `WORDS`
    words.
    """
    asked = request.query_params.get("q", "").strip()
    words = _parts(asked)
    if len(words) > WORDS:
        raise QueryError(f"{len(words)} different words: at most {WORDS} are searched for at once")
    run = request.query_params.get("run")
    within = parameter(request.query_params, "within", WITHIN)
    first = "" if run is None else f"run_id = {text(run)} DESC, "
    alone = _alone(run) if within == "run" else ""
    ids = reader.panel(
        "ids", "By id",
        f"FROM (\n{_with_id(asked)}\n){alone}\nORDER BY {first}run_id DESC LIMIT {MOST}",
    )  # fmt: skip
    own = [row for row in ids if row["run_id"] == run] or ids.rows
    if len({(row["kind"], row["id"]) for row in own}) == 1:
        return RedirectResponse(place(own[0]), 303)
    values = {
        "searched": asked, "words": words, "most": MOST, "place": place, "of_run": run,
        "within": within,
    }  # fmt: skip
    question = _hits(asked, words) if words else ""

    def hits() -> tuple[Panel, Panel]:
        """Return how many hits there are, and the first of them."""
        counted = reader.panel(
            "counted", "Number of hits",
            "SELECT count(*) AS hits, count(DISTINCT run_id) AS runs "
            f"FROM (\n{question}\n){alone}",
        )  # fmt: skip
        found = reader.panel(
            "found", "Hits",
            f"SELECT id, kind, run_id, epoch, source, family, difficulty, rejection, prompt\n"
            f"FROM (\n{question}\n){alone}\n"
            f"ORDER BY has_id DESC, {first}kind, run_id DESC, epoch DESC, id LIMIT {MOST}",
        )  # fmt: skip
        return counted, found

    title = f"Search: {asked}" if words else "Search"
    return Page("found.html.j2", title, values | {"hits": hits}, streams=True)


def _alone(run: str | None) -> str:
    """Return SQL for the condition that a hit belongs to a run; raises QueryError without a run."""
    if not run:
        raise QueryError("within=run: write the name of the run as well, as run=NAME")
    return f"\nWHERE run_id = {text(run)}"


def _parts(asked: str) -> list[str]:
    """Return the parts that must all occur, lower-case, each once: words and quoted phrases."""
    found = (phrase or word for phrase, word in PART.findall(asked.lower()))
    return list(dict.fromkeys(part for part in found if part.strip()))


def place(row: Row) -> str:
    """Return the address of the page of a hit."""
    below = {"run": (), "task": ("tasks", row["id"]), "trace": ("traces", row["id"])}
    return path_of(row["run_id"], *below[row["kind"]])


def _with_id(asked: str) -> str:
    """Return the question for the things that have this very id."""
    return (
        f"SELECT 'run' AS kind, run_id, run_id AS id FROM runs WHERE {_is('run_id', asked)}\n"
        "UNION SELECT 'task', run_id, task_id FROM tasks "
        f"WHERE {_is('task_id', asked)} OR {_is('generation_id', asked)}\n"
        f"UNION SELECT 'trace', run_id, trace_id FROM traces WHERE {_is('trace_id', asked)}\n"
        f"UNION SELECT 'task', run_id, task_id FROM task_scores WHERE {_is('group_id', asked)}"
    )


def _is(column: str, asked: str) -> str:
    """Return SQL for the condition that a column has an id, whole or as pages cut it (`t5…100`)."""
    if cut := CUT.fullmatch(asked):
        kind, epoch, place, sample = cut.groups()
        last = "" if sample is None else rf"\.0*{sample}"
        return f"regexp_full_match({column}, '{kind}0*{epoch}-[0-9a-f]{{8}}-0*{place}{last}')"
    return f"{column} = {text(asked)}"


def _hits(asked: str, words: Sequence[str]) -> str:
    """Return the question for things with this id, or with all of these words in any order.

    It passes over each table once, and neither joins nor holds rows: most tasks may be hits.
    """

    def all_in(place: str) -> str:
        return " AND ".join(f"contains(lower({place}), lower({text(word)}))" for word in words)

    spoken = all_in(_SEARCHED)
    of_task = f"{_is('task_id', asked)} OR {_is('generation_id', asked)}"
    of_run = _is("run_id", asked)
    nothing = "NULL AS epoch, NULL AS source, NULL AS family, NULL AS difficulty, NULL AS rejection"
    own = "epoch, source, family, difficulty, rejection, prompt"
    grouped = f"SELECT run_id, task_id FROM task_scores WHERE {_is('group_id', asked)}"
    return (
        f"SELECT 'run' AS kind, run_id, run_id AS id, {nothing}, NULL AS prompt, "
        f"{of_run} AS has_id\nFROM runs WHERE {of_run} OR {all_in('run_id')}\n"
        f"UNION ALL SELECT 'task', run_id, task_id, {own}, coalesce({of_task}, false)\n"
        f"FROM tasks WHERE {of_task} OR ({spoken})\n"
        f"UNION ALL SELECT 'task', run_id, task_id, {own}, true\n"
        f"FROM tasks WHERE (run_id, task_id) IN ({grouped}) AND NOT ({spoken})\n"
        f"UNION ALL SELECT 'trace', run_id, trace_id, {nothing}, NULL, true\n"
        f"FROM traces WHERE {_is('trace_id', asked)}"
    )


_SEARCHED = "concat_ws(' ', task_id, family, prompt, program, generation_text)"
"""SQL for the text of a task that a search looks into."""
