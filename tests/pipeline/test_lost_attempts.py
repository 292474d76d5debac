"""Whole epochs in which an engine fails, episodes do not open and tools take too long.

Invariants: a run whose engine came back equals one whose engine never failed, bit for bit; an
attempt that stayed lost has its cause and no verdict, and counts in no n, p_hat, R_env, advantage
or evaluation, as arithmetic on the tables finds; a group with too few verdicts is in no update.
"""

from __future__ import annotations

import math
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from flows.coevolution import coevolution
from genenv_core.config.schema import RunConfig
from genenv_core.config.until import Until
from genenv_core.domains.trails.trails_domain import TrailsDomain, TrailsEpisode
from genenv_core.engines.transformers.engine import TransformersEngine
from genenv_core.ids import seed_from
from genenv_core.storage.store.local import LocalStore
from genenv_core.storage.upkeep.copying import copy_run
from genenv_core.types import Completion, FinishReason, Observation, SampleRequest, TaskDraft
from tests.examples import some
from tests.pipeline.builders import manifests, run, sql, tiny
from tests.pipeline.test_trails import TRAILS

pytestmark = pytest.mark.slow

GONE = Completion((), (), FinishReason.ERROR, "503: server gone")
QUICK = (*TRAILS, "execution.retry_seconds=0")


