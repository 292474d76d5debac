"""A whole co-evolution on the preset tiny, with real models, TRL, Prefect, tables.

Invariants: every stage leaves a manifest and valid tables; the view `epochs` has its columns; rows
can be traced from a checkpoint to its update's samples and back; the KL of pi_env is that of fresh
generations; weights and leash of its update, what it is paid and the choice of tasks can be
replayed from the tables; predictions stand beside their outcome; a second run with the same
configuration computes nothing, under another run id too; a second root gives the same digests, bit
for bit; a damaged part is computed again while stages that read an equal output stay cached; the
next run continues a failed stage.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from flows.cli.app import app
from flows.coevolution import coevolution
from genenv_core.algorithm.success.model import SuccessModel
from genenv_core.config.stages import EPOCH_STAGES
from genenv_core.config.until import Until
from genenv_core.engines.transformers.engine import TransformersEngine
from genenv_core.engines.transformers.kl import sequence_kl
from genenv_core.engines.transformers.scoring import ScoringArithmetic
from genenv_core.epoch.attempting.choosing import features, rated_attempts, written_p_hat
from genenv_core.epoch.probe import fresh_generations, kl_metrics
from genenv_core.errors import StageError
from genenv_core.ids import stage_seed
from genenv_core.play.chat import ChatFormat
from genenv_core.storage.records.artifacts import Artifacts
from genenv_core.storage.records.manifest import Manifest
from genenv_core.storage.records.parquet import read_parquet
from genenv_core.storage.store.local import LocalStore
from genenv_core.storage.upkeep.verify import verify
from genenv_core.types import SamplingParams
from schemas.registry import TABLES
from schemas.validate import validate
from tests.mutations import mutation
from tests.pipeline.builders import MEASURED, computed, manifests, run, sql, states, tiny
from tests.waiting import BOUND_S, until

EPOCH_COLUMNS = (
    "run_id, arm, epoch, tasks_generated, tasks_valid, p_hat, r_env_mean, share_in_band, "
    "share_zero_signal, share_kept, mean_difficulty, mean_response_tokens, heldout_success, "
    "heldout_success_greedy, kl_env, kl_env_se, grpo_steps, rwr_steps, agent_checkpoint, "
    "env_checkpoint, seconds"
)


@pytest.fixture(scope="module")
def first(begun: Callable[[Path], None], tmp_path_factory: pytest.TempPathFactory):
    """Complete the run that this module's tests examine, in a root of its own."""
    root = tmp_path_factory.mktemp("first") / "root"
    begun(root)
    config = tiny(root, run_id="first")
    run(config)
    return config


def checkpoint(config, manifest: Manifest) -> Path:
    """Return the folder with pi_env as a stage made it."""
    return Artifacts(LocalStore(Path(config.root))).checkpoint(manifest, "env")


def test_every_stage_leaves_a_manifest_with_readable_key_parts(first):
    found = manifests(first)
    assert {s for e, s in found if e == 0} == {"bootstrap", "evaluate", "publish"}
    for epoch in (1, 2):
        assert {s for e, s in found if e == epoch} == set(EPOCH_STAGES)
    for manifest in found.values():
        assert manifest.key_parts["stage"] == manifest.stage
        assert "config" in manifest.key_parts and "code" in manifest.key_parts
        assert "first" not in str(manifest.key_parts["config"])  # the run id is in no key


def test_every_part_is_a_valid_table(first):
    store = LocalStore(Path(first.root))
    seen: set[str] = set()
    for manifest in manifests(first).values():
        for part in manifest.parts:
            if part.table:
                frame = read_parquet(part.table, store.local(part.path))
                validate(part.table, frame)
                assert frame.height == part.rows
                seen.add(part.table)
    # No simulated tools, nothing measures what groups teach, and no conversation begins anew.
    absent = {"observations", "influence", "trace_sequences"}
    assert seen == set(TABLES) - {"stage_runs", "runs", *absent, *MEASURED}


