"""Attempts on the pages of a task and of a trace.

Invariants: the expected answer stands beside what was said, and where an attempt that failed parts
from it is marked in both; a task's request stands there once; attempts that said the same are one
card, and so are equal answers of several epochs to a held-out task; the next task and the next
attempt are a link away.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from html.parser import HTMLParser

import polars as pl
import pytest
from starlette.testclient import TestClient

from flows.view.app import application
from genenv_core.domains.tool_calls import written
from genenv_core.play.calls import with_calls
from tests.mutations import mutation
from tests.unit import builders_root
from tests.unit.builders_root import rows_of, small_root

pytestmark = pytest.mark.slow

TASK = "/runs/run-a/tasks/e0001-t000002"
"""Two of its four attempts succeeded."""

TRACE = "/runs/run-a/traces/e0001-g000002-s000"
FAILED = ("e0001-g000002-s0002", "e0001-g000002-s0003")
REQUEST = "Receive bolts."


def receive(total: int) -> str:
    return written({"name": "receive", "arguments": {"item": "bolts", "total": total}})


def said_in(trace: str) -> str:
    """Return the messages of an attempt: some do not make the calls that are expected."""
    other = trace.startswith("e0001-g000001") or trace in FAILED
    calls = receive(5) + (receive(60 + int(trace[-1])) if other else receive(7))
    messages = [
        {"role": "system", "content": "Use <tools>."},
        {"role": "user", "content": REQUEST},
        {"role": "assistant", "content": calls},
        {"role": "tool", "name": "receive", "content": "recorded"},
        {"role": "tool", "name": "receive", "content": "recorded"},
    ]
    return json.dumps(with_calls(messages))  # type: ignore[arg-type]


def with_words(table: str, epoch: int) -> pl.DataFrame:
    """Return rows of a table, in which attempts make two calls."""
    frame = rows_of(table, epoch)
    if table == "trace_tokens":
        words = [said_in(trace) for trace in frame["trace_id"]]
        return frame.with_columns(messages=pl.Series(words, dtype=pl.String))
    if table == "evaluation_texts":
        return frame.with_columns(messages=pl.lit(said_in("" if epoch == 2 else FAILED[0])))
    if table == "evaluations":
        failure = "" if epoch == 2 else "wrong total"
        return frame.with_columns(success=pl.lit(epoch == 2), failure=pl.lit(failure))
    if table == "tasks":
        return frame.with_columns(
            ground_truth=pl.when(pl.col("prompt").is_not_null()).then(
                pl.lit(receive(5) + receive(7))
            )
        )
    return frame


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """Return a browser of a run whose failed attempts differ in the second call."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builders_root, "rows_of", with_words)
        store = small_root(tmp_path_factory.mktemp("attempts") / "root")
    with TestClient(application(store), base_url="http://localhost") as made:
        yield made


class Marks(HTMLParser):
    """The marked texts of a page, in order, and the links with a rel."""

    def __init__(self, text: str) -> None:
        """Read a page."""
        super().__init__()
        self.found: list[str] = []
        self.rel: dict[str, str] = {}
        self._in = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self._in = tag == "mark"
        if tag == "a" and given.get("rel"):
            self.rel[given["rel"] or ""] = given.get("href") or ""

    def handle_data(self, data: str) -> None:
        if self._in:
            self.found.append(data)

    def handle_endtag(self, tag: str) -> None:
        self._in = False


@mutation(
    "a page marks attempts that did not fail", "flows/view/pages/trace.py",
    'failed = facts.first["success"] is False', "failed = True",
)  # fmt: skip
@mutation(
    "a page marks no attempt", "flows/view/pages/trace.py",
    'failed = facts.first["success"] is False', "failed = False",
)  # fmt: skip
def test_a_trace_that_failed_says_where_it_parts_from_the_expected_answer(client: TestClient):
    failed = client.get(f"{TRACE}2").text
    assert "Expected answer" in failed
    assert Marks(failed).found == ["7)", "62)"]
    assert "none chosen" in failed and "no other attempt" not in failed
    solved = client.get(f"{TRACE}0").text
    assert "Expected answer" in solved and Marks(solved).found == []
    otherwise = client.get("/runs/run-a/traces/e0001-g000001-s0000").text  # it passed all the same
    assert "total=60" in otherwise and Marks(otherwise).found == []


@mutation(
    "two attempts at a task show its request twice", "flows/view/templates/trace.html.j2",
    "{% if loop.index0 and one.held.request", "{% if false and one.held.request",
)  # fmt: skip
def test_two_traces_are_each_marked(client: TestClient):
    both = client.get(f"{TRACE}2?with={TRACE.rsplit('/', 1)[1]}3").text
    assert both.count(f">{REQUEST}</div>") == 1 == both.count("The same request.")
    assert Marks(both).found == ["7)", "62)", "7)", "63)"]