@pytest.fixture(scope="module")
def trails_begun(api: None, tiny_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a root with a bootstrap, which is that of test_trails."""
    begun = tiny(tiny_root, *TRAILS, epochs=1, run_id="trails-begun")
    coevolution(begun, Until(stage="bootstrap", epoch=0))
    root = tmp_path_factory.mktemp("lost")
    copy_run(LocalStore(tiny_root), LocalStore(root), "trails-begun")
    return root


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, float]]:
    """Let the engine fail at a share of its requests, for `times` tries of each."""
    set_to: dict[str, float] = {"share": 0.0, "times": 1}
    asked = Counter[tuple[int, int]]()
    sample = TransformersEngine.sample

    def fails(request: SampleRequest) -> bool:
        place = (request.seed, len(request.prompt_ids))
        asked[place] += 1
        chosen = seed_from("fails", request.seed) % 1000 < 1000 * set_to["share"]
        return chosen and asked[place] <= set_to["times"]

    def sampled(engine, requests, params):
        good = [request for request in requests if not fails(request)]
        answers = iter(sample(engine, good, params))
        kept = set(map(id, good))
        return [next(answers) if id(request) in kept else GONE for request in requests]

    monkeypatch.setattr(TransformersEngine, "sample", sampled)
    yield set_to


def test_a_run_whose_engine_came_back_is_one_whose_engine_never_failed(
    trails_begun: Path, tmp_path: Path, failing: dict[str, float]
):
    other = tmp_path / "other"
    shutil.copytree(trails_begun, other)
    straight = tiny(trails_begun, *QUICK, epochs=1, run_id="straight")
    run(straight)
    failing |= {"share": 0.3, "times": 2}
    patient = tiny(other, *QUICK, epochs=1, run_id="patient")
    run(patient)
    here, there = manifests(straight), manifests(patient)
    assert {where: one.digest for where, one in here.items()} == {
        where: one.digest for where, one in there.items()
    }
    assert sql(patient, "SELECT attempts_lost FROM epochs").item() == 0


@pytest.mark.parametrize("share", some((0.01, 0.1, 0.6), (0.6,)))
def test_what_stayed_lost_counts_nowhere(
    trails_begun: Path, failing: dict[str, float], share: float
):
    failing |= {"share": share, "times": 99}
    heat = f"rollout.temperature={1 + share / 100}"  # keys of its own
    config = tiny(
        trails_begun, *QUICK, heat, "execution.retries=1", epochs=1, run_id=f"share-{share}"
    )
    run(config)
    check(config)
    lost = sql(config, "SELECT turns FROM traces WHERE cause = 'engine'")["turns"]
    if share == 0.6:
        assert set(lost) >= {0, 1}  # before the first token, and amid an attempt
        assert sql(config, "FROM selections WHERE reason = 'incomplete_group'").height > 0


def test_episodes_that_do_not_open_and_steps_over_their_limit_are_lost(
    trails_begun: Path, monkeypatch: pytest.MonkeyPatch
):
    opened, step = TrailsDomain.episode, TrailsEpisode.step

    def open_some(domain: TrailsDomain, draft: TaskDraft, seed: int) -> TrailsEpisode:
        if seed % 5 == 0:
            raise ConnectionError("the warehouse is closed")
        episode = opened(domain, draft, seed)
        episode.late = seed % 5 == 1
        return episode

    def too_late(episode: TrailsEpisode, action: str) -> Observation:
        if episode.late:
            raise TimeoutError("the tools gave no answer within 30 s")
        return step(episode, action)

    monkeypatch.setattr(TrailsDomain, "episode", open_some)
    monkeypatch.setattr(TrailsDomain, "version", "closed")
    monkeypatch.setattr(TrailsEpisode, "step", too_late)
    quick = ("execution.retries=1", "generation.guard=false")
    config = tiny(trails_begun, *QUICK, *quick, epochs=1, run_id="closed")
    run(config)
    check(config)
    rows = sql(config, "SELECT cause, example_error FROM failures WHERE cause <> 'agent'")
    assert set(rows["cause"]) == {"environment"}
    errors = sql(config, "SELECT DISTINCT error FROM traces WHERE cause = 'environment'")
    assert {one[:25] for one in errors["error"]} == {
        "the environment failed: T",
        "the episode could not sta",
    }


def check(config: RunConfig) -> None:
    """Hold what a run stored against arithmetic on the attempts that have a verdict."""
    made = sql(
        config,
        "SELECT r.group_id, r.trace_id, r.cause, r.error, s.reward, s.success FROM traces AS r "
        "LEFT JOIN scores AS s USING (run_id, trace_id)",
    )
    lost = made.filter(pl.col("cause").is_not_null() & (pl.col("cause") != "agent"))
    assert lost.height == sql(config, "SELECT attempts_lost FROM epochs").item()
    assert lost["reward"].null_count() == lost.height > 0 or not lost.height
    verdicts = made.join(lost, on="trace_id", how="anti")
    assert verdicts["reward"].null_count() == 0
    groups = {group: rows for (group,), rows in verdicts.group_by("group_id") if rows.height >= 2}
    rated = {row["group_id"]: row for row in sql(config, "FROM task_scores").to_dicts()}
    assert rated.keys() == groups.keys()
    alpha, beta = config.curriculum.alpha, config.curriculum.beta
    for group, row in rated.items():
        n, k = groups[group].height, int(groups[group]["success"].sum())
        assert (row["n"], row["successes"], row["p_hat"]) == (n, k, k / n)
        assert row["lost"] == config.rollout.n - n
        if row["source"] != "base":
            assert row["r_env"] == pytest.approx(math.exp(-beta * (k / n - alpha) ** 2))
    new = [row for row in rated.values() if row["source"] != "base"]
    attempts = sum(row["n"] for row in new)
    p_hat = sum(row["successes"] for row in new) / attempts if attempts else None
    assert sql(config, "SELECT p_hat FROM epochs").item() == p_hat
    trained = sql(config, "FROM update_samples WHERE policy = 'agent'")
    for (group,), rows in trained.group_by("group_id"):
        own = groups[group].sort("trace_id")
        assert rows.sort("row_id")["row_id"].to_list() == own["trace_id"].to_list()
        centred = own["reward"] - own["reward"].mean()
        expected = centred / (own["reward"].std() + 1e-4)
        assert rows.sort("row_id")["advantage"].to_list() == pytest.approx(expected.to_list())
    paid = sql(config, "FROM update_samples WHERE policy = 'env' AND weight > 0")
    pool = sql(config, "FROM d_env WHERE kept")
    assert set(paid["row_id"]) <= set(pool["generation_id"])
    for row in pool.join(sql(config, "FROM task_scores"), on="task_id").to_dicts():
        assert row["r_env"] == row["r_env_right"]
    tried = sql(
        config,
        "SELECT x.cause, e.success, x.split, x.mode FROM evaluation_texts AS x LEFT JOIN "
        "evaluations AS e USING (run_id, epoch, split, mode, task_id, sample_index) "
        "WHERE epoch = 1",
    )
    said = tried["cause"].is_null() | (tried["cause"] == "agent").fill_null(False)
    assert tried["success"].is_not_null().to_list() == said.to_list()
    facts = manifests(config)[1, "evaluate"].facts
    for (split, mode), rows in tried.filter(said).group_by("split", "mode"):
        assert facts[split][mode] == pytest.approx(rows["success"].mean())
