"""How the runs of one arm differ in their settings, and lines that keep these settings apart.

Invariants: a line by settings is the mean of runs that differ in nothing but the seed; its name is
short, is that of no other line and holds no secret; a group's value of a setting is that of all of
its runs; the list of runs says in which settings runs of one arm and domain differ.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from starlette.testclient import TestClient

from flows.view.app import application
from flows.view.curves import MOST, curves
from flows.view.grouping import NAMED, _shown, grouped
from flows.view.pages.comparing import MOST_GROUPED, MOST_VALUES
from flows.view.pages.runs import LATER
from flows.view.shown import SHORT, setting
from genenv_core import pools
from genenv_core.hiding import HIDDEN
from genenv_core.storage.sql.catalog import query
from genenv_core.storage.sql.duck import text
from genenv_core.storage.store.local import LocalStore
from tests.mutations import mutation
from tests.unit.view.builders_comparing import got, panel, play, reading, tasks
from tests.unit.view.reading_pages import held_against_sql, tables

pytestmark = pytest.mark.slow

FILE = "flows/view/grouping.py"
COMPARING = "flows/view/pages/comparing.py"
START = [0.10, 0.25, 0.40, 0.55]
ENDS = {"plain": [0.20, 0.45, 0.35, 0.80], "told": [0.35, 0.40, 0.55, 0.75]}


def two_methods(store: LocalStore) -> list[str]:
    """Write two seeds of an arm with rehearsal and two without, and one run of another arm."""
    for seed in (0, 1):
        for name, share in (("plain", 0.0), ("told", 0.25)):
            ends = tasks([value + seed / 50 for value in ENDS[name]])
            epochs = {0: tasks(START), 1: ends}
            play(store, f"{name}-{seed}", epochs, seed=seed, rwr={"rehearsal": share})
    play(store, "other", {0: tasks(START), 1: tasks(START)}, arm="random", rwr={"rehearsal": 0.5})
    return ["plain-0", "plain-1", "told-0", "told-1", "other"]


def groups(store: LocalStore, runs: list[str]) -> dict[str, str]:
    """Return the name of each run's group by settings."""
    with pools.connect(store.root) as con:
        return dict(query(con, grouped(runs, "settings")).select("run_id", "arm").rows())


PLAIN, TOLD = "genenv rwr.rehearsal=0.0", "genenv rwr.rehearsal=0.25"


@mutation(
    "a line by settings is that of its arm", FILE,
    'if by == "arm":', "if by:",
)  # fmt: skip
@mutation(
    "gains by settings are those of arms", COMPARING,
    "    JOIN grouped AS o ON o.run_id = g.run_id\n", "    JOIN runs AS o ON o.run_id = g.run_id\n",
)  # fmt: skip
def test_lines_by_settings_are_means_of_runs_that_differ_in_the_seed_alone(tmp_path: Path):
    store = LocalStore(tmp_path)
    names = two_methods(store)
    with reading(store) as reader:
        found = curves(reader, names, by="settings")
    assert [(line.name, line.runs) for line in found.lines] == [
        (PLAIN, 2),
        (TOLD, 2),
        ("random", 1),
    ]
    rows = {(row["line"], row["epoch"]): row["answer"] for row in found.panel}
    for line, name in ((PLAIN, "plain"), (TOLD, "told")):
        assert rows[line, 1] == pytest.approx(np.mean(ENDS[name]) + 0.01)
    page = got(store, names, "settings")
    shown = panel(page, "arms")
    arms = {row[0]: dict(zip(shown.columns, row, strict=True)) for row in shown.rows}
    apart = np.mean(ENDS["told"]) - np.mean(ENDS["plain"])
    assert list(arms) == [PLAIN, TOLD, "random"]
    assert float(arms[TOLD]["minus_first"]) == pytest.approx(apart, abs=2e-3)
    assert (arms[TOLD]["same_seeds"], arms["random"]["same_seeds"]) == ("2", "1")
    assert "differ in more than the seed" not in page
    with pools.connect(tmp_path) as con:
        assert held_against_sql(page, lambda sql: query(con, sql).to_dicts()) == 4


@mutation(
    "the warning of a mixed arm leads nowhere", "flows/view/templates/compare.html.j2",
    'href="/compare?{{ by_settings | query }}"', 'href="/compare"',
)  # fmt: skip
def test_the_warning_of_a_mixed_arm_leads_to_a_line_for_each_settings(tmp_path: Path):
    store = LocalStore(tmp_path)
    names = two_methods(store)
    page = got(store, names, "arm")
    assert "settings differ in more than the seed: rwr.rehearsal." in page
    runs = "&amp;".join(f"run={name}" for name in names)
    assert f'<a href="/compare?{runs}&amp;by=settings">' in page