@mutation(
    "each attempt has a card", "flows/view/pages/story.py",
    "cards.setdefault((words, *judged), ", "cards.setdefault((row['trace_id'], *judged), ",
)  # fmt: skip
@mutation(
    "a task's page marks no attempt", "flows/view/pages/story.py",
    'failed=row["success"] is False', "failed=False",
)  # fmt: skip
def test_attempts_that_said_the_same_are_one_card(client: TestClient):
    text = client.get(TASK).text
    cards = text.split('<section class="attempt">')[1:]
    assert [card.count("/traces/") for card in cards] == [2, 1, 1]
    assert [Marks(card).found for card in cards] == [[], ["7)", "62)"], ["7)", "63)"]]
    assert ["expected</span>" in card for card in cards] == [False, True, True]
    assert all("each of 2" in card and card.count("recorded") == 1 for card in cards)


@mutation(
    "each card repeats the request", "flows/view/templates/story.html.j2",
    "{% if card.held.request != all.opening %}", "{% if true %}",
)  # fmt: skip
def test_the_request_stands_once_on_the_page_of_a_task(client: TestClient):
    _, page = client.get(TASK).text.split("<h2>The task</h2>")
    before, *cards = page.split('<section class="attempt">')
    assert "Use &lt;tools&gt;." in before  # the rules too, in what the agent read
    assert not any(REQUEST in card.split("</section>")[0] for card in cards)


@mutation(
    "a task's page does not say what it resembles", "flows/view/templates/story.html.j2",
    "{% if all.resembled is not none and all.resembled.rows %}", "{% if false %}",
)  # fmt: skip
def test_a_task_says_what_it_resembles(client: TestClient):
    text = client.get(TASK).text.split("<h3>What it resembles</h3>")[1].split("<h2>")[0]
    row = TASK.rsplit("/", 1)[0]
    assert f'href="{row}/e0000-base-000000"' in text and "earlier task" in text
    assert f'href="{row}/e0000-test-000002"' in text and "+ 8 bolts 2" in text
    base = client.get("/runs/run-a/tasks/e0000-base-000000").text
    assert "What it resembles" not in base


@mutation(
    "a held-out task seems never to have been tried", "flows/view/pages/story.py",
    "HELD_OUT = {source.value for source in HELDOUT}", "HELD_OUT = set[str]()",
)  # fmt: skip
@mutation(
    "a held-out task's page marks no answer", "flows/view/pages/story.py",
    'failed=one["success"] is False', "failed=False",
)  # fmt: skip
@mutation(
    "a held-out task's page mixes greedy and sampled answers", "flows/view/pages/story.py",
    '        "QUALIFY e.mode = min(e.mode) OVER ()\\n"\n', "",
)  # fmt: skip
def test_a_held_out_task_says_how_each_agent_did_on_it(client: TestClient):
    text = client.get("/runs/run-a/tasks/e0000-test-000000").text
    measured = text.split("How the agent of each epoch did on it</h2>")[1]
    assert measured.count('<td class="s">sampled</td>') == 3  # epochs 0 to 2
    last, before = measured.split('<section class="attempt">')[1:]
    assert "greedy in epoch 2 " in last and "greedy in epoch 0 to 1 " in before
    assert "solved" in last and "wrong total" in before
    assert [Marks(card).found for card in (last, before)] == [[], ["7)", "62)"]]
    assert 'href="/runs/run-a/heldout?split=test"' in text
    assert "None." not in text and "What came of it" not in text
    assert "did on it" not in client.get(TASK).text


def test_a_task_that_was_not_tried_says_so(client: TestClient):
    text = client.get("/runs/run-a/tasks/e0001-t000003").text
    assert "The agent has not attempted it." in text and "How it scored" not in text


@mutation(
    "the next attempt is the one before", "flows/view/pages/trace.py",
    '"before": ids[at - 1] if at else None', '"before": ids[at + 1] if at else None',
)  # fmt: skip
@pytest.mark.parametrize(
    ("place", "ways"),
    [
        (f"{TRACE}0", {"next": f"{TRACE}1"}),
        (f"{TRACE}1", {"prev": f"{TRACE}0", "next": f"{TRACE}2"}),
        (f"{TRACE}3", {"prev": f"{TRACE}2"}),
    ],
)
def test_an_attempt_leads_to_the_next_one(place: str, ways: dict[str, str], client: TestClient):
    assert Marks(client.get(place).text).rel == ways


@mutation(
    "the task after is the last one", "flows/view/pages/story.py",
    "min(task_id) FILTER (task_id >", "max(task_id) FILTER (task_id >",
)  # fmt: skip
def test_a_task_leads_to_the_next_one(client: TestClient):
    rel = Marks(client.get(TASK).text).rel
    assert rel == {"prev": f"{TASK[:-1]}1", "next": f"{TASK[:-1]}3"}
    first = Marks(client.get("/runs/run-a/tasks/e0000-base-000000").text).rel
    assert list(first) == ["next"]


def test_every_page_has_the_keys(client: TestClient):
    for path in ("/", TASK, f"{TRACE}0", "/sql", "/nowhere"):
        assert client.get(path).text.count('<script src="/static/keys.js" defer>') == 1