def test_the_view_epochs_has_a_row_an_epoch_with_its_columns(first):
    rows = sql(first, f"SELECT {EPOCH_COLUMNS} FROM epochs ORDER BY epoch")
    assert rows["epoch"].to_list() == [1, 2]
    assert rows["tasks_valid"].min() > 0
    assert rows["p_hat"].is_between(0, 1).all()
    assert rows["seconds"].min() > 0


def test_updates_are_traced_to_their_rows_and_back(first):
    trained = sql(
        first,
        "SELECT u.policy, u.epoch, count(*) AS n, count(t.trace_id) AS traces, "
        "count(g.generation_id) AS generations FROM update_samples u "
        "LEFT JOIN traces t ON t.trace_id = u.row_id "
        "LEFT JOIN generations g ON g.generation_id = u.row_id GROUP BY ALL",
    )
    assert trained.height > 0
    for row in trained.iter_rows(named=True):
        assert row["n"] == row["traces" if row["policy"] == "agent" else "generations"]
    for (_, stage), manifest in manifests(first).items():
        if stage in ("grpo_update", "rwr_update"):
            assert (manifest.facts["action"] == "skipped") == (not manifest.checkpoints)


def test_the_kl_of_pi_env_is_that_of_fresh_generations(first):
    """Sampled again from the published weights, with the same seeds; and no other number."""
    found, shown = (
        manifests(first),
        dict(sql(first, "SELECT epoch, kl_env FROM epochs").iter_rows()),
    )
    initial = checkpoint(first, found[0, "bootstrap"])
    for epoch in (1, 2):
        metrics = found[epoch, "rwr_update"].facts["metrics"]
        folder = checkpoint(first, found[epoch, "rwr_update"])
        prompts = sql(first, f"SELECT prompt_ids, grammar FROM generations WHERE epoch = {epoch}")
        with closing(TransformersEngine.load(folder, threads=1)) as engine:
            fresh = fresh_generations(
                engine,
                prompts,
                SamplingParams(32, stop_token_ids=ChatFormat.load(folder).stop_token_ids),
                count=first.rwr.probe_generations,
                seed_for=partial(stage_seed, first.seed, "rwr_update", epoch),
            )
        expected = kl_metrics(sequence_kl(folder, initial, fresh, arithmetic=ScoringArithmetic(1)))
        assert {name: metrics[name] for name in expected} == pytest.approx(expected, rel=1e-4)
        assert shown[epoch] == metrics["kl_env"] != metrics["kl_leash"]


def test_the_leash_can_be_replayed_from_tables(first):
    initial = checkpoint(first, manifests(first)[0, "bootstrap"])
    for epoch in (1, 2):
        rows = sql(
            first,
            "SELECT weight, prompt_ids, token_ids FROM update_samples JOIN generations "
            f"ON row_id = generation_id WHERE policy = 'env' AND update_samples.epoch = {epoch} "
            "AND leash",
        )
        update = manifests(first)[epoch, "rwr_update"]
        assert (rows["weight"] > 0).sum() == update.facts["rows"] < rows.height
        along = list(rows.select("prompt_ids", "token_ids").iter_rows())
        found = kl_metrics(
            sequence_kl(checkpoint(first, update), initial, along, arithmetic=ScoringArithmetic(1))
        )
        assert found["kl_env"] == pytest.approx(update.facts["metrics"]["kl_leash"], rel=1e-3)


def test_weights_of_families_and_a_target_can_be_replayed_from_tables(api, tiny_root):
    settings = ("rwr.weight_by=family", "curriculum.track=1", "curriculum.k_min=0.5")
    fields = ("rwr.lambda=3", "curriculum.beta=4")
    config = tiny(tiny_root, *settings, *fields, epochs=1, run_id="weighed")
    run(config)
    rows = sql(
        config,
        "SELECT weight, family, d_env.p_hat, metrics ->> '$.rwr_target' AS target, "
        "epochs.p_hat_written AS reached FROM update_samples "
        "JOIN d_env ON generation_id = row_id JOIN tasks USING (task_id) "
        "JOIN checkpoints ON checkpoints.epoch = 1 AND checkpoints.policy = 'env' "
        "JOIN epochs ON epochs.epoch = 1 WHERE weight > 0",
    )
    target = float(rows["target"][0])
    assert target == min(max(1 - rows["reached"][0], 0.2), 0.8) != 0.5
    reward = (-4 * (pl.col("p_hat") - target) ** 2).exp()
    size = pl.len().over("family") + pl.len() / pl.col("family").n_unique()
    raw = rows.select((3 * reward).exp() / size).to_series().to_list()
    assert len(set(raw)) > 1
    expected = [value * len(raw) / sum(raw) for value in raw]
    assert rows["weight"].to_list() == pytest.approx(expected, rel=1e-12)


