"""The columns of each table by schema version, against what the tables declare.

Invariants: a change of a column raises the version of its table; a version says what it added or
renamed, so that files of the one before can be read, or stands among those that cannot; what it
says is what changed.
"""

from __future__ import annotations

import pytest

from schemas.registry import TABLES, columns
from tests.mutations import mutation

TRACES = "schemas/tables/traces.py"

RECORDED: dict[str, dict[int, str]] = {
    "tasks": {6: (
        "task_id VARCHAR, epoch BIGINT, source VARCHAR, generation_id VARCHAR?, "
        "generation_index BIGINT, context_id VARCHAR?, base_task_id VARCHAR?, "
        "env_policy_version BIGINT?, valid BOOLEAN, rejection VARCHAR?, "
        "rejection_detail VARCHAR, choice VARCHAR?, reserve_place BIGINT?, predicted_p DOUBLE?, "
        "predicted_sd DOUBLE?, predicted_drift DOUBLE?, family VARCHAR?, difficulty DOUBLE?, "
        "chance DOUBLE?, fingerprint VARCHAR?, nearest_task_id VARCHAR?, similarity DOUBLE?, "
        "nearest_test_id VARCHAR?, test_similarity DOUBLE?, env_prompt_tokens BIGINT, "
        "generation_tokens BIGINT, program VARCHAR?, prompt VARCHAR?, ground_truth VARCHAR?, "
        "spec VARCHAR?, generation_text VARCHAR?"
    )},
    "certificates": {1: (
        "task_id VARCHAR, epoch BIGINT, flaw VARCHAR, passed BOOLEAN, detail VARCHAR"
    )},
    "contexts": {1: (
        "context_id VARCHAR, epoch BIGINT, base_task_id VARCHAR, messages VARCHAR"
    )},
    "generations": {2: (
        "generation_id VARCHAR, epoch BIGINT, context_id VARCHAR, env_policy_version BIGINT, "
        "finish_reason VARCHAR, error VARCHAR, grammar VARCHAR?, prompt_ids INTEGER[], "
        "token_ids INTEGER[], logprobs FLOAT[]"
    )},
    "traces": {2: (
        "trace_id VARCHAR, epoch BIGINT, task_id VARCHAR, group_id VARCHAR, "
        "sample_index BIGINT, policy_version BIGINT, turns BIGINT, prompt_tokens BIGINT, "
        "response_tokens BIGINT, tool_calls BIGINT, finish_reason VARCHAR, error VARCHAR, "
        "cause VARCHAR?"
    )},
    "trace_tokens": {1: (
        "trace_id VARCHAR, prompt_ids INTEGER[], token_ids INTEGER[], logprobs FLOAT[], "
        "loss_mask TINYINT[], messages VARCHAR, response_text VARCHAR"
    )},
    "trace_sequences": {1: (
        "trace_id VARCHAR, sequence BIGINT, turn BIGINT, message BIGINT, prompt_ids INTEGER[], "
        "token_ids INTEGER[], logprobs FLOAT[], loss_mask TINYINT[]"
    ), 2: (
        "trace_id VARCHAR, sequence BIGINT, turn BIGINT, message BIGINT, parent BIGINT?, "
        "branch_turn BIGINT, prompt_ids INTEGER[], token_ids INTEGER[], logprobs FLOAT[], "
        "loss_mask TINYINT[]"
    )},
    "trainer_logprobs": {1: (
        "trace_id VARCHAR, epoch BIGINT, logprobs FLOAT[]"
    )},
    "scores": {1: (
        "trace_id VARCHAR, epoch BIGINT, task_id VARCHAR, group_id VARCHAR, reward DOUBLE, "
        "success BOOLEAN, failure VARCHAR"
    )},
    "observations": {1: (
        "trace_id VARCHAR, epoch BIGINT, task_id VARCHAR, turn BIGINT, fits_schema BOOLEAN, "
        "same_state BOOLEAN, content_similarity DOUBLE?, fidelity DOUBLE, said VARCHAR, "
        "true_content VARCHAR?"
    )},
    "task_scores": {3: (
        "group_id VARCHAR, epoch BIGINT, task_id VARCHAR, context_id VARCHAR?, "
        "source VARCHAR, n BIGINT, successes BIGINT, p_hat DOUBLE, p_hat_group DOUBLE?, "
        "p_hat_batch DOUBLE?, skill DOUBLE?, skill_group DOUBLE?, skill_batch DOUBLE?, "
        "r_env_task DOUBLE?, r_env_group DOUBLE?, r_env_batch DOUBLE?, r_env DOUBLE?, "
        "reward_mean DOUBLE, reward_std DOUBLE, zero_signal BOOLEAN, lost BIGINT?"
    )},
    "selections": {1: (
        "task_id VARCHAR, epoch BIGINT, update VARCHAR, group_id VARCHAR?, kept BOOLEAN, "
        "reason VARCHAR, p_hat DOUBLE?, distance DOUBLE?"
    )},
    "d_train": {1: (
        "trace_id VARCHAR, epoch BIGINT, task_id VARCHAR, group_id VARCHAR, "
        "policy_version BIGINT, source VARCHAR, reward DOUBLE, success BOOLEAN"
    )},
    "d_env": {3: (
        "generation_id VARCHAR, epoch BIGINT, task_id VARCHAR, context_id VARCHAR, "
        "env_policy_version BIGINT, p_hat DOUBLE, skill DOUBLE?, r_env DOUBLE, pay DOUBLE?, "
        "weight_raw DOUBLE, kept BOOLEAN"
    )},
    "update_samples": {2: (
        "row_id VARCHAR, policy VARCHAR, epoch BIGINT, group_id VARCHAR?, source VARCHAR, "
        "policy_version BIGINT, advantage DOUBLE?, weight DOUBLE?, leash BOOLEAN?"
    )},
    "influence": {1: (
        "group_id VARCHAR, epoch BIGINT, task_id VARCHAR, source VARCHAR, alignment DOUBLE, "
        "share DOUBLE, loss_tokens BIGINT, tokens BIGINT"
    )},
    "evaluations": {3: (
        "task_id VARCHAR, epoch BIGINT, measured_epoch BIGINT?, policy_version BIGINT, "
        "agent_checkpoint VARCHAR, family VARCHAR?, split VARCHAR, mode VARCHAR, "
        "sample_index BIGINT, success BOOLEAN, reward DOUBLE, answer_probability DOUBLE?, "
        "response_tokens BIGINT, failure VARCHAR"
    )},
    "evaluation_texts": {2: (
        "task_id VARCHAR, epoch BIGINT, split VARCHAR, mode VARCHAR, sample_index BIGINT, "
        "messages VARCHAR, response_text VARCHAR, error VARCHAR?, cause VARCHAR?"
    )},
    "benchmark_items": {1: (
        "trace_id VARCHAR, task_id VARCHAR, benchmark VARCHAR, item VARCHAR, "
        "category VARCHAR, sample_index BIGINT, mode VARCHAR, valid BOOLEAN?, score DOUBLE, "
        "reason VARCHAR, parts VARCHAR"
    )},
    "benchmark_metrics": {1: (
        "benchmark VARCHAR, metric VARCHAR, headline BOOLEAN, items BIGINT, not_run BIGINT, "
        "value DOUBLE?, low DOUBLE?, high DOUBLE?, missing VARCHAR"
    )},
    "certified_sets": {1: (
        "name VARCHAR, estimate DOUBLE?, low DOUBLE?, high DOUBLE?, n BIGINT, unit VARCHAR, "
        "wanted DOUBLE, at_least BOOLEAN, verdict VARCHAR, detail VARCHAR"
    )},
    "set_flaws": {1: (
        "task_id VARCHAR, set_name VARCHAR, flaw VARCHAR, passed BOOLEAN, detail VARCHAR"
    )},
    "checkpoints": {1: (
        "policy VARCHAR, epoch BIGINT, digest VARCHAR, parent_digest VARCHAR?, "
        "published BOOLEAN, gate VARCHAR, gate_detail VARCHAR, steps BIGINT, "
        "is_best BOOLEAN, metrics VARCHAR"
    )},
    "epochs": {6: (
        "epoch BIGINT, tasks_generated BIGINT, tasks_valid BIGINT, p_hat DOUBLE?, "
        "p_hat_written DOUBLE?, skill DOUBLE?, r_env_mean DOUBLE?, share_in_band DOUBLE?, "
        "share_zero_signal DOUBLE?, share_kept DOUBLE?, mean_difficulty DOUBLE?, "
        "mean_response_tokens DOUBLE?, heldout_success DOUBLE?, "
        "heldout_success_greedy DOUBLE?, heldout_answer_probability DOUBLE?, "
        "validation_success DOUBLE?, kl_env DOUBLE?, kl_env_se DOUBLE?, grpo_steps BIGINT, "
        "rwr_steps BIGINT, agent_checkpoint VARCHAR, env_checkpoint VARCHAR, "
        "agent_action VARCHAR, agent_note VARCHAR, env_action VARCHAR, env_note VARCHAR, "
        "tasks_note VARCHAR?, attempts_lost BIGINT?, tasks_refilled BIGINT?"
    )},
    "stage_runs": {4: (
        "run_id VARCHAR, epoch BIGINT, stage VARCHAR, attempt BIGINT, stage_key VARCHAR, "
        "state VARCHAR, host VARCHAR, pid BIGINT, started_at TIMESTAMP WITH TIME ZONE, "
        "seconds DOUBLE?, compute_seconds DOUBLE?, rows BIGINT?, bytes BIGINT?, "
        "error VARCHAR, computed_by VARCHAR?, computed_at TIMESTAMP WITH TIME ZONE?, "
        "computed_seconds DOUBLE?, computed_root VARCHAR?, tokens BIGINT?, "
        "peak_memory BIGINT?"
    )},
    "runs": {3: (
        "run_id VARCHAR, arm VARCHAR, domain VARCHAR, seed BIGINT, epochs_planned BIGINT, "
        "started_at TIMESTAMP WITH TIME ZONE, config VARCHAR, tags VARCHAR[], note VARCHAR, "
        "pinned BOOLEAN, branch_of VARCHAR?, branch_epoch BIGINT?"
    ), 4: (
        "run_id VARCHAR, arm VARCHAR, domain VARCHAR, seed BIGINT, epochs_planned BIGINT, "
        "started_at TIMESTAMP WITH TIME ZONE, config VARCHAR, tags VARCHAR[], note VARCHAR, "
        "pinned BOOLEAN, branch_of VARCHAR?, branch_epoch BIGINT?, fixed_tasks VARCHAR?"
    )},
}  # fmt: skip
"""Columns with their types, `?` for one that may be null, by table and version. Leave a version as
it is once it has an entry: what it wrote lies in people's roots. A new one gets an entry beside it.
"""

