"""The report.

Invariants: a page is self-contained (no outside address, no script, a policy that lets nothing
load) and holds every section, for one run, several, one that has not finished an epoch, and arms
without environment updates; text of models is inert; secrets of the configuration are not in it;
runs differ by more than colour; the intervals of few runs are those of `genenv view`; a browser
draws it and runs nothing of it.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from flows.view.curves import GAIN, curves
from genenv_core.config.load import dump, resolve
from genenv_core.hiding import HIDDEN, without_secrets
from genenv_core.report.charts import CHANGE, GLYPHS, MARKERS, SERIES, Chart, draw
from genenv_core.report.data import RunReport, read_report
from genenv_core.report.page import render
from genenv_core.report.words import number
from genenv_core.storage.records.parquet import to_parquet
from genenv_core.storage.sql.catalog import RunSource, connect
from genenv_core.storage.sql.sources import open_tables
from genenv_core.storage.store.local import LocalStore
from tests.mutations import mutation
from tests.unit.builders_tables import world
from tests.unit.view.builders_comparing import play, reading, tasks
from tests.waiting import BOUND_S

HISTORY = ("stage_runs", "runs")
ATTACK = '<script>document.title = "owned"</script><img src="http://evil.example/x.png" onerror=1>'
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
Tables = dict[str, pl.DataFrame]


def tables() -> Tables:
    found = dict(world())
    config = dump(resolve("tiny")) | {"tracking": {"uri": "postgresql://me:hunter2@db/x"}}
    found["runs"] = found["runs"].with_columns(config=pl.lit(json.dumps(config)))
    messages = json.dumps(
        [{"role": "user", "content": ATTACK}, {"role": "assistant", "content": ATTACK}]
    )
    found["trace_tokens"] = found["trace_tokens"].with_columns(messages=pl.lit(messages))
    found["tasks"] = found["tasks"].with_columns(
        generation_text=pl.lit(ATTACK), rejection_detail=pl.lit(ATTACK)
    )
    return found


def page(folder: Path, *runs: tuple[str, Tables]) -> str:
    sources: list[RunSource] = []
    for run, given in runs:
        (folder / run).mkdir()
        files: dict[str, list[str]] = {}
        for name in set(given) - set(HISTORY):
            path = folder / run / f"{name}.parquet"
            path.write_bytes(to_parquet(name, given[name]))
            files[name] = [str(path)]
        frames = {n: given[n].with_columns(run_id=pl.lit(run)) for n in HISTORY if n in given}
        sources.append(RunSource(run, "genenv", files, frames))
    with connect(sources) as con:
        found = read_report(con, [run for run, _ in runs])
    now = datetime(2026, 11, 1, tzinfo=UTC)
    return render(found, root="./genenv-data", now=now, version="0")


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the page of one run."""
    return page(tmp_path_factory.mktemp("report"), ("run-a", tables()))


def without_updates(given: Tables) -> Tables:
    """Return the tables of an arm that never updates pi_env."""
    changed = dict(given)
    env = (pl.col("policy") == "env") & (pl.col("epoch") > 0)
    changed["checkpoints"] = given["checkpoints"].filter(~env)
    changed["update_samples"] = given["update_samples"].filter(pl.col("policy") != "env")
    changed["epochs"] = given["epochs"].with_columns(
        kl_env=pl.lit(None, pl.Float64), env_action=pl.lit("skipped"), env_note=pl.lit("arm")
    )
    return changed


SECTIONS = ("charts", "epochs", "examples", "rejections", "gates", "lineage", "config", "next")


def sound(text: str) -> None:
    """Assert that a page is whole and self-contained."""
    for section in SECTIONS:
        assert f'id="{section}"' in text
    assert "default-src 'none'" in text
    assert "<script" not in text and "<img" not in text and "<link" not in text
    assert "@import" not in text and "url(http" not in text
    # Nothing that could be followed or fetched leads out of the page.
    for value in re.findall(r'(?:href|src|action|data)="([^"]*)"', text):
        assert value.startswith("#"), value
    for value in re.findall(r"url\(([^)]*)\)", text):
        assert value.startswith("#"), value


@mutation(
    "a report does not begin with what came out", "genenv_core/report/page.html.j2",
    "{% if runs | length == 1 %}{{ numbers(headlines) }}{% endif %}", "",
)  # fmt: skip
@mutation(
    "a report does not say what is wrong", "genenv_core/report/page.html.j2",
    "{{ findings(run.outcome) }}", "",
)  # fmt: skip
def test_a_report_begins_with_what_came_out_and_what_is_wrong(one: str) -> None:
    head = one[: one.index('id="charts"')]
    for label in ("success on new tasks", "groups with signal", "tokens"):
        assert f"<span>{label}</span>" in head
    assert '<li class="warning">' in head


def test_a_report_of_one_run_has_all_charts(one: str) -> None:
    sound(one)
    assert one.count("<svg") >= 8
    assert "All 2 epochs are finished." in one
    assert "Every gate was open" in one
    assert "agent-digest-1"[:12] in one
    for title in ("Success on new tasks", "Test success", "R_env", "Cost by stage"):
        assert title in one
    assert "genenv trace" in one and "genenv sql" in one
    assert len(one) < 400_000


