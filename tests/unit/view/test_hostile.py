"""Hostile texts in runs and in questions, as the pages of `genenv view` show them.

Invariants: texts of models, names of runs and values of answers come out as text, whatever they
hold: no element, attribute or script of theirs is in a page; a question that is not a plain reading
one is refused with a sentence; the next page works.
"""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from flows.view.app import application
from genenv_core.hiding import visible
from tests.examples import some
from tests.mutations import mutation
from tests.unit.view.hostile_root import RUN_NAMES, TEXTS, hostile_root

pytestmark = pytest.mark.slow

QUESTIONS = [
    "COPY tasks TO '/tmp/genenv-view-was-here'",
    "WITH x AS (COPY tasks TO '/tmp/genenv-view-was-here') SELECT 1",
    "ATTACH '/tmp/x.db'",
    "INSTALL httpfs",
    "LOAD '/tmp/x.so'",
    "SET enable_external_access = true",
    "PRAGMA database_list",
    "CREATE TABLE x AS SELECT 1",
    "DELETE FROM tasks",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_csv('/proc/self/environ')",
    "SELECT * FROM glob('/**')",
    "SELECT * FROM '/etc/passwd'",
    "SELECT getenv('HOME')",
    "SELECT current_setting('memory_limit')",
    "SELECT * FROM query('SELECT 1')",
    "SELECT 1; SELECT 2",
    "SELECT * FROM range(10000000000) AS a, range(10000000000) AS b ORDER BY 1",
    "/* */",
    "SELECT",
    "(" * 3000,
]
ANSWERS = [
    "SELECT '<script>alert(1)</script>' AS \"<img src=x onerror=alert(1)>\"",
    "SELECT 'nan'::DOUBLE AS a, 1 AS b UNION ALL SELECT 'inf'::DOUBLE, 2",
    "SELECT 170141183460469231731687303715884105727 AS n FROM range(3)",
    "SELECT 1 AS x, 2 AS x, 'infinity'::TIMESTAMP AS t, INTERVAL 1 YEAR AS i FROM range(2)",
    "SELECT '\\x00\\xff'::BLOB AS b, [1, NULL] AS l, {'a': '</script>'} AS s, MAP {1: 2} AS m",
    "SELECT '</script><script>alert(1)</script>' AS t, unnest(range(5000)) AS n",
]


class Elements(HTMLParser):
    """What a page is made of: its elements with their attributes, and its words."""

    def __init__(self, text: str) -> None:
        """Read a page."""
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


FORBIDDEN = {"img", "iframe", "object", "embed", "style", "base", "meta-refresh", "video", "audio"}


def harmless(text: str) -> Elements:
    """Return the elements of a page after a look at each of them."""
    page = Elements(text)
    for tag, given in page.found:
        assert tag not in FORBIDDEN, tag
        assert not any(name.startswith("on") or name == "style" for name in given), (tag, given)
        for name in ("href", "src", "action"):
            assert given.get(name, "/").startswith(("/", "#")), given
        if tag == "script":
            assert (
                given.get("src", "").startswith("/static/") or given["type"] == "application/json"
            )
    assert sum(tag == "h1" for tag, _ in page.found) == 1
    return page


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """Return a browser of a root with hostile texts in run-a and runs with hostile names."""
    store = hostile_root(tmp_path_factory.mktemp("hostile") / "root")
    with TestClient(application(store), base_url="http://127.0.0.1:4300") as made:
        yield made


PAGES = (
    "",
    "/tasks",
    "/tasks?by=family",
    "/heldout",
    "/rejections",
    "/suspects",
    "/lineage",
    "/checkpoints/agent/1",
)


@mutation(
    "texts of models are markup", "flows/view/shown.py",
    "if place else escape(said)", "if place else Markup(said)",
)  # fmt: skip
@pytest.mark.parametrize("page", PAGES)
def test_texts_of_models_come_out_as_text(page: str, client: TestClient):
    answer = client.get(f"/runs/run-a{page}")
    assert answer.status_code == 200
    harmless(answer.text)


def test_each_text_stands_in_its_task_and_its_trace_and_nothing_of_it_is_markup(client: TestClient):
    asked = (
        "SELECT t.task_id, t.prompt, min(r.trace_id) AS trace_id FROM tasks AS t LEFT JOIN traces "
        "AS r ON r.run_id = t.run_id AND r.task_id = t.task_id WHERE t.run_id = 'run-a' "
        "GROUP BY ALL ORDER BY t.task_id LIMIT 6"
    )
    rows = client.get("/sql", params={"q": asked, "as": "json"}).json()
    prompts = [row["prompt"] for row in rows if row["prompt"]]
    assert len(prompts) > 3 and all(text in prompt for text in TEXTS for prompt in prompts)
    for row in rows:
        story = client.get(f"/runs/run-a/tasks/{quote(row['task_id'])}")
        assert story.status_code == 200
        words = "".join(harmless(story.text).words)
        assert row["prompt"] is None or visible(row["prompt"]) in words
        if row["trace_id"]:
            trace = client.get(f"/runs/run-a/traces/{quote(row['trace_id'])}")
            assert trace.status_code == 200
            harmless(trace.text)


def test_runs_with_hostile_names_and_labels_are_listed_opened_and_compared(client: TestClient):
    listed = harmless(client.get("/").text)
    assert "<script>alert(1)</script>" in listed.words
    for name in RUN_NAMES:
        assert visible(name) in listed.words
        answer = client.get(f"/runs/{quote(name, safe='')}")
        assert answer.status_code == 200
        harmless(answer.text)
    half = len(RUN_NAMES) // 2  # a page compares as many runs as have room in it
    for names in (RUN_NAMES[:half], RUN_NAMES[half:]):
        found = client.get("/compare", params={"run": ["run-a", *names]})
        assert found.status_code == 200
        words = harmless(found.text).words
        assert all(visible(name) in words for name in names)


@pytest.mark.parametrize("sql", some(QUESTIONS, QUESTIONS[:3]), ids=lambda sql: sql[:40])
def test_what_is_no_plain_question_is_refused_in_words(sql: str, client: TestClient):
    answer = client.get("/sql", params={"q": sql})
    assert answer.status_code == 400
    harmless(answer.text)
    assert 'role="alert"' in answer.text
    assert "root:x:0" not in answer.text and "Traceback" not in answer.text
    assert not Path("/tmp/genenv-view-was-here").exists()


@mutation(
    "what an answer holds can end the script of the plot", "flows/view/app.py",
    '    return Markup(text.replace("<", "\\\\u003c"))\n', "    return Markup(text)\n",
)  # fmt: skip
@mutation(
    "an infinite time ends the page that shows it", "flows/view/reading.py",
    "        frame = spelled(answer.frame)\n", "        frame = answer.frame\n",
)  # fmt: skip
@pytest.mark.parametrize("sql", ANSWERS, ids=lambda sql: sql[:40])
def test_any_answer_is_shown_and_drawn_from_as_text_and_numbers(sql: str, client: TestClient):
    answer = client.get("/sql", params={"q": sql})
    assert answer.status_code == 200, answer.text
    harmless(answer.text)


def test_there_are_sixty_hostile_inputs_at_least(client: TestClient):
    from tests.unit.view.test_pages import HOSTILE

    assert len({*HOSTILE, *TEXTS, *QUESTIONS, *ANSWERS, *RUN_NAMES}) >= 60
    assert client.get("/").status_code == 200