UNREADABLE: dict[str, tuple[int, ...]] = {
    "tasks": (2, 3),
    "generations": (2,),
    "update_samples": (2,),
    "evaluations": (2,),
    "epochs": (2,),
    "runs": (2, 3),
}
"""Versions of a table that cannot read files of the version before; no new one without a reason."""


def declared(table: str) -> list[str]:
    """Return the columns that a table declares, as `RECORDED` writes them."""
    return [f"{one.name} {one.sql_type}{'?' * one.nullable}" for one in columns(table)]


def read_from(table: str, version: int) -> list[str] | None:
    """Return the columns of files of a version as the table declares it; None if they are refused.

    They are today's without those added since, and with the names of then.
    """
    added = TABLES[table].added_since(version)
    if added is None:
        return None
    earlier, found = TABLES[table].earlier_names(version), list[str]()
    for one in declared(table):
        name, _, kind = one.partition(" ")
        if name not in added:
            while name in earlier:
                name = earlier[name]
            found.append(f"{name} {kind}")
    return found


@mutation(
    "a column is added without a version", TRACES,
    "    turns: int = fields.count", "    laps: int = fields.count",
)  # fmt: skip
@mutation(
    "a column may be null without a version", TRACES,
    'fields.note("What broke the rollout; \'\' when nothing did.")',
    'fields.text("What broke the rollout; \'\' when nothing did.", nullable=True)',
)  # fmt: skip
@pytest.mark.parametrize("table", TABLES)
def test_a_change_of_a_column_is_a_version(table: str) -> None:
    recorded = RECORDED.get(table, {}).get(TABLES[table].version, "")
    assert ", ".join(declared(table)) == recorded, (
        f"{table}: raise its version for this change, with `added` or `renamed`, and record the "
        "new version here beside the old one"
    )