@mutation(
    "two groups have one name", FILE,
    "THEN name || ' (' || place || ')' ELSE name", "THEN name ELSE name",
)  # fmt: skip
@mutation(
    "the name of a group shows a secret", FILE,
    "CASE WHEN {secret} AND", "CASE WHEN false AND",
)  # fmt: skip
@mutation(
    "the name of a group has all of its settings", FILE,
    "list(words ORDER BY alike, words)[:{NAMED}]", "list(words ORDER BY alike, words)",
)  # fmt: skip
def test_names_of_groups_are_short_and_differ_and_hold_no_secret(tmp_path: Path):
    store = LocalStore(tmp_path)
    epochs = {0: tasks(START), 1: tasks(START)}
    for name, password in (("a", "one"), ("b", "two"), ("c", "two")):
        play(store, name, epochs, teacher={"password": password})
    assert groups(store, ["b", "c"]) == {"b": "genenv", "c": "genenv"}
    first = f"genenv teacher.password={HIDDEN}"
    assert groups(store, ["a", "b", "c"]) == {
        "a": f"{first} (1)", "b": f"{first} (2)", "c": f"{first} (2)",
    }  # fmt: skip
    for place in range(3):
        many = {f"s{number}": int(place == 1 or number == 4) for number in range(5)}
        play(store, f"m{place}", epochs, rwr={**many, "s3": place})
    rare = "genenv rwr.s0=1, rwr.s1=1, rwr.s2=1 and 1 more"
    assert groups(store, ["m0", "m1", "m2"])["m1"] == rare
    assert rare.count("=") == NAMED


@mutation(
    "the first settings by name are named of a run", FILE,
    "list(words ORDER BY alike, words)", "list(words ORDER BY words)",
)  # fmt: skip
def test_the_settings_that_set_a_run_apart_are_named_first(tmp_path: Path):
    store = LocalStore(tmp_path)
    for place in range(4):
        changed = {f"a{number}": int(place < 2) for number in range(4)}
        play(store, f"run-{place}", {0: tasks(START)}, rwr={**changed, "z": int(place == 3)})
    found = groups(store, [f"run-{place}" for place in range(4)])
    assert found["run-3"] == "genenv rwr.a0=0, rwr.a1=0, rwr.z=1 and 2 more"
    assert found["run-0"] == found["run-1"]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("rwr.steps", 4, "4"),
        ("generation.choose_by", "family", "family"),
        ("teacher.api_key", "k", HIDDEN),
        ("teacher.api_key", "", ""),
        ("tracking.uri", "http://me:pw@host/x", f"http://{HIDDEN}@host/x"),
        ("note", "x" * 60, "x" * SHORT + "…"),
    ],
)
def test_a_value_is_hidden_in_sql_as_on_pages(name: str, value: Any, said: str):
    written = json.dumps(value)
    asked = _shown(*map(text, (name, written, str(value))))
    assert duckdb.sql(f"SELECT {asked}").fetchone() == (said,)
    assert said == str(setting(value, name)) or said.endswith("…")


@mutation(
    "a group's value of a setting is that of its first run", COMPARING,
    "list(value ORDER BY try_cast(value AS DOUBLE), value)[:{MOST_VALUES}]",
    "list(value ORDER BY try_cast(value AS DOUBLE), value)[:1]",
)  # fmt: skip
@mutation(
    "a run without a setting is left away in silence", COMPARING,
    "coalesce(c.value, 'unset')", "c.value",
)  # fmt: skip
@pytest.mark.parametrize("by", ["arm", "settings"])
def test_where_groups_differ_all_runs_count(by: str, tmp_path: Path):
    store = LocalStore(tmp_path)
    names = [f"run-{seed:02d}" for seed in range(MOST + 2)]
    for seed, run in enumerate(names):
        changes: dict[str, Any] = {"curriculum": {"alpha": 0.7}} if seed > MOST else {}
        play(store, run, {0: tasks(START), 1: tasks(START)}, seed=seed, **changes)
    play(store, "other", {0: tasks(START), 1: tasks(START)}, arm="random")
    shown = panel(got(store, [*names, "other"], by), "differences")
    rows = {row[0]: row[1:] for row in shown.rows}
    assert shown.columns[0] == "setting" and shown.columns[-1] == "random"
    few = f"0, 1, 2, 3, 4 and {MOST + 2 - MOST_VALUES} more"
    if by == "arm":
        assert rows["curriculum.alpha"] == ["0.5, 0.7", "0.5"]
        assert rows["curriculum.k_min"] == ["0.25, unset", "0.25"]
        assert rows["seed"] == [few, "0"]
    else:
        assert rows["curriculum.alpha"] == ["0.5", "0.7", "0.5"]
        assert rows["curriculum.k_min"] == ["0.25", "unset", "0.25"]
        assert rows["seed"] == ["0, 1, 2, 3, 4 and 4 more", "9", "0"]