def test_another_pay_is_stored_and_weighs_the_update(first, api):
    config = tiny(first.root, "rwr.pay=learnability", epochs=1, run_id="paid")
    coevolution(config, Until(stage="rwr_update", epoch=1))
    made = {stage for _, stage in computed(states(config))}
    assert made == {"pool", "grpo_update", "rwr_update"}
    rows = sql(
        config,
        "SELECT pay, successes, n, weight, family FROM d_env JOIN task_scores USING (task_id) "
        "JOIN tasks USING (task_id) "
        "JOIN update_samples ON row_id = d_env.generation_id AND weight > 0",
    )
    # Nothing was predicted before the first epoch: Beta(1 + k, 1 + n - k), in arithmetic.
    a, b, total = pl.col("successes") + 1, pl.col("n") - pl.col("successes") + 1, pl.col("n") + 2
    expected = rows.select(4 * a * b / (total * (total + 1))).to_series().to_list()
    assert rows["pay"].to_list() == pytest.approx(expected, rel=1e-12)
    size = pl.len().over("family") + pl.len() / pl.col("family").n_unique()
    raw = rows.select((config.rwr.lambda_ * pl.col("pay")).exp() / size).to_series().to_list()
    weights = [value * len(raw) / sum(raw) for value in raw]
    assert rows["weight"].to_list() == pytest.approx(weights, rel=1e-12) and len(set(raw)) > 1
    assert "rwr_target" not in manifests(config)[1, "rwr_update"].facts["metrics"]


@mutation(
    "an update rehearses what was no task", "tasks/rwr_update.py",
    'context.frame(made, "tasks").filter("valid")', 'context.frame(made, "tasks")',
)  # fmt: skip
@mutation(
    "what is rehearsed is of the newest epoch", "flows/epoch.py",
    "(state.first_tasks or tasks) if", "tasks if",
)  # fmt: skip
def test_later_updates_rehearse_tasks_of_the_first_epoch(first, api):
    config = tiny(first.root, "rwr.rehearsal=0.8", epochs=2, run_id="rehearsed")
    coevolution(config, Until(stage="rwr_update", epoch=2))
    rows = sql(
        config,
        "SELECT u.row_id, u.weight, u.policy_version, t.epoch, bool_or(t.valid) AS valid "
        "FROM update_samples AS u JOIN tasks AS t ON t.generation_id = u.row_id "
        "WHERE u.policy = 'env' AND u.epoch = 2 AND u.weight > 0 GROUP BY ALL",
    )
    again = rows.filter(epoch=1)
    assert again.height and again["valid"].all() and set(again["policy_version"]) == {0}
    assert set(again["weight"]) == {1.0}
    valid = sql(
        config,
        "SELECT count(DISTINCT generation_id) AS n FROM tasks "
        "WHERE epoch = 1 AND valid AND source = 'generated'",
    )
    learned = rows.height - again.height
    assert again.height == min(valid["n"][0], 4 * learned)


