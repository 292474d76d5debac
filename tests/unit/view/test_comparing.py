"""The page that holds runs, or arms, beside each other.

Invariants: without two runs it is a list to choose from; a difference is that of equal test tasks
at the last epoch that both runs have, with Student's interval, and absent where the tasks differ;
the first stage that differs is that of `genenv diff`; a mean of runs that are no repetitions of
one another says so.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from starlette.testclient import TestClient

from flows.view.app import application
from flows.view.pages import comparing
from flows.view.pages.comparing import MOST
from genenv_core import pools
from genenv_core.benchmarks.measuring.beside import paired_difference
from genenv_core.hiding import HIDDEN
from genenv_core.storage.records.branches import Branch, note_branch
from genenv_core.storage.records.differing import FirstDifference, differing, first_difference
from genenv_core.storage.sql.catalog import query
from genenv_core.storage.store.local import LocalStore
from tests.mutations import mutation
from tests.unit.builders_root import fill
from tests.unit.view.builders_comparing import got, panel, play, reading, tasks
from tests.unit.view.reading_pages import Pages, held_against_sql

pytestmark = pytest.mark.slow

START = [0.10, 0.25, 0.40, 0.55, 0.70, 0.30]
ONE = [0.20, 0.45, 0.35, 0.80, 0.90, 0.35]
OTHER = [0.35, 0.40, 0.55, 0.75, 0.95, 0.65]
FILE = "flows/view/pages/comparing.py"
GROUPING = "flows/view/grouping.py"


def results(store: LocalStore, runs: list[str]) -> list[dict[str, Any]]:
    """Return the rows of the results of these runs, with all digits."""
    with pools.connect(store.root) as con:
        return query(con, panel(got(store, runs, "run"), "results").sql).to_dicts()


def by_arm(text: str) -> list[dict[str, str]]:
    """Return the rows of the table of arms, as shown."""
    shown = panel(text, "arms")
    return [dict(zip(shown.columns, row, strict=True)) for row in shown.rows]


@mutation(
    "a comparison without a choice is an error", FILE,
    "        return _choosing(reader, names, most)\n",
    "        raise LookupError\n",
)  # fmt: skip
def test_without_two_runs_there_is_a_list_to_choose_from(tmp_path: Path):
    store = LocalStore(tmp_path)
    assert "There is no run to compare yet" in got(store, [], "run")
    for run in ("a", "b"):
        play(store, run, {0: tasks(START), 1: tasks(ONE)})
    for chosen, said in (([], "Choose two to 8 runs."), (["a"], "1 was given.")):
        text = got(store, chosen, "run")
        assert said in text
        assert {row[1] for row in panel(text, "choice").rows} == {"a", "b"}
        assert text.count(" checked>") == len(chosen)
    with pools.connect(tmp_path) as con:
        assert held_against_sql(text, lambda sql: query(con, sql).to_dicts()) == 1


def test_more_runs_than_a_picture_holds_lead_to_the_list(tmp_path: Path):
    store = LocalStore(tmp_path)
    names = [f"run-{place}" for place in range(MOST + 1)]
    for run in names:
        fill(store, run, epochs=0)
    text = got(store, names, "run")
    assert f"{MOST + 1} were given. Up to 200 are compared by their arms" in text


def test_a_run_that_is_not_there_is_named(tmp_path: Path):
    store = LocalStore(tmp_path)
    play(store, "a", {0: tasks(START)})
    with TestClient(application(store), base_url="http://localhost") as browser:
        answer = browser.get("/compare?run=a&run=nobody")
    assert answer.status_code == 404 and "nobody" in answer.text


@mutation(
    "the difference is at the last epoch of the first run", FILE,
    "SELECT m.run_id, m.measure, max(m.epoch) AS epoch", "SELECT m.run_id, m.measure, 2 AS epoch",
)  # fmt: skip
@mutation(
    "the interval of a difference takes the tasks for different ones", "flows/view/intervals.py",
    "stddev_samp(apart) / sqrt(count(apart)) AS gain_se", "stddev_samp(apart) AS gain_se",
)  # fmt: skip
@mutation(
    "the difference is taken from the other side", FILE,
    "SELECT a.apart AS minus_first", "SELECT -a.apart AS minus_first",
)  # fmt: skip
def test_a_difference_is_that_of_equal_tasks_at_the_last_epoch_of_both(tmp_path: Path):
    store = LocalStore(tmp_path)
    play(store, "one", {0: tasks(START), 1: tasks(ONE), 2: tasks(OTHER)})
    play(store, "other", {0: tasks(START), 1: tasks(OTHER)}, seed=1)
    first, second = results(store, ["one", "other"])
    assert (first["minus_first"], first["compared_at"]) == (None, None)
    assert (first["start"], first["last"]) == pytest.approx((np.mean(START), np.mean(OTHER)))
    apart = np.subtract(OTHER, ONE)
    interval = stats.ttest_rel(OTHER, ONE).confidence_interval(0.95)
    assert (first["last_epoch"], second["last_epoch"], second["compared_at"]) == (2, 1, 1)
    assert second["measure"] == "answer_probability"
    assert second["minus_first"] == pytest.approx(apart.mean())
    assert second["low"] == pytest.approx(interval.low, abs=1e-4)
    assert second["high"] == pytest.approx(interval.high, abs=1e-4)
    assert (second["same_tasks"], second["other_tasks"]) == (6, 0)


@mutation(
    "one run's P(answer) is compared with the other's successes", FILE,
    "a.has_answer AND coalesce(f.has_answer, true)", "a.has_answer",
)  # fmt: skip
def test_runs_of_which_one_has_no_answer_probability_are_compared_by_success(tmp_path: Path):
    store = LocalStore(tmp_path)
    play(store, "one", {0: tasks(START), 1: tasks(ONE)}, sampled=True)
    play(store, "other", {0: tasks(START), 1: tasks(OTHER)})
    first, second = results(store, ["one", "other"])
    assert first["measure"] == second["measure"] == "sampled"
    assert first["last"] == pytest.approx(np.mean(np.array(ONE) > 0.5))
    assert second["minus_first"] == pytest.approx(1 - np.mean(np.array(ONE) > 0.5))


@mutation(
    "a difference without a differing verdict is certain", FILE,
    ", verdicts=VERDICTS", "",
)  # fmt: skip
def test_a_difference_without_a_differing_verdict_has_a_width(tmp_path: Path):
    store = LocalStore(tmp_path)
    for seed, run in enumerate(("one", "other")):
        play(store, run, {0: tasks(START), 1: tasks(ONE)}, sampled=True, seed=seed)
    _, second = results(store, ["one", "other"])
    ends = (second["minus_first"], second["low"], second["high"])
    assert ends == pytest.approx(paired_difference([0.0] * len(ONE)), abs=1e-3)
    assert second["high"] > 0.2


@mutation(
    "tasks that one run has alone are left away in silence", FILE,
    "FROM paired WHERE others = 0", "FROM paired",
)  # fmt: skip
def test_runs_with_other_test_tasks_have_no_interval_and_say_so(tmp_path: Path):
    store = LocalStore(tmp_path)
    play(store, "one", {0: tasks(START), 1: tasks(ONE)})
    play(store, "other", {0: tasks(START, 2), 1: tasks(OTHER, 2)}, seed=1)
    (_, second) = results(store, ["one", "other"])
    assert (second["minus_first"], second["low"], second["high"]) == (None, None, None)
    assert (second["same_tasks"], second["other_tasks"]) == (4, 4)
    assert "4 are the same, 4 only one of them has" in got(store, ["one", "other"], "run")


@mutation(
    "an arm's difference pairs any seed with any other", FILE,
    "f.arm = {first} AND f.seed = s.seed", "f.arm = {first}",
)  # fmt: skip
@mutation(
    "arms are compared at an epoch that few runs reached", FILE, "2 * t.runs > a.runs", "true"
)
@mutation(
    "arms are compared at an epoch that one arm lacks", FILE,
    "HAVING count(*) = (SELECT count(*) FROM arms)", "",
)  # fmt: skip
@mutation(
    "two seeds make an interval", FILE,
    '{paired("pairs", "arm", ENOUGH)}', '{paired("pairs", "arm")}',
)  # fmt: skip
@mutation(
    "a difference of arms has the interval of two anyway", "flows/view/intervals.py",
    "CASE WHEN tasks >= {least} THEN", "CASE WHEN tasks >= 2 THEN",
)  # fmt: skip
def test_the_difference_of_arms_is_that_of_equal_seeds(tmp_path: Path):
    store = LocalStore(tmp_path)
    ends = {0: (ONE, OTHER), 1: (OTHER, START), 2: (OTHER, OTHER)}
    for seed, (one, other) in ends.items():
        # Epoch 2 is that of few runs of one arm, epoch 3 that of one arm alone.
        one = {0: tasks(START), 1: tasks(one), **({2: tasks(ONE)} if seed == 1 else {})}
        other = {0: tasks(START), 1: tasks(other), 2: tasks(START), 3: tasks(ONE)}
        play(store, f"g{seed}", one, seed=seed)
        play(store, f"r{seed}", other, seed=seed, arm="random")
    names = [f"{arm}{seed}" for arm in "gr" for seed in ends]
    apart = [np.mean(other) - np.mean(one) for one, other in ends.values()]
    genenv, random = by_arm(got(store, names, "arm"))
    assert (genenv["arm"], genenv["minus_first"], genenv["low"]) == ("genenv", "", "")
    assert (random["arm"], random["compared_at"], random["same_seeds"]) == ("random", "1", "3")
    assert float(random["minus_first"]) == pytest.approx(np.mean(apart), abs=2e-3)
    interval = stats.ttest_1samp(apart, 0).confidence_interval(0.95)
    assert float(random["low"]) == pytest.approx(interval.low, abs=2e-3)
    assert float(random["high"]) == pytest.approx(interval.high, abs=2e-3)
    _, two = by_arm(got(store, ["g0", "g1", "r0", "r1"], "arm"))
    assert two["minus_first"] and (two["low"], two["same_seeds"]) == ("", "2")
    text = got(store, ["g0", "r1"], "arm")
    assert "random and genenv have no seed in common" in text
    assert by_arm(text)[1]["minus_first"] == ""


def test_every_number_is_what_its_sql_gives(tmp_path: Path):
    store = LocalStore(tmp_path)
    play(store, "one", {0: tasks(START), 1: tasks(ONE)})
    play(store, "other", {0: tasks(START), 1: tasks(OTHER)}, rwr={"steps": 4})
    for by, least in (("run", 3), ("arm", 4), ("settings", 4)):
        with pools.connect(tmp_path) as con:
            text = got(store, ["one", "other"], by)
            assert held_against_sql(text, lambda sql: query(con, sql).to_dicts()) == least


@mutation(
    "the stage that differs is the last one", "genenv_core/storage/records/differing.py",
    "    return next(_differences(store, *places), None)",
    "    return [*_differences(store, *places), None][-2]",
)  # fmt: skip
def test_the_first_stage_that_differs_from_the_first_run_is_named(tmp_path: Path):
    store = LocalStore(tmp_path)
    play(store, "run-one", {0: tasks(START), 1: tasks(ONE)})
    play(store, "run-two", {0: tasks(START), 1: tasks(OTHER)}, seed=1)
    play(store, "run-six", {0: tasks(START), 1: tasks(ONE)}, seed=1)
    for run in ("run-two", "run-six"):
        known = differing(store, "run-one", run).first
        assert first_difference(store, "run-one", run) == known
        assert known is not None and (known.stage, known.epoch) == ("publish", 0)
    text = got(store, ["run-one", "run-two", "run-six"], "run")
    part = text.split('<h2 id="first">')[1].split("<h2")[0]
    assert part.count(": publish of epoch 0") == 2
    assert part.count("<code>seed 0 -&gt; 1</code>") == 2
    assert first_difference(store, "run-one", "run-one") is None


def test_a_stage_with_many_differences_names_the_first_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    many = ("teacher.password a -> b", *(f"rwr.steps{n} 1 -> 2" for n in range(9)))
    found = FirstDifference(3, "rwr_update", many)
    monkeypatch.setattr(comparing, "first_difference", lambda *_: found)
    with reading(tmp_path) as reader:
        words, reasons = comparing._first(reader, "one", "other")
    assert words == "rwr update of epoch 3"
    assert reasons[0] == f"teacher.password {HIDDEN}"
    assert len(reasons) == comparing.MOST_REASONS + 1 and reasons[-1].startswith("and 4 more")


@mutation(
    "the name and root of a run are settings that differ", GROUPING,
    "NOT IN ({apart})", "NOT IN ('')",
)  # fmt: skip
def test_the_name_and_the_root_of_a_run_are_no_settings(tmp_path: Path):
    store = LocalStore(tmp_path)
    play(store, "one", {0: tasks(START), 1: tasks(ONE)})
    play(store, "other", {0: tasks(START), 1: tasks(ONE)}, rwr={"steps": 4})
    rows = panel(got(store, ["one", "other"], "run"), "differences").rows
    assert [row[0] for row in rows] == ["rwr.steps"]


def test_names_are_short_and_whole_in_their_titles(tmp_path: Path):
    store = LocalStore(tmp_path)
    names = ["tiny-genenv-s0-aa", "tiny-genenv-s1-bb"]
    for place, run in enumerate(names):
        play(store, run, {0: tasks(START), 1: tasks(ONE)}, seed=place)
    text = got(store, names, "run")
    for run in names:
        assert f'title="{run}">…{run.removeprefix("tiny-genenv-")}</a>' in text
        assert f"/runs/{run}" in Pages(text).links


MIXED = "differ in more than the seed: rwr.steps."


@mutation(
    "the seed makes an arm a mixture", GROUPING, "WHERE setting <> 'seed'", "",
)  # fmt: skip
@mutation(
    "an arm of two methods is one method", GROUPING,
    "HAVING count(DISTINCT value) > 1 OR count(*) < any_value(of_arm)", "HAVING false",
)  # fmt: skip
def test_an_arm_of_runs_with_other_settings_says_so(tmp_path: Path):
    store = LocalStore(tmp_path)
    epochs = {0: tasks(START), 1: tasks(ONE)}
    play(store, "a", epochs)
    play(store, "b", epochs, seed=1)
    play(store, "c", epochs, seed=2, rwr={"steps": 4})
    play(store, "d", epochs, arm="random", rwr={"steps": 4})
    assert 'class="bad"' not in got(store, ["a", "b", "d"], "arm")
    text = got(store, ["a", "b", "c", "d"], "arm")
    assert f"genenv is the mean of runs whose settings {MIXED}" in text
    assert "random is the mean" not in text


@mutation(
    "a run and its branch are two runs", FILE,
    "not set(chosen[run]) & set(chosen[other])", "True",
)  # fmt: skip
def test_an_arm_of_a_run_and_its_branch_says_so():
    def run(name: str, arm: str = "genenv", origin: str | None = None) -> dict[str, Any]:
        return {"run_id": name, "arm": arm, "branch_of": origin}

    rows = [
        run("a"), run("b", origin="a"), run("c", origin="b"), run("d"),
        run("e", "random", "a"), run("f", origin="a"), run("g", origin="gone"),
        run("h", origin="h"),
    ]  # fmt: skip
    related = comparing._related
    assert related(["a", "d", "e", "g", "h"], rows) == []
    (direct,) = related(["a", "b"], rows)
    assert direct.startswith("genenv is the mean of a and its own branch b: they share epochs")
    assert "a and its own branch c" in related(["c", "a"], rows)[0]
    assert "b and f, branches of one run" in related(["b", "f"], rows)[0]


def test_a_branch_of_the_tables_is_found(tmp_path: Path):
    store = LocalStore(tmp_path)
    epochs = {0: tasks(START), 1: tasks(ONE)}
    play(store, "a", epochs)
    play(store, "b", epochs)
    note_branch(store, "b", Branch(run_id="a", epoch=0, epochs=({},)))
    text = got(store, ["a", "b"], "arm")
    assert "a and its own branch b" in text


@mutation(
    "an arm's last epochs have all of its runs", FILE,
    'row["runs"] != line.runs', "False",
)  # fmt: skip
def test_epochs_that_some_runs_of_an_arm_lack_are_named(tmp_path: Path):
    store = LocalStore(tmp_path)
    play(store, "a", {0: tasks(START), 1: tasks(ONE), 2: tasks(ONE)})
    play(store, "b", {0: tasks(START), 1: tasks(OTHER)}, seed=1)
    assert "genenv has fewer than its 2 runs in epochs 2:" in got(store, ["a", "b"], "arm")