def listed(store: LocalStore) -> dict[str, str]:
    """Return what the list of runs says of each run that differs from others of its arm."""
    with TestClient(application(store), base_url="http://localhost") as browser:
        page = browser.get("/").text
    with pools.connect(store.root) as con:
        assert held_against_sql(page, lambda sql: query(con, sql).to_dicts()) == 1
    (shown,) = tables(page)
    if "differs in" not in shown.columns:
        return {}
    assert "runs of this arm and domain differ, the seed left out" in page
    place = 1 + [name for name in shown.columns if name not in LATER].index("differs in")
    return {row[1]: row[place] for row in shown.rows if row[place]}


@mutation(
    "the list of runs holds a run against those of other domains", "flows/view/pages/runs.py",
    "differing('true', 'arm, domain', ' ')", "differing('true', 'arm', ' ')",
)  # fmt: skip
@mutation(
    "the list of runs does not say how a run differs", "flows/view/pages/runs.py",
    'row.get("differs_in") or ""', '""',
)  # fmt: skip
def test_the_list_of_runs_says_how_runs_of_an_arm_differ(tmp_path: Path):
    store = LocalStore(tmp_path)
    epochs = {0: tasks(START), 1: tasks(START)}
    play(store, "a", epochs, rwr={"rehearsal": 0.0})
    play(store, "b", epochs, rwr={"rehearsal": 0.0}, seed=1)
    play(store, "far", epochs, rwr={"rehearsal": 0.5}, domain={"name": "sums"})
    play(store, "other", epochs, rwr={"rehearsal": 0.5}, arm="random")
    assert listed(store) == {}
    changes: dict[str, Any] = {"teacher": {"password": "one"}}
    play(store, "c", {**epochs, 2: tasks(START)}, rwr={"rehearsal": 0.25}, **changes)
    assert listed(store) == {
        "a": "epochs 1, rwr.rehearsal 0.0", "b": "epochs 1, rwr.rehearsal 0.0",
        "c": f"epochs 2, rwr.rehearsal 0.25, teacher.password {HIDDEN}",
    }  # fmt: skip
    play(store, "d", epochs, rwr={"rehearsal": 0.25, "x": 1, "y": 2}, seed=2)
    assert listed(store)["d"] == "rwr.rehearsal 0.25, rwr.x 1, rwr.y 2 and 1 more"


@mutation(
    "a line of a run does not say how it differs", COMPARING,
    'set_apart(of_runs["differences"], in_order)', "{}",
)  # fmt: skip
def test_a_compared_run_says_how_it_differs_from_the_others(tmp_path: Path):
    store = LocalStore(tmp_path)
    names = two_methods(store)
    page = got(store, ["plain-0", "told-0", "other"], by="run")
    shown = {run: re.findall(f'title="{run}">[^<]*</a> <span class="soft[^>]*>([^<]*)', page)
             for run in names}  # fmt: skip
    assert shown == {
        "plain-0": ["arm genenv, rwr.rehearsal 0.0"] * 2,  # beside its results, and in the legend
        "told-0": ["arm genenv, rwr.rehearsal 0.25"] * 2,
        "other": ["arm random, rwr.rehearsal 0.5"] * 2,
        "plain-1": [], "told-1": [],
    }  # fmt: skip
    again = got(store, ["plain-0", "plain-1"], by="run")
    assert "rwr.rehearsal" not in again


@mutation(
    "a picture has as many lines as there are groups", "flows/view/curves.py",
    "lines_of[:MOST] if many", "lines_of if many",
)  # fmt: skip
def test_a_picture_has_as_many_groups_as_a_person_can_tell_apart(tmp_path: Path):
    store = LocalStore(tmp_path)
    names = [f"run-{place}" for place in range(MOST + 1)]
    for place, run in enumerate(names):
        play(store, run, {0: tasks(START), 1: tasks(START)}, rwr={"steps": place})
    page = got(store, names, "settings")
    assert f"The first {MOST} of {MOST + 1} are drawn." in page
    assert len(panel(page, "arms").rows) == MOST + 1


def test_as_many_runs_as_a_page_groups_are_grouped_at_once():
    names = [f"run-{place:03d}" for place in range(MOST_GROUPED)]
    wide = {f"s{number}": number for number in range(150)}
    rows = [
        (run, "genenv", "desk", json.dumps({"seed": place, "rwr": {**wide, "s7": place % 8}}))
        for place, run in enumerate(names)
    ]
    with duckdb.connect() as con:
        con.execute("CREATE TABLE runs (run_id TEXT, arm TEXT, domain TEXT, config JSON)")
        con.executemany("INSERT INTO runs VALUES (?, ?, ?, ?)", rows)
        began = time.perf_counter()
        found = con.sql(grouped(names, "settings")).fetchall()
        seconds = time.perf_counter() - began
    assert len(found) == MOST_GROUPED and len({name for _, name in found}) == 8
    assert seconds < 3