def test_the_choice_of_tasks_can_be_replayed_from_tables(first):
    tasks, scores = (sql(first, f"FROM {name}") for name in ("tasks", "task_scores"))
    written = tasks.filter(source="generated", valid=True)
    chosen = written.filter(pl.col("choice") != "not_chosen")
    assert set(chosen["task_id"]) == set(scores.filter(pl.col("source") != "base")["task_id"])
    epochs = {epoch: rows for (epoch,), rows in written.group_by("epoch")}
    assert epochs[1]["predicted_p"].null_count() == epochs[1].height
    assert set(epochs[1]["choice"]) <= {"random", "not_chosen"}
    model = SuccessModel(rated_attempts(epochs[1], scores))
    again = model.predict([features(row) for row in epochs[2].iter_rows(named=True)])
    assert epochs[2]["predicted_p"].to_list() == [one.mean for one in again]
    assert epochs[2]["predicted_sd"].to_list() == [one.deviation for one in again]
    assert "predicted" in set(epochs[2]["choice"])
    expected = {
        epoch: written_p_hat(rows, scores.filter(epoch=epoch)) for epoch, rows in epochs.items()
    }
    told = dict(sql(first, "SELECT epoch, p_hat_written FROM epochs WHERE epoch > 0").iter_rows())
    assert told == expected


def test_predictions_stand_beside_their_outcome(first):
    rows = sql(first, "FROM predictions ORDER BY epoch, choice")
    for row in rows.iter_rows(named=True):
        own = sql(
            first,
            "SELECT avg(predicted_p) AS m, avg(s.p_hat) AS p FROM tasks t LEFT JOIN task_scores s "
            f"USING (task_id) WHERE t.epoch = {row['epoch']} AND choice = '{row['choice']}'",
        ).row(0, named=True)
        assert (row["predicted_p"], row["p_hat"]) == pytest.approx((own["m"], own["p"]))
        assert (row["p_hat"] is None) == (row["choice"] == "not_chosen")
        both = row["epoch"] == 2 and row["p_hat"] is not None
        assert row["bias"] == (pytest.approx(own["p"] - own["m"]) if both else None)
        assert (row["error"] is not None and 0 < row["noise"] < 1) == both


def test_what_if_with_the_runs_own_settings_repeats_the_run(first):
    rows = sql(first, "FROM what_if()")
    assert rows.height == sql(first, "FROM task_scores").height > 0
    for name in ("r_env", "agent_reason", "env_reason"):
        assert rows[name].equals(rows[f"{name}_played"].rename(name)), name
    pool = sql(first, "FROM d_env").join(rows, on="generation_id", validate="1:1")
    assert pool["weight_raw"].equals(pool["weight_raw_right"].rename("weight_raw"))
    assert pool["kept"].equals((pool["env_reason"] == "kept").rename("kept"))


def test_what_another_choice_would_have_shown(first):
    asked = ["what-if", str(first.run_id), "--root", first.root]
    other = [*asked, "--set", "generation.random_share=1"]
    told = json.loads(CliRunner().invoke(app, [*other, "--json"]).output)
    assert told["set"] == ["generation.random_share=1"] and "one epoch" in told["horizon"]
    (epoch,) = told["epochs"]
    assert (epoch["epoch"], epoch["attempted"], epoch["chosen"]) == (2, 8, 8)
    p_hat = next(one for one in epoch["measures"] if one["measure"] == "p_hat")
    own = "SELECT avg(p_hat) AS p FROM task_scores WHERE epoch = 2 AND source = 'generated'"
    assert p_hat["played"] == pytest.approx(sql(first, own)["p"].item())
    foreseen = p_hat["foreseen"]
    assert 0 <= foreseen["low"] <= foreseen["value"] <= foreseen["high"] <= 1
    shown = CliRunner().invoke(app, other).output
    assert f"[{foreseen['low']:.3f}, {foreseen['high']:.3f}]" in shown and "horizon" in shown
    refused = CliRunner().invoke(app, [*asked, "--set", "rollout.n=2"])
    assert "rollout.n: it changes more than" in str(refused.exception)


def test_the_view_curriculum_agrees_with_the_summaries(first):
    names = "p_hat, share_in_band, share_zero_signal"
    renamed = "mean_response_tokens AS response_tokens, mean_difficulty AS difficulty"
    asked = sql(first, f"SELECT epoch, {names}, {renamed} FROM epochs ORDER BY epoch")
    own = sql(first, f"SELECT {', '.join(asked.columns)} FROM curriculum ORDER BY epoch")
    assert own.rows() == [pytest.approx(row) for row in asked.rows()]


