"""The curves of runs and of arms, without a browser.

Invariants: a curve begins at epoch 0; its interval is Student's t over the test tasks, or over the
runs of an arm, and that of new tasks counts attempts at one task as alike; the server says which
chart has the band; a run looks the same wherever it stands in an address; a run of several domains
has a line for each beside that of all.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pytest
from scipy import stats
from starlette.testclient import TestClient

from flows.view.app import application
from flows.view.curves import ALL, CURVES, DOMAIN, FEW, curves
from flows.view.intervals import t975
from flows.view.looks import DASHES, MARKS, look_of, looks, short_names
from flows.view.meaning import meanings
from flows.view.pages.comparing import MOST
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.store.local import LocalStore
from tests.mutations import mutation
from tests.unit import builders_root
from tests.unit.builders_root import START, commit_epoch, rows_of, small_root
from tests.unit.view.builders_comparing import play, reading, tasks

pytestmark = pytest.mark.slow

EARLY = [0.10, 0.25, 0.40, 0.55, 0.70, 0.30]
LATE = [0.20, 0.45, 0.35, 0.80, 0.90, 0.35]


@pytest.mark.parametrize("df", [1, 2, 3, 4, 5, 9, 23, 159, 719, 10_000])
def test_the_quantile_of_t_is_that_of_a_library(df: int):
    found = duckdb.sql(f"SELECT {t975(str(df))}").fetchone()
    assert found and float(found[0]) == pytest.approx(stats.t.ppf(0.975, df), abs=5e-3)
    assert df < 5 or float(found[0]) == pytest.approx(stats.t.ppf(0.975, df), abs=4e-4)


def test_there_is_no_quantile_without_a_degree_of_freedom():
    assert duckdb.sql(f"SELECT {t975('0')}").fetchone() == (None,)


@mutation(
    "curves begin where training begins", "flows/view/curves.py",
    '"    UNION SELECT run_id, epoch FROM tests\\n"', '""',
)  # fmt: skip
@mutation(
    "the interval of a gain is its standard error", "flows/view/curves.py",
    "any_value(gain_{end} - gain)", "any_value(gain_se)",
)  # fmt: skip
def test_a_curve_begins_at_epoch_0_with_the_interval_of_its_gain(tmp_path: Path):
    store = LocalStore(tmp_path)
    play(store, "run", {0: tasks(EARLY), 1: tasks(LATE)})
    with reading(store) as reader:
        found = curves(reader, ["run"])
    first, last = found.panel.rows
    assert [first["epoch"], last["epoch"]] == found.data["epochs"] == [0, 1]
    assert first["answer"] == pytest.approx(np.mean(EARLY))
    assert (first["answer_low"], first["answer_high"]) == (None, None)
    gains = np.subtract(LATE, EARLY)
    half = stats.t.ppf(0.975, 5) * gains.std(ddof=1) / np.sqrt(6)
    assert last["answer"] == pytest.approx(np.mean(LATE))
    assert last["answer_low"] == pytest.approx(np.mean(LATE) - half, abs=1e-4)
    assert last["answer_high"] == pytest.approx(np.mean(LATE) + half, abs=1e-4)
    assert found.data["values"]["answer_low"]["run"] == [None, last["answer_low"]]


@mutation(
    "attempts at one task count as independent", "flows/view/curves.py",
    "greatest(0, (c.cluster_{end} - c.chance)", "greatest(0, (c.wilson_{end} - c.chance)",
)  # fmt: skip
def test_new_tasks_have_the_clustered_interval(tmp_path: Path):
    store = small_root(tmp_path)
    with reading(store) as reader:
        rows = {row["epoch"]: row for row in curves(reader, ["run-a"]).panel}
    # Three new tasks with 0, 1 and 2 of 4 attempts solved: p = 1/4 of 12.
    n, k, p = 4, np.array([0, 1, 2]), 0.25
    effect = max(1, 3 / 2 * ((k - p * n) ** 2).sum() / (12 * p * (1 - p)))
    size, z = 12 / effect, stats.norm.ppf(0.975)
    centre = (p + z * z / (2 * size)) / (1 + z * z / size)
    half = z * np.sqrt(p * (1 - p) / size + z * z / (4 * size * size)) / (1 + z * z / size)
    assert rows[1]["skill_low"] == pytest.approx(centre - half)
    assert rows[1]["skill_high"] == pytest.approx(centre + half)
    assert (rows[0]["skill"], rows[0]["skill_low"], rows[0]["skill_high"]) == (None, None, None)


@mutation(
    "success on new tasks has its interval above no chance", "flows/view/curves.py",
    "(c.cluster_{end} - c.chance) / (1 - c.chance)", "c.cluster_{end}",
)  # fmt: skip
def test_the_interval_of_skill_is_above_the_chance_of_a_guess(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def guessed(table: str, epoch: int) -> pl.DataFrame:
        frame = rows_of(table, epoch)
        return frame.with_columns(chance=pl.lit(0.2)) if table == "tasks" else frame

    plain = small_root(tmp_path / "plain")
    monkeypatch.setattr(builders_root, "rows_of", guessed)
    with reading(plain) as reader:
        before = curves(reader, ["run-a"]).panel.rows[1]
    with reading(small_root(tmp_path / "guessed")) as reader:
        after = curves(reader, ["run-a"]).panel.rows[1]
    for end in ("skill_low", "skill_high"):
        assert after[end] == pytest.approx(max(0, (before[end] - 0.2) / 0.8))


def three_runs(store: LocalStore) -> None:
    """Write three runs of one arm, and one of another arm, with known results."""
    for place, shift in enumerate((0.0, 0.05, 0.15)):
        late = tasks([value + shift for value in EARLY])
        play(store, f"run-{place}", {0: tasks(EARLY), 1: late}, seed=place, skill=0.4 + shift)
    play(store, "other", {0: tasks(EARLY), 1: tasks(EARLY)}, arm="random")


@mutation(
    "the line of an arm is its best run's", "flows/view/curves.py",
    'f"avg({name}) AS {name}, ', 'f"max({name}) AS {name}, ',
)  # fmt: skip
@mutation(
    "an arm's interval forgets how many runs there are", "flows/view/curves.py",
    '* stddev_samp({0}) / sqrt(count({0}))"', '* stddev_samp({0})"',
)  # fmt: skip
def test_the_line_of_an_arm_is_the_mean_of_its_runs_with_a_t_interval(tmp_path: Path):
    store = LocalStore(tmp_path)
    three_runs(store)
    names = ["run-0", "run-1", "run-2", "other"]
    with reading(store) as reader:
        found = curves(reader, names, by="arm")
        page = application(store)
    rows = {(row["line"], row["epoch"]): row for row in found.panel}
    means = np.mean(EARLY) + np.array([0.0, 0.05, 0.15])
    half = stats.t.ppf(0.975, 2) * means.std(ddof=1) / np.sqrt(3)
    genenv, alone = rows["genenv", 1], rows["random", 1]
    assert (genenv["runs"], alone["runs"]) == (3, 1)
    assert genenv["answer"] == pytest.approx(means.mean())
    assert genenv["answer_low"] == pytest.approx(means.mean() - half)
    assert genenv["answer_high"] == pytest.approx(means.mean() + half)
    skills = 0.4 + np.array([0.0, 0.05, 0.15])
    assert genenv["skill"] == pytest.approx(skills.mean())
    assert (alone["answer_low"], alone["answer_high"]) == (None, None)  # of a single run
    assert [(line.name, line.runs) for line in found.lines] == [("genenv", 3), ("random", 1)]
    assert (found.data["alpha"], found.data["k_min"]) == (0.5, 0.25)
    with TestClient(page, base_url="http://localhost") as browser:
        text = browser.get("/compare", params={"run": names, "by": "arm"}).text
    assert '<span class="soft">3 runs</span>' in text and '<span class="soft">1 run</span>' in text


@mutation(
    "an interval of two runs hides the lines", "flows/view/curves.py",
    "count({{0}}) >= {ENOUGH}", "count({{0}}) >= 2",
)  # fmt: skip
def test_two_runs_have_no_interval_and_the_page_says_why(tmp_path: Path):
    store = LocalStore(tmp_path)
    three_runs(store)
    with reading(store) as reader:
        two, three = (
            curves(reader, [f"run-{place}" for place in range(count)], by="arm") for count in (2, 3)
        )
    assert three.data["values"]["answer_low"]["genenv"][1] is not None
    assert three.note.endswith("Bars: its 95 % t interval over these runs.")
    assert two.data["values"]["answer_low"] == {"genenv": [None, None]}
    assert two.data["values"]["answer"]["genenv"][1] == two.panel.rows[1]["answer"]
    assert two.panel.rows[1]["answer_low"] is None and two.panel.rows[1]["runs"] == 2
    assert "fewer than 3 runs there is no interval" in two.note and "Bars:" not in two.note
    assert "12.7" in two.note and stats.t.ppf(0.975, 1) == pytest.approx(12.7, abs=0.01)


def test_the_numbers_of_curves_have_words(tmp_path: Path):
    store = LocalStore(tmp_path)
    three_runs(store)
    with reading(store) as reader:
        found = curves(reader, ["run-0", "run-1"])
    said = dict(meanings(found.panel.columns, found.panel.sql, found.words))
    assert said.keys() == set(found.panel.columns)
    assert said["answer"].startswith("Probability of the answer: How probable")
    assert said["answer_low"] == "Lower end of a bar of answer."
    assert found.changes(CURVES[0]) and not found.changes(CURVES[2])


@mutation(
    "eight runs have eight intervals", "flows/view/curves.py",
    "bars = len(names) <= FEW", "bars = True",
)  # fmt: skip
def test_intervals_and_greedy_lines_are_drawn_for_few_lines_alone(tmp_path: Path):
    store = LocalStore(tmp_path)
    three_runs(store)
    with reading(store) as reader:
        few = curves(reader, ["run-0", "run-1", "run-2"])
        many = curves(reader, ["run-0", "run-1", "run-2", "other"])
    assert len(few.lines) == FEW and few.bars and "answer_low" in few.data["values"]
    assert not many.bars and "answer_low" not in many.data["values"]
    test, answer = CURVES[:2]
    assert "Bars:" in few.caption(answer) and "Bars:" not in many.caption(answer)
    assert few.beside(test) == many.beside(test) == ""  # nobody measured greedy answers
    assert str(FEW) in many.note and not few.note


def test_greedy_results_are_drawn_faintly_where_there_are_some(tmp_path: Path):
    store = small_root(tmp_path / "root")
    with reading(store) as reader:
        found = curves(reader, ["run-a"])
    test, answer = CURVES[:2]
    assert (found.beside(test), found.beside(answer)) == ("greedy", "")
    assert "Faint: greedy" in found.caption(test) and "Faint:" not in found.caption(answer)
    with TestClient(application(store), base_url="http://localhost") as browser:
        assert browser.get("/runs/run-a").text.count('data-beside="greedy"') == 1


@mutation(
    "the curve of repeats leaves out what is nearly equal", "flows/view/curves.py",
    "l.similarity, l.repeats,", "l.similarity, l.equal_earlier AS repeats,",
)  # fmt: skip
def test_similarity_is_the_mean_with_the_share_of_repeats(tmp_path: Path):
    store = small_root(tmp_path / "root")
    with reading(store) as reader:
        found = curves(reader, ["run-a"])
    rows = {row["epoch"]: (row["similarity"], row["repeats"]) for row in found.panel}
    assert rows == {0: (None, None), 1: pytest.approx((2.5 / 3, 1 / 3)), 2: rows[1]}
    (similarity,) = [curve for curve in CURVES if curve.column == "similarity"]
    assert found.beside(similarity) == "repeats" and similarity in found.charts


@mutation(
    "no chart has the band", "flows/view/curves.py",
    "        whole=True, band=True,\n", "        whole=True,\n",
)  # fmt: skip
@mutation(
    "the page keeps to itself which chart has the band", "flows/view/templates/parts.html.j2",
    'data-band="{{ 1 if curve.band else 0 }}"', 'data-band="0"',
)  # fmt: skip
def test_the_chart_of_new_tasks_alone_has_the_band(tmp_path: Path):
    store = LocalStore(tmp_path)
    play(store, "run", {0: tasks(EARLY), 1: tasks(LATE)})
    with TestClient(application(store), base_url="http://localhost") as browser:
        text = browser.get("/runs/run").text
    figures = text.split("<figure ")[1:]
    banded = [figure for figure in figures if 'data-band="1"' in figure]
    assert len(figures) > 3 and len(banded) == 1
    assert 'data-curve="skill"' in banded[0] and "The dashed line is alpha" in banded[0]
    script = (Path(__file__).parents[3] / "flows/view/static/view.js").read_text()
    assert 'figure.dataset.band === "1"' in script


def test_runs_with_two_alphas_have_no_band(tmp_path: Path):
    store = LocalStore(tmp_path)
    for run, alpha in (("a", 0.5), ("b", 0.7)):
        target = {"alpha": alpha, "k_min": 0.25}
        play(store, run, {0: tasks(EARLY), 1: tasks(LATE)}, curriculum=target)
    with reading(store) as reader:
        found = curves(reader, ["a", "b"])
    skill = next(curve for curve in CURVES if curve.band)
    assert found.data["alpha"] is None and "so none is drawn" in found.caption(skill)


def test_one_run_alone_has_a_line_at_its_start(tmp_path: Path):
    store = LocalStore(tmp_path)
    three_runs(store)
    with reading(store) as reader:
        one, two = (curves(reader, names) for names in (["run-0"], ["run-0", "run-1"]))
        arm = curves(reader, ["run-0", "run-1"], by="arm")
    assert [curve.column for curve in CURVES if one.starts(curve)] == ["test", "answer"]
    assert not any(found.starts(curve) for found in (two, arm) for curve in CURVES)


@mutation(
    "a run's look is its place in the address", "flows/view/looks.py",
    "enumerate(sorted(set(names)))", "enumerate(dict.fromkeys(names))",
)  # fmt: skip
def test_a_run_looks_the_same_wherever_it_stands_in_an_address():
    names = ["b", "a", "c"]
    assert all(looks(order) == looks(names) for order in itertools.permutations(names))


@mutation(
    "two lines have one look", "flows/view/looks.py",
    "DASHES[index % len(DASHES)], MARKS[index % len(MARKS)]", "DASHES[0], MARKS[0]",
)  # fmt: skip
def test_as_many_lines_as_a_page_draws_differ_without_colour():
    drawn = [look_of(index) for index in range(MOST)]
    assert len({(look.dash, look.mark) for look in drawn}) == MOST
    # Of lines that lie on each other one at most is solid, and lies below the gaps of the others.
    assert sum(not look.dash for look in drawn) == 1
    assert len(set(DASHES)) == len(DASHES) and len(set(MARKS)) == len(MARKS)


def test_the_legend_shows_dashes_and_marks_of_each_line(tmp_path: Path):
    store = LocalStore(tmp_path)
    three_runs(store)
    with TestClient(application(store), base_url="http://localhost") as browser:
        texts = [
            browser.get("/compare", params={"run": order}).text
            for order in (["run-0", "run-1"], ["run-1", "run-0"])
        ]
    for text in texts:
        legend = text.split('<ul class="legend">')[1].split("</ul>")[0]
        first, second = sorted(legend.split("<li>")[1:], key=lambda one: "run-1" in one)
        assert MARKS[0] in first and "stroke-dasharray" not in first
        assert MARKS[1] in second and 'stroke-dasharray="9 4"' in second


@mutation(
    "names are cut in the middle of a word", "flows/view/looks.py",
    "if letter in BREAKS), default=0)", "), default=0)",
)  # fmt: skip
@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["tiny-genenv-s0-82", "tiny-genenv-s1-83"], ["…s0-82", "…s1-83"]),
        (["tiny-s0-82", "tiny-s0-83"], ["…82", "…83"]),
        (["run-a", "run-b"], ["…a", "…b"]),
        (["ab", "ac"], ["ab", "ac"]),
        (["long-name", "long-name-2"], ["…name", "…name-2"]),
        (["long-", "long-name"], ["long-", "long-name"]),
        (["alone-is-whole"], ["alone-is-whole"]),
        (["tiny-same", "tiny-same"], ["tiny-same"]),
    ],
)
def test_names_are_shortened_to_what_differs(names: list[str], short: list[str]):
    assert list(short_names(names).values()) == short


@mutation(
    "the page of a run of several domains has one line", "flows/view/pages/run.py",
    'by = DOMAIN if known.rows[0]["domain"] == SEVERAL else "run"', 'by = "run"',
)  # fmt: skip
@mutation(
    "a line of a domain has a number of runs", "flows/view/templates/parts.html.j2",
    "{% if line.runs %} <span", "{% if true %} <span",
)  # fmt: skip
def test_each_domain_of_several_has_a_line_beside_that_of_all(tmp_path: Path):
    store = LocalStore(tmp_path)
    log = RunLog(store, "run-a")
    log.open({"arm": "genenv", "domain": {"name": "several"}, "seed": 0, "epochs": 2}, START)
    for epoch in range(3):
        commit_epoch(store, log, epoch)
    with reading(store) as reader:
        found = curves(reader, ["run-a"], DOMAIN)
        rows = reader.panel("d", "d", "FROM domains ORDER BY epoch").rows
        whole = curves(reader, ["run-a"])
    assert [line.name for line in found.lines] == [ALL, "k1"] and not found.bars
    assert found.data["values"]["skill"]["k1"] == [row["skill"] for row in rows]
    assert found.data["values"]["answer"]["k1"] == [row["answer_probability"] for row in rows]
    for column in ("answer", "skill", "kl_env"):
        assert found.data["values"][column][ALL] == whole.data["values"][column]["run-a"]
    assert found.data["values"]["kl_env"]["k1"] == [None] * 3
    assert set(found.panel.columns) <= set(found.words) | {
        "epoch", "seconds", "alpha", "k_min",
    }  # fmt: skip
    with TestClient(application(store), base_url="http://localhost") as browser:
        page = browser.get("/runs/run-a")
    assert page.status_code == 200 and ALL in page.text and "None" not in page.text