@mutation(
    "the report has an interval of its own", "genenv_core/report/data.py",
    "t.value + (gain_low - gain) AS low", "gain_low AS low",
)  # fmt: skip
@mutation(
    "the report draws no interval", "genenv_core/report/charts.py",
    '_bars(axes, index, run.measured(measure), "low", "high")', "pass",
)  # fmt: skip
@mutation(
    "the report draws intervals that hide each other", "genenv_core/report/charts.py",
    "enumerate(runs if len(runs) <= FEW else ())", "enumerate(runs)",
)  # fmt: skip
@pytest.mark.slow
def test_the_intervals_of_few_runs_are_those_of_the_page(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    for name in "abcd":
        play(store, name, {0: tasks([0.1, 0.3, 0.6]), 1: tasks([0.2, 0.6, 0.7])}, rwr={"kl_cap": 1})
    with reading(store) as reader:
        shown = curves(reader, ["a"]).panel.rows
    with open_tables(store) as con:
        runs = read_report(con, list("abcd"))
    found = runs[0].measured("answer_probability")
    for place, name in {"value": "answer", "low": "answer_low", "high": "answer_high"}.items():
        assert [row[place] for row in found] == pytest.approx([row[name] for row in shown])
    assert found[0]["low"] is None and found[1]["low"] < found[1]["value"] < found[1]["high"]
    few, many = (answer_chart(runs[:count]) for count in (3, 4))
    assert few.caption.endswith(CHANGE) and CHANGE.strip() == GAIN
    assert few.svg.count("stroke-opacity: 0.35") == 3
    assert "Bars:" not in many.caption and "stroke-opacity: 0.35" not in many.svg


def answer_chart(runs: list[RunReport]) -> Chart:
    """Return the chart of P(answer) of these runs."""
    return next(chart for chart in draw(runs) if chart.title == "Probability of the answer")


@pytest.mark.slow
def test_the_fidelity_is_a_headline_where_pi_env_plays_the_tools(tmp_path: Path, one: str) -> None:
    assert "fidelity of pi_env" in one and "0.88" in one  # 14 of 16, see test_views
    given = tables()
    executed = given | {"observations": given["observations"].clear()}
    assert "fidelity of pi_env" not in page(tmp_path, ("run-a", executed))


def test_text_of_models_is_inert(one: str) -> None:
    assert "&lt;script&gt;document.title" in one
    assert ATTACK not in one


def test_no_secret_is_in_the_page(one: str) -> None:
    assert "hunter2" not in one and HIDDEN in one
    hidden = without_secrets({"api_key": "x", "max_tokens": 3, "a": [{"password": "y"}]})
    assert hidden == {"api_key": HIDDEN, "max_tokens": 3, "a": [{"password": HIDDEN}]}


@pytest.mark.slow
def test_several_runs_of_different_lengths_and_arms(tmp_path: Path) -> None:
    whole = tables()
    short = {
        name: frame.filter(pl.col("epoch") < 2) if "epoch" in frame.columns else frame
        for name, frame in whole.items()
    }
    nothing = {"runs": whole["runs"], "stage_runs": whole["stage_runs"].head(0)}
    text = page(tmp_path, ("a", whole), ("b", short), ("c", without_updates(whole)), ("d", nothing))
    sound(text)
    assert 'id="runs"' in text
    head = text[: text.index('id="charts"')]
    assert ">start → last</th>" in head and ">2 of 2</td>" in head and ">1 of 2</td>" in head
    for run, glyph in zip("abcd", GLYPHS, strict=False):
        assert f"{glyph}</span> {run}" in text
    assert "1 of 2 epochs are finished" in text
    assert "No epoch is finished yet" in text
    assert "env skipped: arm" in text


def test_a_run_without_a_finished_epoch_says_so(tmp_path: Path) -> None:
    given = tables()
    text = page(tmp_path, ("run-a", {name: given[name] for name in HISTORY}))
    sound(text)
    assert "No epoch is finished yet" in text
    assert "interrupted" in text and "evaluate of epoch 1" in text


def test_runs_differ_by_more_than_colour() -> None:
    assert len(set(MARKERS)) == len(set(GLYPHS)) == len(MARKERS) == len(GLYPHS) == SERIES


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, ""), (0.0, "0"), (0.05, "0.0500"), (12.345, "12.3"), (1234.5, "1,234"), (7, "7")],
)
def test_numbers_are_rounded_for_the_page(value: float | None, text: str) -> None:
    assert number(value) == text


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium (apt-get install chromium)")
def test_a_browser_draws_it_and_runs_nothing(tmp_path: Path, one: str) -> None:
    path, shot = tmp_path / "report.html", tmp_path / "shot.png"
    path.write_text(one, encoding="utf-8")
    command = [
        *(str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
        *(f"--user-data-dir={tmp_path / 'profile'}", "--window-size=500,4000"),
    ]
    drawn = subprocess.run(
        [*command, f"--screenshot={shot}", path.as_uri()], capture_output=True, timeout=BOUND_S
    )
    assert drawn.returncode == 0, drawn.stderr.decode()
    assert shot.stat().st_size > 50_000
    dom = subprocess.run(
        [*command, "--dump-dom", path.as_uri()], capture_output=True, text=True, timeout=BOUND_S
    ).stdout
    assert "<title>genenv: run-a</title>" in dom
    assert "<script" not in dom and "<img" not in dom