@mutation(
    "a version explains nothing", TRACES,
    'version=2, added={2: ("cause",)}', "version=2",
)  # fmt: skip
@mutation(
    "a version is raised alone", TRACES,
    'version=2, added={2: ("cause",)}', 'version=3, added={2: ("cause",)}',
)  # fmt: skip
@pytest.mark.parametrize("table", TABLES)
def test_a_version_says_what_it_added_or_renamed(table: str) -> None:
    spec, reasons = TABLES[table], max(UNREADABLE.get(table, ()), default=0)
    refused = [one for one in range(2, spec.version + 1) if spec.added_since(one - 1) is None]
    assert refused == list(range(2, reasons + 1)), (
        f"{table}: genenv refuses files from before these versions: give them `added` or `renamed`"
    )


@mutation(
    "an added column is not named", TRACES,
    'version=2, added={2: ("cause",)}', 'version=3, added={2: ("cause",), 3: ("error",)}',
)  # fmt: skip
@pytest.mark.parametrize("table", TABLES)
def test_what_a_version_says_is_what_changed(table: str) -> None:
    for version, recorded in RECORDED.get(table, {}).items():
        found = read_from(table, version)
        assert found is None or sorted(found) == sorted(recorded.split(", ")), (
            f"{table}: files of version {version} have other columns than `added` and `renamed` say"
        )
