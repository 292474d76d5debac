"""The search of `genenv view`.

Invariants: a search finds what has all of its words, in any order and with any capitals, each as it
is written; it says how many hits there are, however few are listed; ids and words are one list; one
within a run lists and counts that run's hits alone; one that finds nothing says what it looked at.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from starlette.testclient import TestClient

from flows.view.app import application
from flows.view.pages import finding
from flows.view.pages.finding import _is
from flows.view.reading import Panel, Reader
from flows.view.shown import brief
from genenv_core.storage.sql.catalog import query
from genenv_core.storage.sql.duck import text
from tests.mutations import mutation
from tests.unit.builders_root import fill, small_root
from tests.unit.view.reading_pages import Shown, tables

pytestmark = pytest.mark.slow

FINDING = "flows/view/pages/finding.py"
IDS = (
    "t000005-f628b418-0000100",
    "t000005-f628b418-0000010",
    "t000015-f628b418-0000100",
    "n000005-f628b418-0000100",
    "g000005-f628b418-0000100.0001",
    "g000005-f628b418-0000100",
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a root with two runs, in which pi_env wrote of nuts, and every request is of bolts."""
    place = tmp_path_factory.mktemp("find") / "root"
    fill(small_root(place), "run-b")
    return place


def found(client: TestClient, words: str) -> tuple[str, Shown | None]:
    """Return the page of a search, and its hits."""
    text = client.get("/find", params={"q": words}).text
    return text, next((one for one in tables(text) if one.name == "found"), None)


@mutation(
    "a search takes its words for a phrase", FINDING,
    "PART.findall(asked.lower())", '[("", asked.lower())]',
)  # fmt: skip
@mutation(
    "one word of a search is enough", FINDING,
    'return " AND ".join(f"contains(', 'return " OR ".join(f"contains(',
)  # fmt: skip
@mutation(
    "capitals of a task hide it from a search", FINDING,
    "contains(lower({place}), ", "contains({place}, ",
)  # fmt: skip
@pytest.mark.parametrize("words", ["nuts receive", "RECEIVE  nuts", "ReCeIvE bolts nut"])
def test_all_words_are_found_in_any_order(words: str, client: TestClient, pool):
    has = " AND ".join(
        f"lower(prompt || ' ' || program || ' ' || coalesce(generation_text, '')) LIKE '%{word}%'"
        for word in words.lower().split()
    )
    expected = query(pool, f"SELECT run_id, task_id FROM tasks WHERE {has}").rows()
    text, hits = found(client, words)
    assert hits is not None and len(expected) > 1
    assert {(row[2], row[0]) for row in hits.rows} == set(expected)
    assert f"{len(expected)} hits in 2 runs" in text


@mutation(
    "a search takes a phrase for words", FINDING, 're.compile(r\'"([^"]*)"|(\\S+)\')',
    're.compile(r"(^$)|(\\S+)")',
)  # fmt: skip
def test_a_phrase_in_quotation_marks_is_found_in_its_order(client: TestClient):
    text, hits = found(client, '"8 Bolts" receive')
    assert hits is not None and hits.rows
    assert "<q>8 bolts</q>, <q>receive</q>" in text
    assert found(client, '"bolts 8"')[1] is None
    assert found(client, 'bolts "8')[1] is None  # one mark alone is a sign like others


@mutation(
    "a search takes some signs for others", FINDING,
    "contains(lower({place}), lower({text(word)}))",
    "lower({place}) LIKE '%' || {text(word)} || '%'",
)  # fmt: skip
@pytest.mark.parametrize("words", ["re_eive", "rec%ve", "receive.bolts", "' OR 1=1", "b[o]lts"])
def test_a_word_is_found_as_it_is_written(words: str, client: TestClient):
    text, hits = found(client, words)
    assert hits is None
    assert 'role="status">Nothing has ' in text


