"""Pages are sent as they are made: a person reads the first lines while the rest is asked for.

Invariants: before a page begins it asks for little; what it asks for later stands in its template
behind a place at which all before is sent; what goes wrong under way is said where the page ends. A
page that renews itself gets the parts that it replaces, and nothing is asked for the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from jinja2 import Environment
from starlette.requests import Request
from starlette.testclient import TestClient

import flows.view
from flows.view.app import PAGES, RENEWING, SENT, application, pieces
from flows.view.pages import Page, finding, rejected
from flows.view.reading import Reader
from genenv_core.errors import QueryError
from tests.mutations import mutation
from tests.unit.builders_root import small_root

TEMPLATES = Path(flows.view.__file__).parent / "templates"
HELPERS = {rejected.bar, rejected.share, finding.place}
"""Functions of a page that ask nothing."""

BEFORE = {
    "/": ["at_work", "unfinished"],
    "/find?q=receive": ["ids"],
    "/runs/{run}": ["run", "stages", "rows", "results", "items"],
    "/runs/{run}/tasks": ["run", "epochs", "settings"],
    "/runs/{run}/heldout": ["run", "newest", "measured"],
    "/runs/{run}/rejections": ["run"],
    "/runs/{run}/rejections?reason=band": ["run"],
    "/runs/{run}/suspects": ["run"],
    "/runs/{run}/suspects?reason=by_chance": ["run"],
    "/runs/{run}/lineage": ["run", "checkpoints"],
    "/runs/{run}/checkpoints/{policy}/{epoch}": ["run", "checkpoint"],
    "/runs/{run}/tasks/{task}": ["run", "task", "beside"],
}
"""What each page asks before it begins."""


class Asking(Reader):
    """A reader that notes what it is asked."""

    def panel(self, name: str, title: str, sql: str) -> Any:
        """Note the name of a question, and ask it."""
        self.asked.append(name)
        return super().panel(name, title, sql)

    asked: list[str]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asking]:
    """Return a reader of one run."""
    made = Asking(small_root(tmp_path_factory.mktemp("sending") / "root"))
    yield made
    made.close()


@mutation(
    "suspects are asked for before their page begins", "flows/view/pages/rejected.py",
    'lambda: Matrix.of(reader.panel("by_epoch", "Suspects", sql), "suspects")',
    '(lambda one: lambda: one)(Matrix.of(reader.panel("by_epoch", "", sql), "suspects"))',
)  # fmt: skip
@mutation(
    "the curves of a run are asked for before its page begins", "flows/view/pages/run.py",
    '"curves": partial(curves, reader, [run], by),',
    '"curves": (lambda one: lambda: one)(curves(reader, [run], by)),',
)  # fmt: skip
@mutation(
    "the map of tasks is asked for before what a person chooses is sent",
    "flows/view/templates/tasks.html.j2", "{{ sent }}{% set found", "{% set found",
)  # fmt: skip
@pytest.mark.parametrize("path", BEFORE)
def test_a_page_asks_little_before_it_begins(path: str, reader: Asking):
    reader.asked = []
    route, _, query = path.partition("?")
    page = PAGES[route](reader, _request(reader, query))
    assert isinstance(page, Page) and page.streams
    assert reader.asked == BEFORE[path]
    template = (TEMPLATES / page.template).read_text(encoding="utf-8")
    for name, value in page.values.items():
        if callable(value) and value not in HELPERS:
            before, called, _ = template.partition(f"{name}()")
            assert called and "{{ sent }}" in before, name
            value()
    assert len(reader.asked) > len(BEFORE[path])


def _request(reader: Reader, query: str) -> Request:
    """Return a request for a page of the run, its newest task and its first checkpoint."""
    sql = "SELECT max(task_id) AS task FROM tasks WHERE run_id = 'run-a' AND source = 'generated'"
    task = reader.ask(sql).frame["task"].item()
    return cast(
        Request,
        SimpleNamespace(
            path_params={"run": "run-a", "task": task, "policy": "agent", "epoch": "1"},
            query_params=dict(part.split("=") for part in query.split("&") if part),
        ),
    )


@mutation(
    "a page waits for all its answers before it is sent", "flows/view/app.py",
    "if part != SENT:", "if part is not None:",
)  # fmt: skip
def test_what_a_page_knows_is_sent_before_it_asks_for_more():
    asked: list[str] = []
    page = Environment().from_string("head{{ sent }}{{ ask('one') }}{{ sent }}{{ ask('two') }}")
    sent = pieces(page, {"ask": lambda what: asked.append(what) or what, "sent": SENT})
    assert (next(sent), asked) == ("head", [])
    assert (next(sent), asked) == ("one", ["one"])
    assert (list(sent), asked) == (["two"], ["one", "two"])


def test_what_goes_wrong_while_a_page_is_sent_is_said_where_it_ends():
    def late() -> str:
        raise QueryError("more than 20 s of <work>")

    page = Environment().from_string("head{{ sent }}more{{ late() }}tail")
    sent = list(pieces(page, {"late": late, "sent": SENT}))
    assert sent == ["head", 'more<p class="bad" role="alert">more than 20 s of &lt;work&gt;</p>']


@mutation(
    "a page that renews itself asks for its curves each time", "flows/view/templates/run.html.j2",
    "{% if (epochs.rows or not (results.rows or measures)) and not renewing %}",
    "{% if epochs.rows or not (results.rows or measures) %}",
)  # fmt: skip
@mutation(
    "every page is one that renews itself", "flows/view/app.py",
    'values["renewing"] = RENEWING in request.headers', 'values["renewing"] = True',
)  # fmt: skip
@pytest.mark.slow
def test_a_page_that_renews_itself_gets_the_parts_that_it_replaces(tmp_path: Path):
    script = (TEMPLATES.parent / "static" / "live.js").read_text(encoding="utf-8")
    assert f'"{RENEWING}": ' in script

    def parts(text: str) -> dict[str, str]:
        return dict(re.findall(r'data-part="(\w+)">(.*?)</div>', text, re.S))

    with TestClient(application(small_root(tmp_path / "root")), "http://127.0.0.1") as client:
        whole = client.get("/runs/run-a").text
        renewed = client.get("/runs/run-a", headers={RENEWING: "1"}).text
    assert parts(renewed) == parts(whole) and set(parts(whole)) == {"now", "findings", "stages"}
    for late in ("curves", "families", "epochs", "cost"):
        assert f'id="{late}"' in whole and f'id="{late}"' not in renewed
