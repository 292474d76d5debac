"""Who may ask the pages of `genenv view`.

Invariants: another name than this machine's, another origin, another method than reading, or a
missing token is refused before a page is made; every answer forbids scripts from elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from flows.view.app import application
from flows.view.guarding import HEADERS
from tests.mutations import mutation
from tests.unit.builders_root import small_root

GUARDING = "flows/view/guarding.py"

HOST = "http://127.0.0.1:4300"


@pytest.fixture(name="client", scope="module")
def a_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """Return a browser of the pages of a small root."""
    store = small_root(tmp_path_factory.mktemp("guard") / "root")
    with TestClient(application(store), base_url=HOST, follow_redirects=False) as made:
        yield made


@mutation(
    "another page may start requests at the view", GUARDING,
    "        return origin == ", "        return True or origin == ",
)  # fmt: skip
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "localhost:4300"}, 200),
        ({"host": "evil.example"}, 400),
        ({"host": "127.0.0.1.evil.example"}, 400),
        ({"origin": HOST}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 200),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, 403),
        ({"sec-fetch-site": "same-site", "sec-fetch-mode": "cors"}, 403),
    ],
)
def test_only_this_page_and_its_person_may_ask(headers, status, client: TestClient):
    assert client.get("/", headers=headers).status_code == status


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_pages_are_read_only(method: str, client: TestClient):
    assert client.request(method, "/sql").status_code == 405


@pytest.mark.parametrize("path", ["/", "/sql", "/nowhere", "/static/view.css", "/static/no.js"])
def test_every_answer_forbids_what_comes_from_elsewhere(path: str, client: TestClient):
    headers = client.get(path).headers
    for name, value in HEADERS.items():
        assert headers[name] == value
    assert "unsafe" not in headers["content-security-policy"]


def test_pages_hold_no_script_or_style_in_their_markup(client: TestClient):
    for path in ("/", "/runs/run-a", "/runs/run-a/tasks", "/sql"):
        text = client.get(path).text
        assert "<style" not in text and " style=" not in text and " onclick" not in text
        assert "<script>" not in text
        assert "http://" not in text.replace("http://www.w3.org", "")


@mutation(
    "a link from elsewhere asks its question", "flows/view/pages/console.py",
    '    may = request.headers.get("sec-fetch-site", "none") in ("none", "same-origin")\n',
    "    may = True\n",
)  # fmt: skip
def test_a_link_from_elsewhere_fills_in_a_question_and_does_not_ask_it(client: TestClient):
    asked = {"q": "SELECT 41 + 1 AS answer_is"}
    elsewhere = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert ">42<" in client.get("/sql", params=asked).text
    filled = client.get("/sql", params=asked, headers=elsewhere).text
    assert "SELECT 41 + 1" in filled
    assert ">42<" not in filled


@mutation(
    "the view asks for no token where others can reach it", GUARDING,
    "        if self._token is None:\n", "        if True:\n",
)  # fmt: skip
def test_a_token_is_asked_for_where_others_can_reach_the_page(tmp_path: Path):
    store = small_root(tmp_path / "root")
    app = application(store, hosts=["*"], token="right")
    with TestClient(app, base_url="http://box:4300", follow_redirects=False) as client:
        assert client.get("/").status_code == 401
        assert client.get("/static/view.css").status_code == 401
        assert client.get("/?token=wrong").status_code == 401
        first = client.get("/runs/a%3Fb?token=right&q=1&by=")
        assert first.status_code == 303
        assert first.headers["location"] == "/runs/a%3Fb?q=1&by="
        cookie = first.headers["set-cookie"].lower()
        assert "httponly" in cookie and "samesite=strict" in cookie
        assert client.get("/runs/run-a").status_code == 200
        client.cookies.clear()
        away = client.get("http://box:4300//evil.example/?token=right")
        assert away.headers["location"] == "/evil.example/"


def test_two_servers_of_a_host_keep_their_tokens_apart(tmp_path: Path):
    store = small_root(tmp_path / "root")
    names: list[str] = []
    for token in ("one", "other"):
        app = application(store, hosts=["*"], token=token)
        with TestClient(app, base_url="http://box:4300", follow_redirects=False) as client:
            given = client.get("/", params={"token": token}).headers["set-cookie"]
            names.append(given.split("=")[0])
    assert names[0] != names[1]