@mutation(
    "a search counts what it lists", FINDING,
    'f"FROM (\\n{question}\\n){alone}",', 'f"FROM (\\n{question}\\nLIMIT {MOST}){alone}",',
)  # fmt: skip
def test_all_hits_are_counted_and_the_first_listed(
    client: TestClient, pool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(finding, "MOST", 3)
    text, hits = found(client, "bolts")
    all_of_them = query(pool, "SELECT 1 FROM tasks WHERE contains(prompt, 'bolts')").height
    assert all_of_them > 3
    assert hits is not None and len(hits.rows) == 3
    assert f"{all_of_them} hits in 2 runs" in text
    assert "The first 3 are listed" in text


@mutation(
    "a search by words leaves out runs", FINDING,
    "WHERE {of_run} OR {all_in('run_id')}", "WHERE {of_run}",
)  # fmt: skip
def test_runs_and_tasks_are_hits_of_one_list(client: TestClient):
    _, hits = found(client, "RUN -")
    assert hits is not None
    assert [row[:3] for row in hits.rows] == [["run-b", "run", "run-b"], ["run-a", "run", "run-a"]]


@mutation(
    "a search from a run's page lists other runs first", FINDING,
    'f"run_id = {text(run)} DESC, "', '""',
)  # fmt: skip
def test_a_search_from_a_run_s_page_finds_what_is_of_that_run_first(client: TestClient, pool):
    page = client.get("/runs/run-a").text
    assert '<input type="hidden" name="run" value="run-a">' in page
    assert '<input type="hidden" name="run"' not in client.get("/").text
    for run in ("run-a", "run-b"):
        hits = client.get("/find", params={"q": "bolts", "run": run}).text
        assert next(one for one in tables(hits) if one.name == "found").rows[0][2] == run
        (task,) = query(pool, "SELECT task_id FROM tasks WHERE epoch = 1 LIMIT 1")["task_id"]
        asked = {"q": task, "run": run}
        answer = client.get("/find", params=asked, follow_redirects=False)
        assert answer.headers["location"] == f"/runs/{run}/tasks/{task}"


@mutation(
    "a search within a run lists hits of others", FINDING,
    'f"FROM (\\n{question}\\n){alone}\\n"', 'f"FROM (\\n{question}\\n)\\n"',
)  # fmt: skip
@mutation(
    "a search within a run counts hits of others", FINDING,
    'FROM (\\n{question}\\n){alone}",', 'FROM (\\n{question}\\n)",',
)  # fmt: skip
@mutation(
    "an id within a run is searched for in others", FINDING,
    "{_with_id(asked)}\\n){alone}", "{_with_id(asked)}\\n)",
)  # fmt: skip
@mutation(
    "the next search within a run is one of all runs", "flows/view/templates/parts.html.j2",
    '<input type="hidden" name="within" value="run">', "",
)  # fmt: skip
def test_a_search_within_a_run_finds_what_is_of_that_run_alone(client: TestClient, pool):
    asked = {"q": "bolts", "run": "run-a"}
    everywhere = client.get("/find", params=asked).text
    assert '<a href="/find?q=bolts&amp;run=run-a&amp;within=run">' in everywhere
    assert 'name="within"' not in everywhere and "2 runs" in everywhere
    own = client.get("/find", params={**asked, "within": "run"}).text
    assert '<a href="/find?q=bolts&amp;run=run-a">Search in all runs</a>' in own
    assert '<input type="hidden" name="within" value="run">' in own
    (hits,) = [one for one in tables(own) if one.name == "found"]
    expected = query(
        pool, "SELECT 1 FROM tasks WHERE run_id = 'run-a' AND contains(prompt, 'bolts')"
    )
    assert {row[2] for row in hits.rows} == {"run-a"} and len(hits.rows) == expected.height
    assert f"{expected.height} hits in 1 run for" in own
    assert [row["id"] for row in query(pool, hits.sql).to_dicts()] == [row[0] for row in hits.rows]
    other = {"q": "run-b", "run": "run-a", "within": "run"}
    answer = client.get("/find", params=other, follow_redirects=False)
    assert answer.status_code == 200 and "Nothing has" in answer.text


@pytest.mark.parametrize("asked", ["within=run", "within=run&run=", "within=here&run=run-a"])
def test_a_search_within_no_run_says_what_to_write(asked: str, client: TestClient):
    answer = client.get(f"/find?q=bolts&{asked}")
    assert answer.status_code == 400 and "write" in answer.text


@mutation(
    "an id of two runs is not that of the run whose page asks", FINDING,
    'if row["run_id"] == run]', "if False]",
)  # fmt: skip
def test_a_cut_id_of_several_runs_is_that_of_the_run_whose_page_asks(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
):
    ids = {"run-b": "t000012-bbbbbbbb-0000019", "run-a": "t000012-aaaaaaaa-0000019"}
    rows = [{"kind": "task", "run_id": run, "id": task} for run, task in ids.items()]
    asked = Reader.panel

    def panel(reader: Reader, name: str, title: str, sql: str) -> Panel:
        return (
            Panel(name, title, sql, rows, []) if name == "ids" else asked(reader, name, title, sql)
        )

    monkeypatch.setattr(Reader, "panel", panel)
    words = {"q": "t12…19"}
    for run, task in ids.items():
        answer = client.get("/find", params={**words, "run": run}, follow_redirects=False)
        assert answer.headers["location"] == f"/runs/{run}/tasks/{task}"
    assert client.get("/find", params=words, follow_redirects=False).status_code == 200


@mutation(
    "an id of several things is not found by it", FINDING,
    """f"{_is('task_id', asked)} OR {_is('generation_id', asked)}"\n""",
    """_is("task_id", asked)\n""",
)  # fmt: skip
def test_an_id_that_several_things_have_lists_them_all(tmp_path: Path):
    store = small_root(tmp_path / "root")
    fill(store, "e0001-n000000")  # a run whose id is also that of a generation
    with TestClient(application(store), base_url="http://localhost") as browser:
        _, hits = found(browser, "e0001-n000000")
    assert hits is not None
    kinds = [row[1] for row in hits.rows]
    assert (kinds.count("run"), kinds.count("task")) == (1, 2)


@mutation(
    "an id is not found as pages cut it", FINDING,
    "if cut := CUT.fullmatch(asked):", "if cut := None:",
)  # fmt: skip
@pytest.mark.parametrize("ident", [*IDS, "run-a"])
def test_an_id_is_found_as_pages_cut_it(ident: str):
    for asked in (brief(ident), brief(ident).replace("…", "...")):
        rows = duckdb.sql(
            f"SELECT id FROM (VALUES {', '.join(f'({text(one)})' for one in (*IDS, 'run-a'))}) "
            f"AS t(id) WHERE {_is('id', asked)}"
        ).fetchall()
        assert rows == [(ident,)]


def test_a_search_without_words_says_what_to_write(client: TestClient):
    text, hits = found(client, "   ")
    assert hits is None and "Write an id, or words of a task" in text


def test_nothing_found_says_what_was_searched_and_what_to_try(client: TestClient):
    text, _ = found(client, "nuts zork")
    said = "Nothing has all of <q>nuts</q>, <q>zork</q>. Searched were the ids of runs"
    assert said in text and "Try fewer words" in text


def test_more_words_than_are_searched_for_are_refused(client: TestClient):
    answer = client.get("/find", params={"q": " ".join(map(str, range(finding.WORDS + 1)))})
    assert answer.status_code == 400
    assert f"at most {finding.WORDS} are searched for" in answer.text