def from_api(path: str, **body: object) -> list[dict]:
    """Return the Prefect API's answer to a filter."""
    import httpx
    from prefect.settings import PREFECT_API_URL

    answer = httpx.post(f"{PREFECT_API_URL.value()}/{path}/filter", json=body, timeout=BOUND_S)
    answer.raise_for_status()
    return answer.json()


def test_a_second_run_reuses_everything_and_says_cached(first, api):
    again = tiny(Path(first.root), run_id="again")
    run(again)
    assert {state for _, _, state in states(again)} == {"cached"}
    assert {k: m.key for k, m in manifests(again).items()} == {
        k: m.key for k, m in manifests(first).items()
    }
    runs = from_api("flow_runs", flow_runs={"name": {"like_": "again · epoch"}})
    assert len(runs) == 2 and {r["state"]["name"] for r in runs} == {"Completed"}
    ids = [r["id"] for r in runs]

    def all_cached() -> bool:  # the server records the states of task runs a moment later
        tasks = from_api("task_runs", flow_runs={"id": {"any_": ids}})
        return [task["state_name"] for task in tasks] == ["Cached"] * 2 * len(EPOCH_STAGES)

    until(all_cached)


def test_replaying_a_run_adds_no_history(first):
    before = states(first)
    run(first)
    assert states(first) == before


def test_another_root_gives_the_same_bits(first, api, tmp_path):
    other = tiny(tmp_path, run_id="other")
    run(other)
    here, there = manifests(first), manifests(other)
    assert here.keys() == there.keys()
    for where, manifest in here.items():
        assert there[where].key == manifest.key, where
        assert there[where].digest == manifest.digest, where


def test_a_damaged_part_is_computed_again_and_the_rest_stays_cached(first, api, tmp_path):
    root = tmp_path / "copy"
    shutil.copytree(first.root, root)
    config = tiny(root, run_id="damaged")
    victim = manifests(tiny(root, run_id="first"))[(1, "score")].of_table("scores")[0]
    path = root / victim.path
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    run(config)
    # Its output came out equal, so everything below it kept its key.
    assert computed(states(config)) == {(1, "score")}


def test_a_failed_stage_is_recorded_and_the_next_run_continues(first, api, monkeypatch):
    from tasks import score as module

    config = tiny(Path(first.root), "curriculum.beta=5", epochs=1, run_id="broken")

    def fail(*_: object) -> None:
        raise ValueError("no luck")

    with monkeypatch.context() as patch:
        patch.setattr(module, "to_tasks", fail)
        with pytest.raises(StageError, match="score of epoch 1: ValueError: no luck"):
            run(config)
    assert (1, "score", "failed") in states(config)
    assert (1, "rollout", "cached") in states(config)
    run(config)
    assert states(config)[-1] == (1, "publish", "computed")


def test_the_plan_walks_the_same_flows(first):
    from flows.planner import plan_run

    assert {e.status for e in plan_run(first)} == {"hit"}
    changed = plan_run(tiny(Path(first.root), "rwr.steps=3", run_id="planned"))
    status = {(e.epoch, e.stage): e.status for e in changed}
    assert status[(1, "pool")] == "hit"
    assert status[(1, "grpo_update")] == "hit"
    assert status[(1, "rwr_update")] == "miss"
    assert status[(1, "publish")] == "unknown"
    assert status[(2, "generate_tasks")] == "unknown"
    assert len(changed) == 3 + 2 * len(EPOCH_STAGES)
    missed = next(e for e in changed if (e.epoch, e.stage) == (1, "rwr_update"))
    assert "config.rwr.steps 2 -> 3" in missed.changed


def test_every_file_of_a_run_is_whole_and_known(first):
    report = verify(LocalStore(Path(first.root)))
    assert (report.damaged, report.unknown) == ([], [])
    assert report.files > 100


def test_manifests_hold_no_secrets_hosts_or_times(first):
    import os
    import socket

    for manifest in manifests(first).values():
        text = Manifest.model_dump_json(manifest)
        assert socket.gethostname() not in text or len(socket.gethostname()) < 4
        assert os.path.abspath(first.root) not in text
