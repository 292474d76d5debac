"""What the page that compares runs asks, without a server.

Invariants: too many runs, or too few, are refused before anything is asked about them; the
configurations of compared runs are parsed once; how a run differs is what SQL says of the same runs
in the list of all.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest
from starlette.requests import Request

from flows.view.curves import MOST
from flows.view.grouping import among, differing, set_apart
from flows.view.pages import Page, comparing
from flows.view.pages.comparing import MOST_GROUPED
from flows.view.reading import Panel
from genenv_core.errors import NotFound
from tests.mutations import mutation

FILE = "flows/view/pages/comparing.py"
GROUPING = "flows/view/grouping.py"

LIKE_B = {"clip": 0.2, "kl": 0.1, "lr": 1e-5}
CONFIGS: dict[str, dict[str, Any]] = {
    "a": {"seed": 0, "grpo": LIKE_B, "rwr": {"steps": 4, "rehearsal": 0.0}, "tags": [1]},
    "b": {"seed": 1, "grpo": LIKE_B, "rwr": {"steps": 4, "rehearsal": 0.25}, "tags": [1]},
    "c": {"seed": 2, "rwr": {"steps": 16, "pay": "signal", "track": None}, "note": "x" * 60},
    "d": {"seed": 3, "rwr": {"steps": 16}, "teacher": {"api_key": "k", "url": "http://m:p@h/x"}},
    "e": {"seed": 4, "rwr": {"steps": 16, "on": True}, "teacher": {"api_key": ""}},
}
DOMAINS = {"a": "desk", "b": "desk", "c": "desk", "d": "maze", "e": "maze"}


class Recorder:
    """Answers the questions of a page from a table of runs, and keeps them."""

    def __init__(self) -> None:
        """Hold the runs."""
        self.asked: dict[str, str] = {}
        self.store = SimpleNamespace(uri="memory")
        self.con = duckdb.connect()
        self.con.execute(
            "CREATE TABLE runs (run_id TEXT, arm TEXT, domain TEXT, config JSON, seed INT, "
            "epochs_planned INT, started_at TIMESTAMP)"
        )
        rows = [
            (run, "genenv", DOMAINS[run], json.dumps(config)) for run, config in CONFIGS.items()
        ]
        self.con.executemany("INSERT INTO runs VALUES (?, ?, ?, ?, 0, 1, NULL)", rows)

    def panel(self, name: str, title: str, sql: str) -> Panel:
        """Return the answer; results on test tasks are those of no table here."""
        self.asked[name] = sql
        if name == "results":
            return Panel(name, title, sql, [], [])
        found = self.con.sql(sql)
        rows = [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]
        return Panel(name, title, sql, rows, found.columns)


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(comparing, "curves", lambda *_: SimpleNamespace(lines=[]))
    monkeypatch.setattr(comparing, "_first", lambda *_: ("", []))
    return Recorder()


def opened(reader: Any, runs: Sequence[str], by: str = "run") -> Page:
    query = "&".join([f"by={by}", *(f"run={run}" for run in runs)])
    return comparing.page(
        reader, Request({"type": "http", "query_string": query.encode(), "headers": []})
    )


@mutation(
    "runs are asked about before they are counted", FILE,
    "    if not 2 <= len(names) <= most:\n",
    '    reader.panel("members", "", _members(names, by))\n    if not 2 <= len(names) <= most:\n',
)  # fmt: skip
@pytest.mark.parametrize(
    ("by", "many"), [("run", MOST + 1), ("arm", MOST_GROUPED + 1), ("settings", MOST_GROUPED + 1)]
)
def test_too_many_runs_are_refused_before_anything_is_asked_about_them(
    by: str, many: int, reader: Any
) -> None:
    names = [f"run-{place}" for place in range(many)]
    reader.con.executemany("INSERT INTO runs (run_id) VALUES (?)", [(name,) for name in names])
    page = opened(reader, names, by)
    assert page.template == "choose.html.j2" and f"{many} were given." in page.values["says"]
    assert list(reader.asked) == ["choice"] and "config" not in reader.asked["choice"]


@pytest.mark.parametrize("runs", [["nobody"], ["a", "nobody"], ["nobody", *"abcde" * 2, *"xyzuvw"]])
def test_a_run_that_is_not_there_is_named_whatever_the_count(runs: list[str], reader: Any) -> None:
    with pytest.raises(NotFound, match="nobody"):
        opened(reader, runs)


@mutation(
    "the configurations of compared runs are parsed twice", FILE,
    'return f"SELECT run_id, domain FROM runs WHERE {among(names)}"',
    'return f"WITH {differing(among(names), \'domain\', \' \')} SELECT run_id, domain FROM runs"',
)  # fmt: skip
def test_configurations_of_runs_are_parsed_once(reader: Any) -> None:
    opened(reader, ["b", "a", "d"])
    assert list(reader.asked) == ["members", "differences", "results"]
    assert sum(sql.count("json_tree(") for sql in reader.asked.values()) == 1


@mutation(
    "compared runs are held against those of other domains", GROUPING,
    "                if domains[run] == domain\n", "",
)  # fmt: skip
@mutation(
    "the settings that set a run apart are the first of the alphabet", GROUPING,
    "for _, word in sorted(words)[:NAMED]", "for _, word in words[:NAMED]",
)  # fmt: skip
@mutation(
    "the words of a compared run show a secret", GROUPING,
    "kept = setting(read, name)", "kept = read",
)  # fmt: skip
@pytest.mark.parametrize("names", ["ab", "ca", "de", "edcba", "cbad", "ad"])
def test_how_a_run_differs_is_what_sql_says(names: str, reader: Any) -> None:
    told = opened(reader, list(names)).values["told"]
    sql = (
        f"WITH {differing(among(list(names)), 'domain', ' ')}\nSELECT r.run_id, a.words\n"
        f"FROM runs AS r LEFT JOIN apart AS a USING (run_id) WHERE {among(list(names))}"
    )
    assert told == {run: words or "" for run, words in reader.con.sql(sql).fetchall()}
    assert not names.startswith("ed") or told["c"].endswith(" more")


def test_one_setting_alone_is_told() -> None:
    rows = [{"setting": "rwr.steps", "a": "4", "b": "16", "c": None}]
    domains = dict.fromkeys("abc", "desk")
    assert set_apart(rows, domains) == {"a": "rwr.steps 4", "b": "rwr.steps 16", "c": ""}
