"""The mutations: one broken rule each, and the quickest tests that must notice it."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Mutation:
    """An edit of one file: `old`, which occurs once in it, becomes `new`; some test must fail.

    `tests` are node ids below tests/.
    """

    name: str
    file: str
    old: str
    new: str
    killers: tuple[str, ...]

    @property
    def tests(self) -> tuple[str, ...]:
        """Return the node ids from the root of the repository."""
        return tuple(f"tests/{killer}" for killer in self.killers)


def fault(mutation: Mutation, root: Path) -> str:
    """Return why a mutation cannot be tried in this tree, '' when it can."""
    path = root / mutation.file
    if not path.is_file():
        return f"{mutation.file} is not there"
    found = path.read_text(encoding="utf-8").count(mutation.old)
    if found != 1 or mutation.old == mutation.new:
        return f"its text is {found} times in {mutation.file}, not once"
    for test in mutation.tests:
        file, *_, name = test.split("::")
        # Also in the files beside it: a class may have its tests from a contract.
        texts = (beside.read_text(encoding="utf-8") for beside in (root / file).parent.glob("*.py"))
        define = f"def {name.partition('[')[0]}("
        if not (root / file).is_file() or not any(define in text for text in texts):
            return f"{test} is not there"
    return ""


def _m(name: str, file: str, old: str, new: str, *killers: str) -> Mutation:
    return Mutation(name, file, old, new, killers)


ALGORITHM = "genenv_core/algorithm"
SAYING = "unit/algorithm/test_saying.py::test"
BRANCHING = "unit/config/test_branching.py::test"
BRANCHES = "unit/storage/test_branches.py::test"
SPENT = "unit/spending/test_spent.py::test"
PREDICTS = "unit/spending/test_predicting.py::test"
CERTIFIED = "unit/play/test_certificate.py::test_"
_ALGORITHM = (
    _m(
        "the strength of what features say is never fitted",
        f"{ALGORITHM}/success_model.py",
        "self._strength = exp(float(found.x))",
        "pass",
        "unit/algorithm/test_success_model.py::test_it_finds_the_model_that_made_the_rows",
    ),
    _m(
        "a word that one task alone has counts",
        f"{ALGORITHM}/success_model.py",
        "if held[word] > 1",
        "if held[word] > 0",
        "unit/algorithm/test_success_model.py::test_a_word_of_a_single_task_says_nothing_of_others",
    ),
    _m(
        "a usual family does not bound the weight of a small one",
        f"{ALGORITHM}/rwr.py",
        "value / (sizes[name] + usual)",
        "value / sizes[name]",
        "unit/algorithm/test_rwr_weights.py::"
        "test_the_only_row_of_a_family_does_not_outweigh_all_others",
    ),
    _m(
        "r_env rewards the distance from alpha",
        f"{ALGORITHM}/reward.py",
        "math.exp(-beta *",
        "math.exp(beta *",
        "unit/algorithm/test_reward.py::test_r_env_golden",
    ),
    _m(
        "r_env without the square",
        f"{ALGORITHM}/reward.py",
        "(success_rate - alpha) ** 2)",
        "abs(success_rate - alpha))",
        "unit/algorithm/test_reward.py::test_r_env_golden",
    ),
    _m(
        "p_hat of a context is its last task's",
        f"{ALGORITHM}/reward.py",
        "(k + item.successes, n + item.n)",
        "(item.successes, item.n)",
        "unit/algorithm/test_reward.py::test_rating_golden_at_every_level",
    ),
    _m(
        "the band without a tolerance",
        f"{ALGORITHM}/selection.py",
        "<= k_min + TOLERANCE",
        "<= k_min",
        "unit/algorithm/test_selection.py::test_band_golden",
        "unit/algorithm/test_selection.py::test_band_is_symmetric",
    ),
    _m(
        "groups of equal rewards reach GRPO",
        f"{ALGORITHM}/selection.py",
        "candidate.zero_signal:",
        "False:",
        "unit/algorithm/test_selection.py::test_reason_for_the_agent_update",
    ),
    _m(
        "incomplete groups are kept",
        f"{ALGORITHM}/selection.py",
        "        return SelectionReason.INCOMPLETE_GROUP",
        "        return None",
        "unit/algorithm/test_selection.py::test_reason_for_the_environment_update",
    ),
    _m(
        "the band does not guard pi_env",
        f"{ALGORITHM}/selection.py",
        "_gate(candidate) or _band(candidate, alpha, k_min) or",
        "_gate(candidate) or",
        "unit/algorithm/test_selection.py::test_reason_for_the_environment_update",
    ),
    _m(
        "rwr weights without mean 1",
        f"{ALGORITHM}/rwr.py",
        "scale = mean(shifted)",
        "scale = 1.0",
        "unit/algorithm/test_rwr_weights.py::test_normalised_golden",
    ),
    _m(
        "rwr weights fall with the reward",
        f"{ALGORITHM}/rwr.py",
        "math.exp(lambda_ * (reward - top))",
        "math.exp(lambda_ * (top - reward))",
        "unit/algorithm/test_rwr_weights.py::test_normalised_golden",
    ),
    _m(
        "a family weighs by its size",
        f"{ALGORITHM}/rwr.py",
        "if families is not None:",
        "if False:",
        "unit/algorithm/test_rwr_weights.py::"
        "test_a_row_is_divided_by_the_rows_of_its_family_and_of_a_usual_one_golden",
    ),
    _m(
        "the target moves with the error",
        f"{ALGORITHM}/rwr.py",
        "alpha + track * (alpha - p_hat)\n    return",
        "alpha - track * (alpha - p_hat)\n    return",
        "unit/algorithm/test_rwr_weights.py::test_the_target_moves_against_the_error",
    ),
    _m(
        "the target moves without limits",
        f"{ALGORITHM}/rwr.py",
        "min(max(moved, min(TARGET_LOW, alpha)), max(TARGET_HIGH, alpha))",
        "moved",
        "unit/algorithm/test_rwr_weights.py::test_the_target_moves_against_the_error",
    ),
    _m(
        "rwr takes all its steps on few rows",
        f"{ALGORITHM}/rwr.py",
        "max(1, min(steps, math.ceil(rows * steps_per_row)))",
        "steps",
        "unit/algorithm/test_rwr_weights.py::test_few_rows_take_few_steps",
    ),
    _m(
        "advantages without centring",
        f"{ALGORITHM}/advantages.py",
        "(reward - centre) / divisor",
        "reward / divisor",
        "unit/algorithm/test_advantages.py::test_advantages_golden_three_of_four",
    ),
    _m(
        "deviation with n in the denominator",
        f"{ALGORITHM}/stats.py",
        "(len(values) - 1))",
        "len(values))",
        "unit/algorithm/test_advantages.py::test_mean_and_deviation_golden",
    ),
    _m(
        "any policy age is admitted",
        f"{ALGORITHM}/mixture.py",
        "return 1 <= current - policy_version <= max_age",
        "return 1 <= current - policy_version",
        "unit/algorithm/test_mixture.py::test_admissible_age",
    ),
    _m(
        "history takes the room of new groups",
        f"{ALGORITHM}/mixture.py",
        "for source in (MixtureShare.NEW, MixtureShare.BASE, MixtureShare.HISTORY):",
        "for source in (MixtureShare.HISTORY, MixtureShare.BASE, MixtureShare.NEW):",
        "unit/algorithm/test_mixture.py::test_draw_golden",
        "unit/algorithm/test_mixture.py::test_draw_holds_its_promises",
    ),
    _m(
        "a duplicate of the batch is a task",
        f"{ALGORITHM}/admission.py",
        "(batch, Rejection.DUPLICATE),",
        "((), Rejection.DUPLICATE),",
        "unit/algorithm/test_admission.py::test_each_place_has_its_reason",
    ),
    _m(
        "a held-out task is trained on",
        f"{ALGORITHM}/admission.py",
        "(heldout, Rejection.IN_HELDOUT),",
        "((), Rejection.IN_HELDOUT),",
        "unit/algorithm/test_admission.py::test_each_place_has_its_reason",
    ),
    *(
        _m(name, "genenv_core/play/certificate.py", old, new, f"{CERTIFIED}{test}")
        for name, old, new, test in (
            (
                "a judge that accepts anything is sound",
                "domain.trivial_answers(draft)),",
                "[]),",
                "all_of_1000_defects_are_found_and_named",
            ),
            (
                "a canary may pass",
                "_accepted(draft, domain, CANARIES)",
                "_accepted(draft, domain, [])",
                "all_of_1000_defects_are_found_and_named",
            ),
            (
                "a request may give a part of the answer away",
                "[draft.ground_truth]), *parts]",
                "[draft.ground_truth])]",
                "all_of_1000_defects_are_found_and_named",
            ),
            (
                "a verdict may change",
                "verdict != verdicts[0] for verdict in verdicts",
                "verdict.success and not verdict.reward for verdict in verdicts",
                "all_of_1000_defects_are_found_and_named",
            ),
            (
                "one attempt of the domain is enough",
                "ATTEMPTS = 10",
                "ATTEMPTS = 1",
                "all_of_1000_defects_are_found_and_named",
            ),
        )
    ),
    _m(
        "the letter of a choice is a leak",
        f"{ALGORITHM}/saying.py",
        "return len(words.split()) > 1 and words in _words(text)",
        "return words in _words(text)",
        f"{SAYING}_a_part_is_said_as_whole_words",
    ),
    _m(
        "a number is said by its digits",
        f"{ALGORITHM}/saying.py",
        "if (number := _NUMBER.fullmatch(part.strip())) is not None:",
        "if (number := _NUMBER.fullmatch(part)) is not None and not part:",
        f"{SAYING}_a_part_is_said_as_whole_words",
    ),
    _m(
        "a flawed task is attempted",
        "genenv_core/epoch/generation.py",
        "if flaw is None or not self._guard:",
        "if flaw is None or self._guard:",
        "unit/epoch/test_generation.py::test_a_flawed_task_is_refused_while_the_guard_is_on",
    ),
    _m(
        "the entropy gate is flipped",
        f"{ALGORITHM}/gates.py",
        'metrics["entropy"] < gates.min_entropy',
        'metrics["entropy"] > gates.min_entropy',
        "unit/algorithm/test_gates.py::test_healthy_candidates_pass",
    ),
    _m(
        "a better candidate closes the held-out gate",
        f"{ALGORITHM}/gates.py",
        "if current - validation >",
        "if validation - current >",
        "unit/algorithm/test_gates.py::test_each_gate_closes_alone_and_says_why",
    ),
    _m(
        "the gate of pi_env reads the leash",
        f"{ALGORITHM}/gates.py",
        'if metrics["kl_env"] > gates.max_kl_env:',
        'if metrics.get("kl_leash", metrics["kl_env"]) > gates.max_kl_env:',
        "unit/algorithm/test_gates.py::test_pi_env_is_judged_by_fresh_generations_and_not_by_the_leash",
    ),
    _m(
        "a lie passes the gates",
        f"{ALGORITHM}/gates.py",
        'metrics.get("fidelity", 1.0) >=',
        'metrics.get("fidelity", 1.0) >= 0 *',
        "unit/algorithm/test_gates.py::test_each_gate_closes_alone_and_says_why",
    ),
    _m(
        "executed tools have no fidelity, and close the gate",
        f"{ALGORITHM}/gates.py",
        'metrics.get("fidelity", 1.0)',
        'metrics.get("fidelity", 0.0)',
        "unit/epoch/test_publishing.py::test_candidates_behind_open_gates_are_published",
    ),
    _m(
        "a NaN passes the gates of pi_env",
        f"{ALGORITHM}/gates.py",
        "not_finite(sorted(metrics.items()))",
        '""',
        "unit/algorithm/test_gates.py::test_nan_closes_first_and_names_the_metric",
    ),
)

EPOCH = "genenv_core/epoch"
UPDATES = "unit/epoch/test_updates.py::test"
CHOOSING = "unit/epoch/test_choosing.py::test"
_EPOCH = (
    _m(
        "what predictions missed is left out of the next ones",
        f"{EPOCH}/choosing.py",
        "predict(rows, drift=missed)",
        "predict(rows)",
        f"{CHOOSING}_what_earlier_predictions_missed_moves_the_next_ones",
    ),
    _m(
        "a drift that is in a prediction is counted again",
        f"{EPOCH}/choosing.py",
        'log_odds(rate) - task["predicted_drift"]',
        "log_odds(rate)",
        f"{CHOOSING}_a_drift_that_is_in_a_prediction_is_not_counted_again",
    ),
    _m(
        "the nearest to alpha are chosen, whatever they average to",
        f"{EPOCH}/choosing.py",
        "too_easy = total > alpha * (len(lot) + len(near))",
        "too_easy = bool(below) and not above",
        f"{CHOOSING}_they_average_to_alpha_where_most_are_too_easy",
    ),
    _m(
        "tasks that hardly teach balance the others",
        f"{EPOCH}/choosing.py",
        "band = [place for place in order if in_band(rates[place], alpha=alpha, k_min=k_min)]",
        "band = order",
        f"{CHOOSING}_what_hardly_teaches_balances_nothing",
    ),
    _m(
        "nothing is drawn by lot once there are predictions",
        f"{EPOCH}/choosing.py",
        "by_lot = round(settings.random_share * count) if predicted else count",
        "by_lot = 0 if predicted else count",
        f"{CHOOSING}_those_predicted_near_alpha_are_chosen_beside_a_share_by_lot",
    ),
    _m(
        "what was not chosen is attempted",
        f"{EPOCH}/choosing.py",
        'pl.col("choice").ne_missing(TaskChoice.NOT_CHOSEN.value)',
        "True",
        f"{CHOOSING}_what_is_not_chosen_is_not_attempted_and_what_a_teacher_wrote_is",
    ),
    _m(
        "what was written is judged by what was attempted",
        f"{EPOCH}/choosing.py",
        'rate=pl.coalesce("seen", "predicted_p")',
        'rate=pl.col("seen")',
        f"{CHOOSING}_the_success_rate_of_what_was_written",
    ),
    _m(
        "a task that nobody attempted counts as rejected",
        f"{ALGORITHM}/selection.py",
        "        return SelectionReason.NOT_ATTEMPTED",
        "        return SelectionReason.INVALID_TASK",
        "unit/epoch/test_selecting.py::test_a_decision_for_each_task_and_update",
    ),
    _m(
        "pi_env is paid by p_hat",
        f"{EPOCH}/pooling.py",
        'weight_raw=pl.col("r_env")',
        'weight_raw=pl.col("p_hat")',
        "unit/epoch/test_pooling.py::test_a_generation_of_two_tasks_is_paid_with_their_mean",
    ),
    _m(
        "a generation is paid with the best of its tasks",
        f"{EPOCH}/pooling.py",
        'pl.mean("p_hat", "r_env")',
        'pl.max("p_hat", "r_env")',
        "unit/epoch/test_pooling.py::test_a_generation_of_two_tasks_is_paid_with_their_mean",
    ),
    _m(
        "D_train has groups that were not kept",
        f"{EPOCH}/pooling.py",
        '_of(selections, Policy.AGENT).filter("kept")',
        "_of(selections, Policy.AGENT)",
        "unit/epoch/test_pooling.py::test_d_train_has_the_traces_of_kept_groups",
    ),
    _m(
        "base tasks count as new in D_train",
        f"{EPOCH}/pooling.py",
        ".then(pl.lit(PooledTask.BASE.value))",
        ".then(pl.lit(PooledTask.NEW.value))",
        "unit/epoch/test_pooling.py::test_d_train_has_the_traces_of_kept_groups",
    ),
    _m(
        "R_env is always a task's own",
        f"{EPOCH}/scoring.py",
        "rated.r_env[curriculum.level]",
        "rated.r_env[Level.TASK]",
        "unit/epoch/test_scoring.py::test_r_env_is_the_one_of_the_configured_level",
    ),
    _m(
        "base tasks are in the batch's p_hat",
        f"{EPOCH}/scoring.py",
        "if task.source is not TaskSource.BASE:",
        "if task.source:",
        "unit/epoch/test_scoring.py::test_each_task_is_rated_at_every_level_and_base_tasks_apart",
    ),
    _m(
        "a trace that broke may succeed",
        f"{EPOCH}/scoring.py",
        '        if trace["error"]\n',
        '        if trace["error"] == "never"\n',
        "unit/epoch/test_scoring.py::test_each_trace_is_judged_and_one_that_broke_has_failed",
    ),
    _m(
        "an invalid task is kept",
        f"{EPOCH}/selecting.py",
        'Candidate(valid=task["valid"], generated=generated, attempted=False)',
        "Candidate(True, generated, True, 0.5)",
        "unit/epoch/test_selecting.py::test_a_rejected_task_has_neither_group_nor_p_hat",
    ),
    _m(
        "evaluation is on base tasks",
        f"{EPOCH}/evaluating.py",
        "TaskSource(way.split.value)",
        "TaskSource.BASE",
        "unit/epoch/test_evaluating.py::test_held_out_tasks_are_attempted_in_each_mode",
    ),
    _m(
        "evaluation seeds go by the epoch",
        "tasks/evaluate.py",
        "partial(stage_seed, context.seed, STAGE.name, 0)",
        "context.seed_for",
        "pipeline/test_edges.py::test_each_arm_trains_what_it_should",
    ),
    _m(
        "the test tasks decide",
        f"{EPOCH}/publishing.py",
        "evaluation.facts[Split.VALIDATION]",
        "evaluation.facts[Split.TEST]",
        "unit/epoch/test_publishing.py::test_an_evaluation_is_read_by_split",
    ),
    _m(
        "observations are in the probability of the answer",
        "genenv_core/play/answer.py",
        "strict=True) if mask)",
        "strict=True))",
        "unit/play/test_answer.py::test_sampled_tokens_of_all_turns_count_and_no_others",
    ),
    _m(
        "an answer that does not fit is possible",
        "genenv_core/play/answer.py",
        "len(ids) > play.params.max_tokens",
        "len(ids) > 10 * play.params.max_tokens",
        "unit/play/test_answer.py::test_an_answer_that_does_not_fit_is_impossible",
    ),
    _m(
        "scored tokens are off by one",
        "genenv_core/engines/transformers/token_logprobs.py",
        "logits[place, first - 1 : len(rows[place]) - 1]",
        "logits[place, first : len(rows[place])]",
        "unit/engines/test_token_logprobs.py::test_tokens_have_the_logprobs_that_they_were_sampled_with",
    ),
    _m(
        "gains are not paired",
        "schemas/views/test_gains.sql",
        "stddev_samp(n.value - o.value)",
        "stddev_samp(n.value)",
        "unit/schemas/test_views.py::test_gains_are_paired_by_task",
    ),
    _m(
        "an updated agent is not evaluated",
        f"{EPOCH}/evaluating.py",
        "current.name not in update.checkpoints",
        "current.name in update.checkpoints",
        "unit/epoch/test_evaluating.py::test_the_checkpoint_that_an_update_made_is_evaluated",
    ),
    _m(
        "rollouts are seeded by the task's id",
        f"{EPOCH}/attempts.py",
        "seed_for(place_of[task], sample, turn)",
        "seed_for(task, sample, turn)",
        "unit/epoch/test_attempts.py::test_seeds_go_by_place_not_by_id",
    ),
    _m(
        "base tasks are drawn alike in every epoch",
        f"{EPOCH}/attempts.py",
        'np.random.default_rng(seed_for("base"))',
        "np.random.default_rng(0)",
        "unit/epoch/test_attempts.py::test_base_tasks_are_drawn_from_the_stages_seed",
    ),
    _m(
        "held-out tasks are attempted in training",
        f"{EPOCH}/attempts.py",
        "of_source(data, TaskSource.BASE)",
        "data",
        "unit/epoch/test_attempts.py::test_no_more_base_tasks_than_there_are",
    ),
    _m(
        "an equal checkpoint is the best",
        f"{EPOCH}/publishing.py",
        "measured.validation > best",
        "measured.validation >= best",
        "unit/epoch/test_publishing.py::test_best_is_better_than_the_best",
    ),
    _m(
        "a closed gate publishes",
        f"{EPOCH}/publishing.py",
        "update.digest if open_[policy] else update.parent",
        "update.digest",
        "unit/epoch/test_publishing.py::test_behind_a_closed_gate_the_parent_stays",
    ),
    _m(
        "the facts publish behind a closed gate",
        f"{EPOCH}/publishing.py",
        "open_[policy] and update.made for",
        "update.made for",
        "unit/epoch/test_publishing.py::test_behind_a_closed_gate_the_parent_stays",
    ),
    _m(
        "the summary counts base tasks",
        f"{EPOCH}/rows.py",
        'task_scores.filter(pl.col("source") != TaskSource.BASE.value)',
        "task_scores",
        "unit/epoch/test_publishing.py::test_the_summary_counts_new_tasks",
    ),
    _m(
        "tasks of recent epochs are written again",
        f"{EPOCH}/generation.py",
        "_fingerprints(recent)",
        "set[str]()",
        "unit/epoch/test_generation.py::test_tasks_of_recent_epochs_and_of_the_held_out_set_are_rejected",
    ),
    _m(
        "a teacher's programs may be held-out tasks",
        f"{EPOCH}/generation.py",
        "_fingerprints(of_source(data, *HELDOUT))",
        "set[str]() if recent.is_empty() else _fingerprints(of_source(data, *HELDOUT))",
        "unit/epoch/test_generation.py::test_a_program_of_the_held_out_set_is_rejected",
    ),
    _m(
        "a text that was cut off is a task",
        f"{EPOCH}/generation.py",
        "if done.finish_reason is FinishReason.LENGTH:",
        "if False:",
        "unit/epoch/test_generation.py::test_what_is_no_whole_text_is_a_row_with_its_reason",
    ),
    _m(
        "rwr pays p_hat",
        f"{EPOCH}/env_update.py",
        'kept["r_env"].to_list()',
        'kept["p_hat"].to_list()',
        f"{UPDATES}_an_env_update_takes_what_the_filter_kept_weighted_by_r_env",
    ),
    _m(
        "rwr forgets its target",
        f"{EPOCH}/env_update.py",
        "r_env(p_hat, alpha=target,",
        "r_env(p_hat, alpha=curriculum.alpha,",
        f"{UPDATES}_a_row_is_paid_by_its_p_hat_where_the_target_is_not_alpha",
    ),
    _m(
        "families never count",
        f"{EPOCH}/env_update.py",
        'if rwr.weight_by == "family":',
        "if False:",
        f"{UPDATES}_a_row_counts_in_the_family_of_its_task",
    ),
    _m(
        "rwr takes what the filter rejected",
        f"{EPOCH}/env_update.py",
        'kept, fresh = pools.filter(pl.col("kept")),',
        "kept, fresh = pools,",
        f"{UPDATES}_an_env_update_takes_what_the_filter_kept_weighted_by_r_env",
    ),
    _m(
        "the leash is along the rows that are learned from",
        f"{EPOCH}/env_update.py",
        'on="generation_id", how="anti"',
        'on="generation_id", how="semi"',
        f"{UPDATES}_the_kl_is_along_all_that_pi_env_wrote_in_this_epoch",
    ),
    _m(
        "the leash is along generations of older epochs",
        f"{EPOCH}/env_update.py",
        '(pl.col("epoch") == epoch) & whole',
        "whole",
        f"{UPDATES}_the_kl_is_along_all_that_pi_env_wrote_in_this_epoch",
        f"{UPDATES}_without_a_generation_of_this_epoch_there_is_no_update",
    ),
    _m(
        "the leash is along failed requests",
        f"{EPOCH}/env_update.py",
        '(pl.col("epoch") == epoch) & whole',
        'pl.col("epoch") == epoch',
        f"{UPDATES}_the_kl_is_along_all_that_pi_env_wrote_in_this_epoch",
    ),
    _m(
        "rows of the KL alone count as learned from",
        f"{EPOCH}/rows.py",
        'pl.col("weight").is_null() | (pl.col("weight") > 0)',
        'pl.col("weight").is_null() | (pl.col("weight") >= 0)',
        f"{UPDATES}_an_env_update_takes_what_the_filter_kept_weighted_by_r_env",
    ),
    _m(
        "rows of the KL alone are behind a checkpoint",
        "schemas/views/lineage.sql",
        "WHERE u.weight IS NULL OR u.weight > 0",
        "WHERE TRUE",
        "unit/schemas/test_views.py::test_lineage_walks_to_the_parents_and_back",
    ),
    _m(
        "a generation of the KL alone trained pi_env",
        "schemas/views/task_history.sql",
        "WHERE weight IS NULL OR weight > 0",
        "WHERE TRUE",
        "unit/schemas/test_views.py::test_task_history_names_the_updates_that_learned",
    ),
    _m(
        "the probe's generations have one seed",
        f"{EPOCH}/probe.py",
        'seed_for("probe", index)',
        'seed_for("probe", 0)',
        "unit/epoch/test_probe.py::test_the_probe_answers_the_epochs_prompts_again",
    ),
    _m(
        "the probe writes without its grammar",
        f"{EPOCH}/probe.py",
        "Grammar(**json.loads(given)) if given else None",
        "None",
        "unit/epoch/test_probe.py::test_the_probe_answers_the_epochs_prompts_again",
    ),
    _m(
        "the probe counts what failed",
        f"{EPOCH}/probe.py",
        "        if done.finish_reason is not FinishReason.ERROR\n",
        "",
        "unit/epoch/test_probe.py::test_what_failed_does_not_count",
    ),
    _m(
        "the error of the KL is its deviation",
        f"{EPOCH}/probe.py",
        "sample_std(values) / math.sqrt(len(values))",
        "sample_std(values)",
        "unit/epoch/test_probe.py::test_mean_and_standard_error_by_hand",
    ),
    _m(
        "the KL is that of the first pi_env to the new one",
        "genenv_core/engines/transformers/kl.py",
        "kl_terms(ours, theirs)",
        "kl_terms(theirs, ours)",
        "unit/engines/test_sequence_kl.py::test_it_is_the_brute_force_sum",
    ),
    _m(
        "an update replays groups of any age",
        f"{EPOCH}/agent_update.py",
        "admissible(v, current=current, max_age=max_age)",
        "True",
        f"{UPDATES}_an_agent_update_takes_new_base_and_stored_groups_of_admissible_age",
    ),
    _m(
        "pi_env writes more than is missing",
        f"{EPOCH}/generation.py",
        "start + enough - intake.valid",
        "start + enough",
        "unit/epoch/test_generation.py::test_sampling_goes_on_for_what_is_missing",
    ),
    _m(
        "a run that learns nothing goes on",
        f"{EPOCH}/trouble.py",
        "if name in now and any",
        "if name not in now and any",
        "unit/epoch/test_trouble.py::test_two_epochs_of_one_trouble_stop_the_run",
    ),
    _m(
        "one attempt that ended well hides nothing",
        f"{EPOCH}/trouble.py",
        "    return {BREAKING if fine else BROKEN: said}\n",
        "    return {BROKEN: said}\n",
        "unit/epoch/test_trouble.py::test_half_of_them_are_told_and_stop_nothing",
    ),
    _m(
        "the domain's own leaks are not asked for",
        "genenv_core/play/certificate.py",
        "if not isinstance(domain, NamesLeaks):",
        "if True:",
        "unit/play/test_certificate.py::test_the_domain_says_what_a_leak_is",
    ),
    _m(
        "a module beside a plug-in is in no key",
        "genenv_core/storage/records/code.py",
        "or _together(one, top)}",
        "}",
        "unit/domains/test_registry.py::test_every_module_beside_it_that_it_imports_is_in_the_key",
    ),
    _m(
        "a plug-in's files are in no key",
        "tasks/stage/key.py",
        ", *_file_digests(domain)]",
        "]",
        "unit/domains/test_registry.py::test_the_files_that_it_names_are_in_the_key",
    ),
    _m(
        "all generations have one seed",
        f"{EPOCH}/generation.py",
        'seed_for("generation", start + offset)',
        'seed_for("generation", start)',
        "unit/epoch/test_generation.py::test_each_generation_has_a_seed_of_its_own_by_its_place",
    ),
    _m(
        "pi_env sees the agent's record on base tasks",
        f"{EPOCH}/generation.py",
        'task_scores.filter(pl.col("source") == TaskSource.GENERATED.value).join(',
        "task_scores.join(",
        "unit/epoch/test_generation.py::test_the_agents_record_is_of_generated_tasks",
    ),
    _m(
        "base tasks teach pi_env",
        f"{ALGORITHM}/selection.py",
        "if candidate.valid and not candidate.generated:",
        "if False:",
        "unit/algorithm/test_selection.py::test_reason_for_the_environment_update",
        "unit/epoch/test_selecting.py::test_a_decision_for_each_task_and_update",
    ),
    _m(
        "the band looks at a task's own p_hat",
        f"{ALGORITHM}/reward.py",
        'pl.coalesce(P_HAT_COLUMNS[level], "p_hat")',
        'pl.col("p_hat")',
        "unit/algorithm/test_reward.py::test_what_is_judged_is_the_level_asked_for_and_a_base_task_by_its_own",
    ),
)

_PLAY = (
    _m(
        "observations are trained on",
        "genenv_core/play/attempt.py",
        "self.loss_mask.extend([0] * len(between))",
        "self.loss_mask.extend([1] * len(between))",
        "unit/play/test_rollout.py::test_a_scripted_episode_gives_the_tokens_computed_by_hand",
    ),
    _m(
        "a turn's logprobs are one token late",
        "genenv_core/play/attempt.py",
        "self.logprobs.extend(completion.logprobs)",
        "self.logprobs.extend((0.0, *completion.logprobs[:-1]))",
        "unit/play/test_rollout.py::test_a_scripted_episode_gives_the_tokens_computed_by_hand",
    ),
    _m(
        "a completion that was cut off is acted on",
        "genenv_core/play/attempt.py",
        "        if completion.finish_reason is FinishReason.LENGTH:\n",
        "        if False:\n",
        "unit/play/test_rollout.py::test_a_truncated_completion_is_not_acted_on",
    ),
    _m(
        "all turns of an attempt have one seed",
        "genenv_core/play/attempt.py",
        "seed=seed_of(self.task_id, self.sample_index, self.turns)",
        "seed=seed_of(self.task_id, self.sample_index, 0)",
        "unit/play/test_rollout.py::test_a_scripted_episode_gives_the_tokens_computed_by_hand",
        "unit/play/test_rollout.py::test_attempts_of_quick_tools_go_in_step_and_keep_their_order_and_seeds",
    ),
    _m(
        "sampled logprobs are of the largest logit",
        "genenv_core/engines/transformers/sampling.py",
        "logprobs.gather(1, tokens).squeeze(1)",
        "logprobs.max(dim=1).values",
        "unit/engines/test_sampling.py::test_choosing_by_hand_computed_numbers",
    ),
    _m(
        "the nucleus leaves out the token that fills it",
        "genenv_core/engines/transformers/sampling.py",
        "ranked.cumsum(dim=-1, dtype=torch.float64) - ranked",
        "ranked.cumsum(dim=-1, dtype=torch.float64)",
        "unit/engines/test_sampling.py::test_choosing_by_hand_computed_numbers",
        "unit/engines/test_sampling.py::test_top_p_draws_from_the_smallest_sufficient_set",
    ),
    _m(
        "a given model's tokenizer may be replaced",
        "genenv_core/exchange/given_models.py",
        "        if old != new:\n",
        "        if False:\n",
        "unit/exchange/test_models.py"
        "::test_a_tokenizer_that_transformers_replaces_is_refused_with_what_helps",
    ),
    _m(
        "a chat template is rendered without its variables",
        "genenv_core/play/chat.py",
        "                    **self._variables,\n",
        "",
        "unit/play/test_chat.py::test_variables_of_the_template_are_in_every_rendering",
    ),
    _m(
        "pi_env's template gets the agent's variables",
        "tasks/policies/sampler.py",
        "config.models.env_chat_template_kwargs",
        "config.models.agent_chat_template_kwargs",
        "unit/tasks/test_template_variables.py::test_each_template_gets_its_policys_variables",
    ),
    _m(
        "a template's variable may shadow an argument",
        "genenv_core/config/sections/models.py",
        "        if name in TEMPLATE_ARGUMENTS:\n",
        "        if False:\n",
        "unit/config/test_config.py::test_a_bad_setting_names_the_field_the_value_and_the_remedy",
    ),
    _m(
        "an explained simulator is shown numbers that it may not write",
        "genenv_core/domains/desk/wording.py",
        "min(left, max_operand), item, min(right, max_operand)",
        "left, item, right",
        "unit/domains/test_desk.py::test_the_simulators_rules_show_programs_that_are_tasks",
    ),
)

RWR = "genenv_core/training/rwr"
REGRESSED = "unit/training/test_rwr.py::test"
GRPO = "genenv_core/training/grpo"
STEPPED = "unit/training/test_grpo.py::test"
_GRPO = (
    _m(
        "delta is not passed on",
        f"{GRPO}/trainer.py",
        "delta=settings.delta,",
        "delta=None,",
        f"{STEPPED}_delta_bounds_the_ratio_where_the_advantage_is_negative",
    ),
    _m(
        "delta may undercut the upper clip",
        "genenv_core/config/sections/updates.py",
        "self.delta <= 1 + self.clip_high",
        "self.delta < 1",
        f"{STEPPED}_delta_is_above_the_upper_clip",
    ),
    _m(
        "the kl to the first checkpoint is to the start",
        f"{GRPO}/trainer.py",
        "self.ref_model = frozen(reference, self.accelerator)",
        "self.ref_model = self.model",
        f"{STEPPED}_the_kl_to_the_first_checkpoint_pulls_from_the_first_step",
    ),
    _m(
        "the first checkpoint is scored at temperature 1",
        f"{GRPO}/trainer.py",
        "add_fused_lm_head(reference, temperature=self.temperature)",
        "add_fused_lm_head(reference)",
        f"{STEPPED}_the_kl_to_the_first_checkpoint_pulls_from_the_first_step",
    ),
    _m(
        "with adapters, the first checkpoint has the starting one",
        f"{GRPO}/trainer.py",
        "adapter_name=None if self._to_bootstrap",
        'adapter_name="default" if self._to_bootstrap',
        "unit/training/test_training_lora.py::"
        "test_the_kl_of_pi_agent_to_the_first_one_is_along_its_adapter",
    ),
    _m(
        "merged adapters stay in what is disabled",
        "genenv_core/training/policies/reference.py",
        "if not merging and same_base(policy.source, initial):",
        "if True:",
        "unit/training/test_training_lora.py::"
        "test_merged_weights_are_no_longer_those_of_the_first_one",
    ),
    _m(
        "a reference that nothing pulls to is accepted",
        "genenv_core/config/sections/updates.py",
        'if self.kl_reference != "start" and not self.kl_coef:',
        "if False:",
        f"{STEPPED}_the_reference_belongs_to_the_setting_that_asks_for_it",
    ),
    _m(
        "the first agent is an input of every update",
        "flows/epoch.py",
        'state.agent_initial if config.grpo.kl_reference == "bootstrap" else None',
        "state.agent_initial",
        "unit/flows/test_arms.py::"
        "test_the_first_agent_is_an_input_where_the_kl_is_to_it_and_in_no_other_key",
    ),
    _m(
        "the first agent moves with the published one",
        "flows/state.py",
        'changes["agent"] = _checkpoint(grpo, "agent", refs.epoch)',
        'changes["agent"] = changes["agent_initial"] = _checkpoint(grpo, "agent", refs.epoch)',
        "unit/flows/test_arms.py::"
        "test_the_first_agent_is_an_input_where_the_kl_is_to_it_and_in_no_other_key",
    ),
    _m(
        "truncated rollouts stay in the loss",
        f"{GRPO}/batches.py",
        "if not request.settings.mask_truncated:",
        "if True:",
        f"{STEPPED}_a_truncated_rollout_has_no_loss_and_still_a_reward",
    ),
    _m(
        "the rollouts that end by themselves count as truncated",
        f"{EPOCH}/agent_update.py",
        'pl.col("finish_reason") == FinishReason.LENGTH.value',
        'pl.col("finish_reason") == FinishReason.STOP.value',
        f"{UPDATES}_the_trainer_gets_the_rows_that_are_noted",
    ),
    _m(
        "a step without a counted token divides by it",
        f"{GRPO}/trainer.py",
        "tokens.clamp(min=1)}",
        "tokens}",
        f"{STEPPED}_an_update_whose_rows_are_all_left_out_moves_nothing",
    ),
    _m(
        "only tokens that became more likely are a mismatch",
        f"{GRPO}/batches.py",
        "abs(a - b) <= most",
        "b - a <= most",
        f"{STEPPED}_tokens_far_from_the_engines_logprobs_have_no_loss_in_any_step",
    ),
    _m(
        "a resumed update looks for mismatches under its moved weights",
        f"{GRPO}/trainer.py",
        "        self._leave_out_mismatches()  # the last moment of the start's weights where one "
        "resumes\n",
        "",
        "unit/training/test_training_resume.py::"
        "test_an_update_killed_after_any_step_ends_on_the_same_bits[grpo near]",
    ),
)
_TRAINING = (
    _m(
        "the KL is along the rows that are learned from, too",
        f"{RWR}/trainer.py",
        'if batch["leash"]:\n            kl',
        "if True:\n            kl",
        f"{REGRESSED}_gradient_equals_the_hand_written_loss",
        f"{REGRESSED}_pulling_gradient_is_the_kl_alone_and_matches_finite_differences",
    ),
    _m(
        "the KL is divided by the rows that are learned from",
        f"{RWR}/trainer.py",
        "kl / self.step_batches.leash_rows",
        "kl / self.step_batches.rows",
        f"{REGRESSED}_the_kl_is_of_the_leash_and_not_of_the_rows_learned_from",
    ),
    _m(
        "rows of the KL alone thin the likelihood",
        f"{RWR}/batches.py",
        "zip(ends, rows.weight, strict=True) if weight > 0]",
        "zip(ends, rows.weight, strict=True) if weight >= 0]",
        f"{REGRESSED}_rows_of_the_kl_alone_take_no_step_and_no_likelihood",
    ),
)

KEYS = "unit/config/test_what_changes_a_key.py::test"
FIELDS = "unit/config/test_stage_config.py::test"
_KEYS = (
    _m(
        "the machine is in no key",
        "tasks/stage/key.py",
        '        runtime["machine"] = platform.machine()',
        "        pass",
        f"{KEYS}_the_machine_counts_where_models_run",
    ),
    _m(
        "the domain's version is in no key",
        "tasks/stage/key.py",
        'runtime["domain"] = " ".join([domain.name, domain.version, *_file_digests(domain)])',
        "pass",
        f"{KEYS}_the_domains_version_counts_where_it_is_read",
    ),
    _m(
        "the domain's code is in no key",
        "tasks/stage/key.py",
        "chosen = modules_of(config.domain.name, domain) if domain else []",
        "chosen: list[str] = []",
        f"{KEYS}_an_edit_recomputes_the_stages_that_use_the_module",
    ),
    _m(
        "the engine's code is in no key",
        "tasks/stage/key.py",
        "chosen.append(engine_module(config.compute.engine))",
        "pass",
        f"{KEYS}_what_the_configuration_chooses_counts_where_it_is_used",
    ),
    _m(
        "all engines are in every key",
        "tasks/stage/key.py",
        "chosen.append(engine_module(config.compute.engine))",
        'chosen += [engine_module("transformers"), engine_module("vllm")]',
        f"{KEYS}_a_keep_alive_of_vllm_recomputes_nothing_under_transformers",
    ),
    _m(
        "how an update is launched is in no key",
        "tasks/stage/key.py",
        "chosen.append(LAUNCH)",
        "pass",
        f"{KEYS}_what_the_configuration_chooses_counts_where_it_is_used",
    ),
    _m(
        "seeds and scopes are in no key",
        "tasks/stage/key.py",
        "*chosen_modules(stage, config, domain), *AROUND)",
        "*chosen_modules(stage, config, domain))",
        f"{KEYS}_seeds_count_though_a_stage_imports_none_of_them",
    ),
    _m(
        "library versions are in no key",
        "tasks/stage/key.py",
        'version(library).partition("+")[0] for library in stage.libraries}',
        '"" for library in stage.libraries}',
        f"{KEYS}_each_library_counts_by_its_version_without_the_build",
    ),
    _m(
        "an input that equals its default is in the key",
        "tasks/stage/inputs.py",
        "if value != left}",
        "if value is not left}",
        "unit/config/test_stage_config.py::test_epoch_and_inputs_count_and_inputs_by_content",
    ),
    _m(
        "inputs are in no key",
        "tasks/stage/key.py",
        "inputs=identities(inputs)",
        "inputs={}",
        f"{FIELDS}_epoch_and_inputs_count_and_inputs_by_content",
    ),
    _m(
        "the age of a checkpoint is in no key",
        "tasks/stage/inputs.py",
        'return f"{value.digest}@{value.policy_version}"',
        "return value.digest",
        f"{FIELDS}_epoch_and_inputs_count_and_inputs_by_content",
    ),
    _m(
        "the epoch is in no key",
        "genenv_core/storage/records/keys.py",
        '"epoch": epoch,',
        '"epoch": 0,',
        "unit/storage/test_keys.py::test_each_part_changes_the_key_and_is_named",
    ),
    _m(
        "the seed is in no key",
        "genenv_core/storage/records/keys.py",
        '"seed": seed,',
        '"seed": 0,',
        "unit/storage/test_keys.py::test_each_part_changes_the_key_and_is_named",
    ),
    _m(
        "a stage may read what its key does not hold",
        "tasks/stage/key.py",
        '        raise StageError(\n            f"stage {self._stage.name} reads config.',
        "        return value\n        raise StageError(\n"
        '            f"stage {self._stage.name} reads config.',
        f"{FIELDS}_a_refusal_names_the_field",
    ),
    _m(
        "imports of imports are in no code version",
        "genenv_core/storage/records/code.py",
        "waiting += [name for name in imported_modules(module) if not is_apart(name)]",
        "pass",
        "unit/storage/test_code_version.py::test_a_change_in_what_is_imported_counts",
    ),
    _m(
        "a stage's seed is the same in every epoch",
        "genenv_core/ids.py",
        "return seed_from(seed, stage, epoch, *parts)",
        "return seed_from(seed, stage, *parts)",
        f"{KEYS}_seeds_and_scopes_are_those_of_ids",
    ),
    _m(
        "ids change with the code",
        "genenv_core/ids.py",
        '_MADE_BY = ("code", "runtime", "format")',
        '_MADE_BY = ("runtime", "format")',
        f"{KEYS}_seeds_and_scopes_are_those_of_ids",
    ),
)

STORED = "unit/storage/test_artifacts.py::test"
_STORE = (
    _m(
        "a commit replaces the first winner",
        "genenv_core/storage/records/artifacts.py",
        "            self._store.create(path, data)\n",
        "            self._store.replace(path, data)\n",
        f"{STORED}_the_second_commit_of_a_key_gets_the_first_ones_manifest",
    ),
    _m(
        "an object is created by a rename, not a link",
        "genenv_core/storage/store/local.py",
        "            os.link(source, target)\n            sync",
        "            shutil.copyfile(source, source.with_suffix('.x'))\n"
        "            os.replace(source.with_suffix('.x'), target)\n            sync",
        "unit/storage/test_local_store.py::TestLocalStore::test_create_never_overwrites",
    ),
    _m(
        "objects can be written",
        "genenv_core/storage/files.py",
        "            path.chmod(mode)\n",
        "            pass\n",
        "unit/storage/test_local_store.py::test_objects_are_read_only",
    ),
    _m(
        "a record is written in place",
        "genenv_core/storage/files.py",
        "        os.replace(made, path)\n",
        "        path.unlink(missing_ok=True)\n"
        "        path.write_bytes(b'')\n"
        "        os.replace(made, path)\n",
        "unit/storage/test_local_store.py::TestLocalStore::test_a_reader_never_sees_half_a_replacement",
    ),
    _m(
        "bytes are not on the disk before they are named",
        "genenv_core/storage/files.py",
        "            sync(path)\n",
        "            pass\n",
        "unit/storage/test_local_store.py::test_bytes_are_on_the_disk_before_they_have_a_name",
    ),
    _m(
        "a part of another content is a hit",
        "genenv_core/storage/records/artifacts.py",
        "            if digest != part.sha256:\n",
        "            if False:\n",
        f"{STORED}_a_damaged_part_is_a_miss_said_aloud_and_healed_by_a_rewrite",
    ),
    _m(
        "a missing part is a hit",
        "genenv_core/storage/records/artifacts.py",
        "            if stat is None:\n",
        "            if stat is None:\n                continue\n            if stat is None:\n",
        f"{STORED}_a_damaged_part_is_a_miss_said_aloud_and_healed_by_a_rewrite",
    ),
    _m(
        "the digest of an output leaves out its facts",
        "genenv_core/storage/records/manifest.py",
        '"facts": self.facts',
        '"facts": {}',
        f"{STORED}_the_digest_covers_rows_facts_and_names",
    ),
    _m(
        "a NaN among the facts is committed",
        "genenv_core/storage/records/artifacts.py",
        'not_finite(_numbers(facts, f"facts of stage {self._stage}"))',
        '""',
        f"{STORED}_a_fact_that_is_no_number_is_refused",
    ),
    _m(
        "a lease is not released",
        "genenv_core/storage/store/leases.py",
        "            self._release(path, token)\n",
        "            pass\n",
        "unit/storage/test_leases.py::test_a_lease_names_its_holder_and_is_gone_afterwards",
    ),
    _m(
        "a lease is taken from a holder that is at work",
        "genenv_core/storage/store/leases.py",
        "silent = time.monotonic() - since > self._ttl_s",
        "silent = True",
        "unit/storage/test_leases.py::test_a_beating_holder_is_waited_for",
    ),
    _m(
        "gc removes parts that a kept stage names",
        "genenv_core/storage/upkeep/gc.py",
        "named |= {part.path for part in manifest.parts if whole or part.table}",
        "named |= {part.path for part in manifest.parts if whole and not part.table}",
        "unit/storage/test_gc.py::test_only_superseded_weights_of_a_finished_run_go",
    ),
    _m(
        "gc removes what is young",
        "genenv_core/storage/upkeep/gc.py",
        "self._old = store.clock() - rule.older_than_h * 3600",
        "self._old = store.clock() + 3600",
        "unit/storage/test_gc.py::test_nothing_young_goes",
    ),
    _m(
        "gc takes the weights of a pinned run",
        "genenv_core/storage/upkeep/gc.py",
        "kept |= _outputs({run: keys}) if run in pinned else set()",
        "pass",
        "unit/storage/test_labels.py::test_a_pinned_run_keeps_its_weights_and_cannot_be_dropped",
    ),
    _m(
        "two who tag at once lose a tag",
        "genenv_core/storage/records/labels.py",
        "if nothing or data == before or store.swap(path, before, data):",
        "if nothing or store.replace(path, data) is None:",
        "unit/storage/test_labels.py::test_writers_at_once_lose_nothing",
    ),
    _m(
        "the first difference is any",
        "genenv_core/storage/records/differing.py",
        "return place[0], list(STAGES).index(place[1])",
        "return place[0], -list(STAGES).index(place[1])",
        "unit/storage/test_differing.py::test_each_part_of_a_key_is_told_by_its_kind",
    ),
    _m(
        "one that loses the race says that it computed the stage",
        "tasks/stage/execution.py",
        "        if won:\n            note_origin",
        "        if True:\n            note_origin",
        "unit/tasks/test_origin.py::test_one_that_loses_the_race_notes_nothing",
    ),
    _m(
        "a reused stage does not say whose it is",
        "tasks/stage/execution.py",
        "            **computed_then(origin),\n",
        "",
        "unit/tasks/test_origin.py::test_a_reused_stage_names_the_run_that_computed_it",
    ),
    _m(
        "a run goes on after its end",
        "genenv_core/config/until.py",
        "<= (self.epoch, order.index(self.stage))",
        "<= (self.epoch, len(order))",
        "unit/config/test_until.py::test_what_an_end_covers",
    ),
    _m(
        "the end leaves a stage at work alone",
        "tasks/stage/stopping.py",
        "            end.wait()",
        "            pass",
        "unit/tasks/test_stopping.py::test_what_is_at_work_is_waited_for",
    ),
    _m(
        "a run spends one stage more than its limit",
        "genenv_core/spending/spent.py",
        "if getattr(spent, name) >= value",
        "if getattr(spent, name) > value",
        f"{SPENT}_a_limit_is_reached_when_as_much_is_spent",
    ),
    _m(
        "a reused stage counts as spent",
        "genenv_core/spending/spent.py",
        "if one.state is not StageState.CACHED:",
        "if True:",
        f"{SPENT}_what_an_attempt_spends",
    ),
    _m(
        "a reached limit stops what is stored too",
        "tasks/stage/stopping.py",
        "if reached and not is_stored():",
        "if reached:",
        "unit/tasks/test_stopping.py"
        "::test_a_limit_ends_the_work_before_the_first_stage_that_would_be_computed",
    ),
    _m(
        "a budget overlooks what ended an epoch",
        "tasks/stage/limiting.py",
        "wanted = {epoch, self._last}",
        "wanted = {epoch}",
        "unit/tasks/test_limiting.py::test_a_budget_follows_the_history_of_its_run",
    ),
    _m(
        "a run with another limit is another run",
        "genenv_core/config/load.py",
        '"measure", "roots", "limits", "prices")',
        '"measure", "roots", "prices")',
        f"{SPENT}_a_run_with_other_limits_is_the_same_run_and_goes_on_with_them",
    ),
    _m(
        "a resumed run takes any change",
        "genenv_core/config/load.py",
        "    if fixed:",
        "    if False:",
        f"{SPENT}_a_run_with_other_limits_is_the_same_run_and_goes_on_with_them",
    ),
    _m(
        "a limit of cost without prices is taken",
        "genenv_core/config/schema.py",
        "if limits.cost is not None and not self.prices.given:",
        "if False:",
        f"{SPENT}_bad_limits_and_prices_are_refused",
    ),
    _m(
        "a prediction does not grow with the work",
        "genenv_core/spending/predicting.py",
        "median(one.seconds for one in used) * size",
        "median(one.seconds for one in used)",
        f"{PREDICTS}_seconds_and_tokens_grow_with_the_work_and_memory_is_the_most",
    ),
    _m(
        "a stage of another shape predicts",
        "genenv_core/spending/predicting.py",
        "if likeness(s, info.config) == wanted[s] is not None}",
        "if wanted[s] is not None}",
        f"{PREDICTS}_another_shape_tells_nothing",
    ),
    _m(
        "what a run took is its own prediction",
        "genenv_core/spending/predicting.py",
        'if before is None or row["started_at"] < before:',
        "if True:",
        f"{PREDICTS}_afterwards_only_runs_that_began_before_count",
    ),
    _m(
        "a text with several tasks is counted for each",
        "tasks/stage/effort.py",
        "    return tasks.unique([*_TASKS, *_WRITTEN])",
        "    return tasks",
        "unit/tasks/test_effort.py::test_tokens_are_those_of_the_view_cost",
    ),
    _m(
        "a crash in a forced draw makes another draw",
        "genenv_core/storage/records/draws.py",
        "if name in self.open:",
        "if False:",
        "unit/storage/test_draws.py::test_a_draw_is_repeated_until_the_run_has_ended",
    ),
    _m(
        "gc takes the outputs of an earlier draw",
        "genenv_core/storage/upkeep/gc.py",
        "_outputs(runs) | unfinished | earlier)",
        "_outputs(runs) | unfinished)",
        "unit/storage/test_draws.py::test_gc_and_a_copy_keep_the_earlier_outputs",
    ),
    _m(
        "a branch may begin with other models or data than it takes over",
        "genenv_core/config/branching.py",
        '_same(given, STARTED_WITH, before, now, "what a run starts with is taken over", remedy)',
        "pass",
        f"{BRANCHING}_what_decided_the_epochs_that_are_taken_over_may_not_differ",
    ),
    _m(
        "a branch may change the set of tasks that it takes over",
        "genenv_core/config/branching.py",
        "if all(sets):",
        "if False:",
        f"{BRANCHING}_what_decided_the_epochs_that_are_taken_over_may_not_differ",
    ),
    _m(
        "a branch has the name of a run with the same settings",
        "genenv_core/config/branching.py",
        "digest([str(point), identity])",
        "digest([identity])",
        f"{BRANCHING}_a_branch_has_a_name_of_its_own",
    ),
    _m(
        "what is taken over may be an end",
        "genenv_core/config/branching.py",
        "asked.epoch <= self.epoch",
        "asked.epoch < self.epoch",
        f"{BRANCHING}_a_stage_that_is_taken_over_is_neither_an_end_nor_drawn_anew",
    ),
    _m(
        "a branch follows what the other run becomes",
        "genenv_core/storage/records/branches.py",
        "if noted is not None and point in (None, noted.point):",
        "if noted is not None and point is None:",
        f"{BRANCHES}_it_is_noted_once_and_the_other_run_may_go_on",
    ),
    _m(
        "a run may branch off from an epoch that is not finished",
        "genenv_core/storage/records/branches.py",
        "if not needed <= keys.keys():",
        "if not keys:",
        f"{BRANCHES}_an_epoch_that_was_begun_is_not_finished",
    ),
    _m(
        "epochs of several configurations are taken for one",
        "genenv_core/storage/records/branches.py",
        "    _check_history(branch.point, found)\n",
        "",
        f"{BRANCHES}_epochs_that_do_not_follow_from_each_other_are_refused",
    ),
    _m(
        "gc takes what a branch has not noted yet",
        "genenv_core/storage/upkeep/gc.py",
        "enumerate(branch.epochs if branch else ())",
        "enumerate(())",
        f"{BRANCHES}_gc_and_a_copy_keep_what_it_names_without_the_other_run",
    ),
    _m(
        "a copy of a branch has lost what it takes over",
        "genenv_core/storage/upkeep/copying.py",
        "note_branch(self._target, self._run.run_id, branch)",
        "pass",
        f"{BRANCHES}_gc_and_a_copy_keep_what_it_names_without_the_other_run",
    ),
    _m(
        "a branch writes a set anew under the name of the one that it takes over",
        "flows/epoch.py",
        "state.one_set or generate_tasks",
        "generate_tasks",
        "unit/flows/test_arms.py::test_a_branch_plays_the_set_that_it_takes_over",
    ),
    _m(
        "retention keeps one epoch too few",
        "genenv_core/storage/records/retention.py",
        "epoch > last - keep}",
        "epoch > last - keep + 1}",
        "unit/storage/test_gc.py::test_only_superseded_weights_of_a_finished_run_go",
    ),
    _m(
        "retention forgets the best epoch",
        "genenv_core/storage/records/retention.py",
        'best = max((epoch for epoch, facts in published.items() if facts["is_best"]), default=0)',
        "best = 0",
        "unit/storage/test_gc.py::test_only_superseded_weights_of_a_finished_run_go",
    ),
    _m(
        "compaction turns the rows around",
        "genenv_core/storage/upkeep/compaction.py",
        "pl.concat([_rows(store, table, part) for part in parts])",
        "pl.concat([_rows(store, table, part) for part in reversed(parts)])",
        "unit/storage/test_compaction.py::test_rows_and_their_order_stay",
    ),
    _m(
        "compaction copies a damaged part",
        "genenv_core/storage/upkeep/compaction.py",
        "if sha256(data) != part.sha256:",
        "if False:",
        "unit/storage/test_compaction.py::test_damage_is_not_copied",
    ),
)

SANDBOX = "unit/storage/sql/test_sandbox.py::test"
_SANDBOX = (
    _m(
        "the sandbox's settings are not locked",
        "genenv_core/storage/sql/duck.py",
        '    con.execute("SET lock_configuration = true")\n',
        "",
        "unit/storage/sql/test_catalog.py::test_settings_are_locked",
    ),
    _m(
        "the sandbox reads outside of the pools",
        "genenv_core/storage/sql/duck.py",
        '    con.execute("SET enable_external_access = false")\n',
        "",
        "unit/storage/sql/test_catalog.py::test_settings_are_locked",
    ),
    _m(
        "the sandbox may read any file",
        "genenv_core/storage/sql/duck.py",
        "SET allowed_paths = [{', '.join(text(path) for path in files)}]",
        "SET allowed_directories = ['/']",
        "unit/storage/sql/test_catalog.py"
        "::test_the_files_of_the_tables_can_be_opened_and_no_others",
    ),
    _m(
        "a query sees Python's variables",
        "genenv_core/storage/sql/duck.py",
        '    con.execute("SET python_enable_replacements = false")\n',
        "",
        "unit/storage/sql/test_catalog.py::test_settings_are_locked",
    ),
    _m(
        "admission lets a COPY in a WITH in",
        "genenv_core/storage/sql/admission.py",
        "        elif isinstance(kind, str) and kind not in NODES:\n",
        "        elif False:\n",
        "unit/storage/sql/test_catalog.py::test_a_kind_of_node_that_is_not_known_is_refused",
    ),
    _m(
        "admission lets any table function in",
        "genenv_core/storage/sql/admission.py",
        "if called not in TABLE_FUNCTIONS | macros:",
        "if False:",
        "unit/storage/sql/test_catalog.py::test_what_is_no_plain_select_is_one_refusal",
        f"{SANDBOX}_the_look_at_the_tree_alone_refuses_every_attack",
    ),
    _m(
        "the sandbox's memory has no bound",
        "genenv_core/storage/sql/confine.py",
        "(resource.RLIMIT_AS, used + memory_bytes)",
        "(resource.RLIMIT_AS, resource.RLIM_INFINITY)",
        f"{SANDBOX}_the_process_has_limits",
    ),
    _m(
        "a query may compute for ever",
        "genenv_core/storage/sql/confine.py",
        "resource.RLIM_INFINITY if cpu_s is None else cpu_s)",
        "resource.RLIM_INFINITY)",
        f"{SANDBOX}_the_process_has_limits",
    ),
    _m(
        "a query's process writes files",
        "genenv_core/storage/sql/confine.py",
        "(resource.RLIMIT_FSIZE, 0)",
        "(resource.RLIMIT_FSIZE, resource.RLIM_INFINITY)",
        f"{SANDBOX}_the_process_has_limits",
    ),
    _m(
        "a query may take for ever",
        "genenv_core/storage/sql/sandbox.py",
        "            timeout=limits.seconds,\n",
        "            timeout=None,\n",
        f"{SANDBOX}_the_process_sees_no_environment_and_has_its_time",
    ),
    _m(
        "a query's process sees the environment",
        "genenv_core/storage/sql/sandbox.py",
        "            env=environment(),\n",
        "            env={**os.environ, **environment()},\n",
        f"{SANDBOX}_the_process_sees_no_environment_and_has_its_time",
    ),
    _m(
        "a password in tracking.uri is taken",
        "genenv_core/config/sections/tracking.py",
        "        if shown or re.search(",
        "        if re.search(",
        "unit/tasks/test_tracking_away.py::test_passwords_are_refused_and_never_shown",
    ),
    _m(
        "a password is shown",
        "tasks/tracking/client.py",
        'return re.sub("([?&](?:password|token)=)[^&]*", r"\\1***", bare)',
        'return re.sub("([?&](?:password|token)=)[^&]*", r"\\1***", uri)',
        "unit/tasks/test_tracking_away.py::test_passwords_are_refused_and_never_shown",
        "unit/tasks/test_tracking_away.py::test_errors_are_told_without_secrets",
    ),
)

_COMPARE = (
    _m(
        "fewer than six seeds decide",
        f"{ALGORITHM}/paired.py",
        "Decision.FEW if len(gaps) < FEWEST else Decision.TIE",
        "Decision.TIE",
        "unit/compare/test_judging.py::test_few_seeds_decide_nothing_and_a_claim_takes_ten",
    ),
    _m(
        "the exact test has no say",
        f"{ALGORITHM}/paired.py",
        "p_holm <= LEVEL and (low",
        "(low",
        "unit/algorithm/test_paired.py::test_six_seeds_decide_one_comparison_and_not_two",
    ),
    _m(
        "pairs are read at their ends, whatever they spent",
        "genenv_core/compare/results.py",
        "if point.spent[budget] <= limit][-1]",
        "if point.spent is not None][-1]",
        "unit/compare/test_judging.py::test_a_pair_is_read_at_the_lesser_of_what_they_spent",
    ),
    _m(
        "an arm that spends nothing is the limit",
        "genenv_core/compare/judging.py",
        "for amount in spent if amount)",
        "for amount in spent)",
        "unit/compare/test_judging.py::test_an_arm_that_spends_nothing_is_no_limit",
    ),
    _m(
        "a seed counts though an arm has not finished it",
        "genenv_core/compare/judging.py",
        "if all((arm, seed) in played for arm in comparison.arms)",
        "if any((arm, seed) in played for arm in comparison.arms)",
        "unit/compare/test_judging.py::test_a_seed_counts_when_every_arm_has_finished_it",
    ),
    _m(
        "an arm may have a seed of its own",
        "genenv_core/config/comparison.py",
        'if name.partition(".")[0] in OF_ALL:',
        "if False:",
        "unit/config/test_comparison.py::test_what_cannot_be_compared_is_refused",
    ),
    _m(
        "an arm is compared with itself",
        "genenv_core/config/comparison.py",
        "if run_id in named:",
        "if False:",
        "unit/config/test_comparison.py::test_what_cannot_be_compared_is_refused",
    ),
    _m(
        "a mapping that is no section is merged",
        "genenv_core/config/load.py",
        "if rest or (inner and isinstance(more, Mapping)):",
        "if rest or isinstance(more, Mapping):",
        "unit/config/test_config.py::test_changes_merge_sections_and_replace_other_mappings",
    ),
    _m(
        "an API that is away hides that the comparison was cancelled",
        "tasks/placement/api.py",
        "except Exception as error:  # how this flow ends matters more",
        "except ValueError as error:",
        "unit/flows/test_runs_on_pool.py::"
        "test_a_cancelled_comparison_is_cancelled_though_the_api_is_away",
    ),
    _m(
        "a request whose answer was lost starts a second flow run",
        "flows/deploy/runs_on_pool.py",
        "idempotency_key=once,",
        "idempotency_key=str(uuid4()),",
        "unit/flows/test_runs_on_pool.py::test_an_api_that_is_away_for_a_moment_costs_nothing",
    ),
    _m(
        "stages of a run of another name count as played",
        "flows/comparing.py",
        'entry.status == "hit" and noted.keys(entry.epoch).get(entry.stage) == entry.key',
        'entry.status == "hit"',
        "pipeline/test_compare.py::test_stages_of_a_run_of_another_name_are_not_yet_a_played_run",
    ),
    _m(
        "pi_env is told how the agent did, though it should not be",
        "genenv_core/epoch/generation.py",
        "history if settings.condition_on_agent else AgentHistory(),",
        "history,",
        "unit/epoch/test_generation.py::test_pi_env_reads_how_the_agent_did_unless_it_should_not",
    ),
    _m(
        "a new root's database is laid over one that is there",
        "flows/running/blank.py",
        "os.link(copy, home / NAME)",
        "os.replace(copy, home / NAME) or copy.touch()",
        "pipeline/test_local_server.py::test_only_a_new_root_gets_the_empty_database",
    ),
)

_WORK = (
    _m(
        "a cancelled run starts new workers",
        "tasks/policies/trainer.py",
        "        check()\n",
        "",
        "unit/flows/test_start_workers.py::test_a_cancelled_run_starts_no_workers",
    ),
    _m(
        "stages side by side are the first to import transformers",
        "flows/running/work.py",
        "    _import_alone()\n    mark_orphans()",
        "    mark_orphans()",
        "unit/flows/test_work.py::test_work_begins_with_transformers_imported",
    ),
    _m(
        "a comparison opens all of its runs at once",
        "flows/comparing.py",
        "with open_tables(store, [run.run_id]) as connection:",
        "with open_tables(store, [one.run_id for one in runs]) as connection:",
        "unit/flows/test_comparing.py::test_runs_are_read_one_by_one",
    ),
    _m(
        "six seeds are said to be enough for any number of arms",
        "genenv_core/algorithm/paired.py",
        "while 2 / 2**count * comparisons > LEVEL:",
        "while 2 / 2**count > LEVEL:",
        "unit/algorithm/test_paired.py::"
        "test_below_the_fewest_seeds_the_clearest_difference_is_not_decided",
    ),
)

TRAILS = "genenv_core/domains/trails"
FOLLOWED = "unit/domains/test_trails.py::test"
_TRAILS = (
    _m(
        "a similar answer may leave its value out",
        f"{TRAILS}/domain.py",
        "if OPEN in said or not named:",
        "if OPEN in said:",
        f"{FOLLOWED}_each_flaw_of_an_answer_has_its_name_and_its_reward",
    ),
    _m(
        "a similar answer may name two values",
        f"{TRAILS}/domain.py",
        "if len(named) > 1:",
        "if len(named) > 2:",
        f"{FOLLOWED}_each_flaw_of_an_answer_has_its_name_and_its_reward",
    ),
    _m(
        "a request gives its cards away",
        f"{TRAILS}/cards.py",
        'seed_from("trails", "cards", trail.program)',
        'seed_from("trails", "cards", trail.request)',
        f"{FOLLOWED}_the_same_request_has_other_answers_in_other_indexes",
    ),
    _m(
        "a card names one person twice",
        f"{TRAILS}/cards.py",
        "if name not in (person, following)",
        "if name != person",
        f"{FOLLOWED}_cards_name_others_and_lead_past_nobody_twice",
    ),
    _m(
        "pi_env learns to deny a card that there is",
        f"{TRAILS}/domain.py",
        "[name for name in PEOPLE if name not in cards]",
        "PEOPLE",
        f"{FOLLOWED}_pi_env_learns_to_say_what_the_tool_says",
    ),
)

FIDELITY = "genenv_core/play/fidelity.py"
OBSERVING = "unit/epoch/test_observing.py::test"
HEARD = "unit/play/test_fidelity.py::test"
_FIDELITY = (
    _m(
        "a perfect form makes up for false content",
        FIDELITY,
        "return (self.content or 0.0) if self.schema",
        "return 1.0 if self.schema",
        f"{HEARD}_truthful_noisy_and_lying_come_out_in_this_order_and_the_gate_stops_the_lie",
    ),
    _m(
        "what happens beside the answer does not count",
        FIDELITY,
        "if self.schema and self.state else",
        "if self.schema else",
        f"{HEARD}_schema_state_and_content_each_count",
    ),
    _m(
        "an answer of another tool is true",
        FIDELITY,
        "return not true or named <= true",
        "return True",
        f"{HEARD}_schema_state_and_content_each_count",
    ),
    _m(
        "a step that failed in the attempt has happened",
        FIDELITY,
        "happened=not failed",
        "happened=True",
        f"{HEARD}_a_step_that_failed_in_the_attempt_has_not_happened",
    ),
    _m(
        "the true episode keeps a step that the attempt did not take",
        FIDELITY,
        "            self._episode = None  # it took",
        "            pass  # it took",
        f"{HEARD}_a_step_that_failed_in_the_attempt_has_not_happened",
    ),
    _m(
        "pi_env answers for what it was not asked",
        FIDELITY,
        "if _is_asked(domain, draft, before):",
        "if True:",
        f"{HEARD}_what_pi_env_was_not_asked_for_does_not_count",
    ),
    _m(
        "the true episode goes on after its end",
        FIDELITY,
        "self._ended = truth.done",
        "self._ended = False",
        f"{HEARD}_after_the_true_end_nothing_is_true",
    ),
    _m(
        "the truth has a seed of its own",
        "genenv_core/epoch/observing.py",
        "place, sample, EPISODE_TURN",
        "place, sample, 0",
        f"{OBSERVING}_the_truth_has_the_seed_of_the_attempts_own_episode",
    ),
    _m(
        "executed tools write an empty table",
        "genenv_core/epoch/scoring.py",
        'frame("observations", heard)} if heard else {})',
        'frame("observations", heard)})',
        f"{OBSERVING}_where_tools_are_executed_the_output_is_what_it_was",
    ),
    _m(
        "a new pi_env is not blamed for an answer that does not fit",
        "genenv_core/epoch/probe.py",
        "if done.finish_reason is not FinishReason.ERROR:\n            said",
        "if not simulator.read(done).failed:\n            said",
        f"{OBSERVING}_an_answer_that_does_not_fit_is_untrue",
    ),
    _m(
        "an agent that learned from lies is published",
        "genenv_core/epoch/publishing.py",
        "if fidelity is not None:",
        "if False:",
        "unit/epoch/test_publishing.py::"
        "test_an_agent_that_learned_from_lies_and_a_lying_pi_env_are_not_published",
    ),
)

TAUGHT = "unit/config/test_teacher_config.py::test"
TEACHES = "unit/epoch/test_teaching.py::test"
ENDPOINT = "genenv_core/exchange/chat_endpoint"
ENDPOINT_TESTS = "unit/exchange/test_chat_endpoint.py::test"
_TEACHER = (
    _m(
        "a window does not go on with the first task behind the last one",
        "genenv_core/epoch/windows.py",
        "(self.first + offset) % size",
        "min(self.first + offset, size - 1)",
        f"{TAUGHT}_a_window_takes_no_task_twice_and_goes_on_behind_the_last",
    ),
    _m(
        "a window takes a task of a small set twice",
        "genenv_core/epoch/windows.py",
        "range(min(self.count, size))",
        "range(self.count if size else 0)",
        f"{TAUGHT}_a_window_takes_no_task_twice_and_goes_on_behind_the_last",
    ),
    _m(
        "every epoch attempts the first window of a set",
        "genenv_core/epoch/windows.py",
        "Window((epoch - 1) * count, count)",
        "Window(0, count)",
        f"{TAUGHT}_one_set_is_made_for_epoch_1_and_windows_follow_each_other",
    ),
    _m(
        "the whole set is attempted in each epoch",
        "genenv_core/epoch/attempts.py",
        "[new[place] for place in window.places(len(new))]",
        "list(new)",
        "unit/epoch/test_attempts.py::"
        "test_a_window_of_a_set_is_attempted_with_base_tasks_in_its_share",
    ),
    _m(
        "the mean difficulty is that of the whole set",
        "genenv_core/epoch/publishing.py",
        'tasks.join(groups, on="task_id", how="semi", maintain_order="left")',
        'tasks.filter("valid")',
        "unit/epoch/test_publishing.py::test_the_summary_speaks_of_the_tasks_of_the_window",
    ),
    _m(
        "a teacher writes on when its set is full",
        "genenv_core/epoch/teaching.py",
        "done + count - intake.valid",
        "done + count",
        f"{TEACHES}_it_writes_until_the_set_is_full",
    ),
    _m(
        "a text that was cut becomes a teacher's task",
        "genenv_core/epoch/teaching.py",
        "if answer.finish_reason is FinishReason.LENGTH:",
        "if False:",
        f"{TEACHES}_it_stops_at_the_bound_and_failures_are_rows",
    ),
    _m(
        "a teacher's text with two tasks is paid for twice",
        "schemas/views/cost.sql",
        "    SELECT DISTINCT\n        run_id,\n        epoch,\n        source,",
        "    SELECT\n        run_id,\n        epoch,\n        source,",
        "unit/schemas/test_views.py::"
        "test_a_text_of_a_teacher_that_holds_two_tasks_was_paid_for_once",
    ),
    _m(
        "an error of the endpoint shows the key",
        "genenv_core/exchange/chat_client.py",
        'text.replace(self._key, "***") if self._key else text',
        "text",
        f"{ENDPOINT_TESTS}_no_message_of_the_endpoint_shows_the_key",
    ),
    _m(
        "an export for training ends with what the tool said",
        "genenv_core/exchange/turns.py",
        "messages[: own[-1] + 1]",
        "messages",
        "unit/exchange/test_export_readers.py::test_jsonl_keeps_the_rules_of_fine_tuning_files",
    ),
    _m(
        "a turn that was cut off is learned from",
        "genenv_core/exchange/turns.py",
        "finish_reason == FinishReason.LENGTH.value",
        "False",
        "unit/exchange/test_export_readers.py::test_sft_trainer_learns_the_agents_words_alone",
    ),
    _m(
        "a file of views replaces somebody's own database",
        "genenv_core/storage/sql/attach.py",
        "if found != (_MARK,):",
        "if False:",
        "unit/storage/sql/test_attach.py::test_it_replaces_only_what_it_wrote",
    ),
    _m(
        "a key of the dictionary leaves the run out",
        "schemas/relations.py",
        'key = ("run_id", *(column',
        "key = (*(), *(column",
        "unit/schemas/test_keys.py::test_joined_by_its_key_a_table_adds_no_row",
    ),
    _m(
        "a refused key is tried for every request",
        "genenv_core/exchange/chat_client.py",
        "if status in (401, 403):",
        "if status in ():",
        f"{ENDPOINT_TESTS}_a_wrong_key_stops_the_stage_and_is_not_shown",
    ),
    _m(
        "an endpoint that answers nothing is asked for ever",
        "genenv_core/exchange/chat_client.py",
        "if self._lost >= GIVE_UP:",
        "if False:",
        f"{ENDPOINT_TESTS}_an_endpoint_that_refuses_everything_stops_the_stage",
    ),
    _m(
        "what an endpoint answered before a crash is asked again",
        f"{ENDPOINT}.py",
        "self._answers = _read(kept)",
        "self._answers = dict[str, Answer]()",
        f"{ENDPOINT_TESTS}_what_was_answered_is_not_asked_again",
    ),
    _m(
        "a pasted key is repeated in the refusal",
        "genenv_core/config/sections/endpoint.py",
        '"key_env is the name of an',
        'f"key_env {name} is the name of an',
        f"{TAUGHT}_a_key_is_refused_and_not_repeated",
    ),
)

PLAYER = "genenv_core/exchange/chat_player.py"
PLAYER_TESTS = "unit/exchange/test_chat_player.py::test"
MEASURING = "genenv_core/measuring"
MEASURING_TESTS = "unit/measuring/test_items.py::test"
_MEASURING = (
    _m(
        "a refused prompt in the middle ends the stage",
        "genenv_core/exchange/chat_client.py",
        "if isinstance(error, Lost) or not self._answered:",
        "if True:",
        f"{PLAYER_TESTS}_refused_requests_end_a_stage_only_before_the_first_answer",
    ),
    _m(
        "a task without an answer counts as attempted",
        PLAYER,
        "        if lost:\n",
        "        if False:\n",
        f"{PLAYER_TESTS}_a_task_without_an_answer_is_left_out_and_the_others_are_kept",
    ),
    _m(
        "an endpoint's attempt goes on behind its bounds",
        PLAYER,
        "if attempt.turns >= self._bounds.max_turns or used >= self._bounds.max_length:",
        "if attempt.turns >= self._bounds.max_turns:",
        f"{PLAYER_TESTS}_what_ends_an_attempt",
    ),
    _m(
        "requests go on when nobody listens",
        PLAYER,
        "            stopped.set()",
        "            pass",
        f"{PLAYER_TESTS}_who_stops_to_listen_ends_the_requests",
    ),
    _m(
        "a kept attempt is made again",
        f"{MEASURING}/journal.py",
        "if task[0] not in self._done]",
        "]",
        f"{PLAYER_TESTS}_a_task_without_an_answer_is_left_out_and_the_others_are_kept",
    ),
    _m(
        "an attempt that broke off is kept",
        f"{MEASURING}/journal.py",
        "if not any(one.error for one in rollouts):",
        "if True:",
        f"{PLAYER_TESTS}_refused_requests_end_a_stage_only_before_the_first_answer",
    ),
    _m(
        "a broken environment is the model's fault",
        f"{MEASURING}/items.py",
        "valid = None if broken else False",
        "valid = False",
        f"{MEASURING_TESTS}_what_broke_off_is_wrong_and_a_broken_environment_is_not_judged",
    ),
    _m(
        "an attempt that broke off is judged by what it said",
        f"{MEASURING}/items.py",
        'if trace["error"]:',
        "if False:",
        f"{MEASURING_TESTS}_what_broke_off_is_wrong_and_a_broken_environment_is_not_judged",
    ),
    _m(
        "a scorer that fails ends the stage",
        f"{MEASURING}/items.py",
        "    except Exception as error:  # a fault of a scorer",
        "    except KeyError as error:  # a fault of a scorer",
        f"{MEASURING_TESTS}_a_scorer_that_fails_costs_its_own_item",
    ),
    _m(
        "an average is taken over fewer than five",
        f"{MEASURING}/table.py",
        "if len(known) == len(COLUMNS) else",
        "if known else",
        f"{MEASURING_TESTS}_the_table_has_an_average_only_over_all_five",
    ),
    _m(
        "half a character of a tool ends the stage",
        "genenv_core/play/steps.py",
        "return replace(observation, messages=tuple(map(_whole, observation.messages)))",
        "return observation",
        f"{PLAYER_TESTS}_half_a_character_of_an_endpoint_can_be_kept",
    ),
)

PREDICTED = "unit/benchmarks/test_predictions.py::test"
SUMMED = "unit/benchmarks/test_summary.py::test"
SHORT = "genenv_core/benchmarks/bamboogle/scoring.py"
SHORT_TESTS = "unit/benchmarks/test_bamboogle.py::test"
_BENCHMARKS = (
    _m(
        "an item that was predicted four times counts four times",
        "genenv_core/benchmarks/summary.py",
        "np.array([np.mean(ratios, axis=0) for ratios in items.values()])",
        "np.array([ratio for ratios in items.values() for ratio in ratios])",
        f"{SUMMED}_an_item_counts_once_with_the_mean_of_its_predictions",
    ),
    _m(
        "metrics over other items share the draws",
        "genenv_core/benchmarks/summary.py",
        "np.random.default_rng(_seed(items))",
        "np.random.default_rng(0)",
        f"{SUMMED}_metrics_over_the_same_items_share_their_draws",
    ),
    _m(
        "a line that is no JSON stops the others",
        "genenv_core/benchmarks/predictions.py",
        'except ValueError as error:\n        return _unread(number, f"is no JSON',
        'except KeyError as error:\n        return _unread(number, f"is no JSON',
        f"{PREDICTED}_what_cannot_be_scored_is_null_with_its_reason",
    ),
    _m(
        "a line with a deep prediction loses its id",
        "genenv_core/benchmarks/lines.py",
        "<= DEEPEST:",
        "<= 10**9:",
        f"{PREDICTED}_a_line_that_python_does_not_read_has_its_id_key_and_verdict",
    ),
    _m(
        "a line with a long integer loses its id",
        "genenv_core/benchmarks/lines.py",
        "json.loads(line, parse_int=_integer)",
        "json.loads(line)",
        f"{PREDICTED}_a_line_that_python_does_not_read_has_its_id_key_and_verdict",
    ),
    _m(
        "brackets in texts count as levels",
        "genenv_core/benchmarks/lines.py",
        """r'"[^"\\\\]*+(?:\\\\.[^"\\\\]*+)*+"|""",
        "r'",
        f"{PREDICTED}_what_is_not_too_deep_is_read_as_it_is",
    ),
    _m(
        "items of one score are drawn",
        "genenv_core/benchmarks/summary.py",
        "if (rows == rows[0]).all():",
        "if False:",
        f"{PREDICTED}_a_key_for_each_line_costs_no_draws_and_is_not_listed_whole",
    ),
    _m(
        "a composite counts an item once for each of its metrics",
        "genenv_core/benchmarks/summary.py",
        "len(items), value, draws",
        "sum(len(given[name]) for name in shares), value, draws",
        f"{SUMMED}_a_composite_is_a_weighted_mean_and_needs_all_of_its_metrics",
    ),
    _m(
        "a headline without an item is left out",
        "genenv_core/measuring/items.py",
        "if headline not in [one.name for one in metrics]:",
        "if False:",
        "unit/measuring/test_items.py::test_a_headline_without_an_item_has_a_row_and_stands_in_the_table",
    ),
    _m(
        "a date's parser fails the scorer",
        "genenv_core/benchmarks/bamboogle/scoring.py",
        "except Exception:",
        "except (ValueError, OverflowError, TypeError):",
        "unit/benchmarks/test_bamboogle.py::test_no_prediction_raises",
    ),
    _m(
        "API-Bank's mode strict refuses the official prefix",
        "genenv_core/benchmarks/api_bank/scoring.py",
        ".removeprefix(PREFIX)",
        "",
        "unit/benchmarks/test_api_bank.py::test_strict_wants_the_call_alone_and_the_recorded_text",
    ),
    _m(
        "keys share one result",
        "genenv_core/benchmarks/predictions.py",
        "name = repr(judged.key)",
        'name = ""',
        f"{PREDICTED}_keys_have_results_of_their_own",
    ),
    _m(
        "a part of a word contains an answer",
        SHORT,
        'f" {wanted} " in f" {normalized(answer)} "',
        "wanted in normalized(answer)",
        f"{SHORT_TESTS}_measures_by_hand",
    ),
    _m(
        "a part of a date is the date",
        SHORT,
        'for day in ("1 Jan 1901", "2 Feb 02")',
        'for day in ("1 Jan 1901",)',
        f"{SHORT_TESTS}_a_spreadsheets_date_may_be_said_in_words_where_that_is_asked_for",
    ),
)

BFCL = "genenv_core/benchmarks/bfcl"
BFCL_TESTS = "unit/benchmarks/test_bfcl.py::test"
VALUES = f"{BFCL_TESTS}_values_are_judged_as_the_official_checker_does"
CALLED = f"{BFCL_TESTS}_calls_are_judged_as_the_official_checker_does"
_BFCL = (
    _m(
        "a boolean passes for an integer in a call",
        f"{BFCL}/kinds.py",
        "if type(value) is expected.type:",
        "if isinstance(value, expected.type):",
        VALUES,
    ),
    _m(
        "an integer does not pass for a float in a call",
        f"{BFCL}/kinds.py",
        'if expected.name == "float" and type(value) is int:',
        "if False:",
        VALUES,
    ),
    _m(
        "a tuple does not pass for a list where a tuple is described",
        f"{BFCL}/kinds.py",
        'if expected.name == "tuple" and type(value) is tuple:',
        "if False:",
        VALUES,
    ),
    _m(
        "hyphens count when texts of a call are compared",
        f"{BFCL}/values.py",
        'dict.fromkeys(" ,./-_*^")',
        'dict.fromkeys(" ,./_*^")',
        VALUES,
    ),
    _m(
        "a key of a dict that gold has may be left out",
        f"{BFCL}/values.py",
        'if key not in value and "" not in _listed(values):',
        "if False:",
        VALUES,
    ),
    _m(
        "a parameter that gold needs may be left out",
        f"{BFCL}/calls.py",
        'if parameter not in given and "" not in values:',
        "if False:",
        CALLED,
    ),
    _m(
        "a parameter that gold has not is let through",
        f"{BFCL}/calls.py",
        "if parameter not in described or parameter not in accepted:",
        "if parameter not in described and parameter not in accepted:",
        CALLED,
    ),
    _m(
        "one call is taken for two of gold's",
        f"{BFCL}/calls.py",
        "                del left[index]\n",
        "",
        CALLED,
    ),
    _m(
        "an object that calls nothing is a call",
        f"{BFCL}/calls.py",
        "is_object(call) and len(call) == 1 and",
        "is_object(call) and",
        f"{BFCL_TESTS}_no_prediction_raises[official]",
        CALLED,
    ),
    _m(
        "live categories weigh the same, whatever their size",
        f"{BFCL}/categories.py",
        "live = {name: sizes.get(name, size) / total for name, size in _LIVE.items()}",
        "live = _even(tuple(_LIVE))",
        f"{BFCL_TESTS}_summaries_are_the_leaderboards",
    ),
    _m(
        "quotes stay in the elements of a Java list",
        f"{BFCL}/source_java.py",
        'return text[1:-1] if element in ("char", "String") else _element(text, element)',
        "return _element(text, element)",
        VALUES,
    ),
    _m(
        "an array of JavaScript arrays is read as a flat one",
        f"{BFCL}/source_javascript.py",
        "    if end:\n        return [_row",
        "    if False:\n        return [_row",
        VALUES,
    ),
)

API_BANK = "genenv_core/benchmarks/api_bank"
API_BANK_TESTS = "unit/benchmarks/test_api_bank.py::test"
API_BANK_CASES = f"{API_BANK_TESTS}_calls_are_judged_as_the_official_harness_does"
_API_BANK = (
    _m(
        "a call that does not reach to the last bracket of its line is found",
        f"{API_BANK}/finding.py",
        'line.rfind(")]")',
        'line.find(")]")',
        API_BANK_CASES,
    ),
    _m(
        "one half of the words is enough for free text of a call",
        f"{API_BANK}/values.py",
        "2 * len(ours & theirs) > len(ours | theirs)",
        "2 * len(ours & theirs) >= len(ours | theirs)",
        API_BANK_CASES,
    ),
    _m(
        "a call may give arguments that the recorded one has not",
        f"{API_BANK}/scoring.py",
        "extra = [name for name in said if name not in gold.arguments]",
        "extra = list[str]()",
        API_BANK_CASES,
    ),
    _m(
        "a call that fails on the databases is right",
        f"{API_BANK}/scoring.py",
        "if wrong or need is None or wanted is None:",
        "if True:",
        API_BANK_CASES,
    ),
    _m(
        "a query that finds another row is right",
        f"{API_BANK}/state.py",
        "(any_row or found == wanted)",
        "True",
        API_BANK_CASES,
    ),
    _m(
        "a word that most documents have counts against them",
        f"{API_BANK}/searching.py",
        "one if one >= 0 else floor",
        "one",
        f"{API_BANK_TESTS}_a_search_ranks_as_the_package_rank_bm25",
    ),
    _m(
        "what the tools do not compare counts where the recorded call fails",
        f"{API_BANK}/scoring.py",
        "unvouched = rule is anything and wanted is None",
        "unvouched = False",
        f"{API_BANK_TESTS}_nothing_vouches_for_an_argument_where_the_recorded_call_fails",
    ),
    _m(
        "lists in quotes are cut at the second quote",
        f"{API_BANK}/scoring.py",
        "full_arguments(inside) if gold.has_list else plain_arguments(inside)",
        "plain_arguments(inside)",
        f"{API_BANK_TESTS}_lists_are_read_quoted_or_not",
    ),
    _m(
        "a number of a call may have a sign",
        f"{API_BANK}/values.py",
        'if kind == "int" and text.isdigit():',
        'if kind == "int":',
        API_BANK_CASES,
    ),
    _m(
        "a sample after a call has no number when it is the user's",
        f"{API_BANK}/loading.py",
        "            number += 1",
        '            number += rows[at]["role"] != "User"',
        f"{API_BANK_TESTS}_items_are_numbered_as_the_official_loop_counts_samples",
    ),
    _m(
        "words of a response count as often as they occur",
        f"{API_BANK}/rouge.py",
        "len({word for words in ours for word in words})",
        "len([word for words in ours for word in words])",
        f"{API_BANK_TESTS}_rouge_l_is_that_of_the_package_rouge",
    ),
)

PLAYED = "genenv_core/domains/benchmarks"
BAMBOOGLE_TASKS = "unit/domains/test_bamboogle_domain.py::test"
API_BANK_TASKS = "unit/domains/test_api_bank_domain.py::test"
BAMBOOGLE_PLAYED = "unit/benchmarks/test_bamboogle_playing.py::test"
API_BANK_PLAYED = "unit/benchmarks/test_api_bank_playing.py::test"
_CHANGED = "_a_changed_generation_is_refused_with_the_reason"
_PLAYED = (
    _m(
        "the first turn of an attempt at a question is the answer",
        "genenv_core/benchmarks/bamboogle/playing.py",
        'return said[-1].text if said else ""',
        'return said[0].text if said else ""',
        f"{BAMBOOGLE_PLAYED}_the_prediction_is_the_last_turns_text",
    ),
    _m(
        "a search finds common words as well as rare ones",
        "genenv_core/benchmarks/bamboogle/searching.py",
        "math.log1p(rarity) * gain",
        "gain",
        f"{BAMBOOGLE_PLAYED}_a_rare_word_counts_more_than_a_common_one_three_times",
    ),
    _m(
        "a question may say its answer",
        f"{PLAYED}/bamboogle/writing.py",
        "if contains(question, answer):",
        "if False:",
        f"{BAMBOOGLE_TASKS}{_CHANGED}",
    ),
    _m(
        "one passage may be enough for a question of two hops",
        f"{PLAYED}/bamboogle/writing.py",
        "if passage.title in holding and any(_about(passage, title) for title in asked):",
        "if False:",
        f"{BAMBOOGLE_TASKS}{_CHANGED}",
    ),
    _m(
        "questions about a fictional world are held out by luck",
        f"{PLAYED}/own_tasks.py",
        "if in_heldout(draft.fingerprint) == heldout and draft.fingerprint not in drafts:",
        "if draft.fingerprint not in drafts:",
        f"{BAMBOOGLE_TASKS}_no_heldout_question_is_a_base_question_or_an_example",
    ),
    _m(
        "a result does not name the corpus that was searched",
        f"{PLAYED}/bamboogle/domain.py",
        'self.version += f"-{self._corpus_digest[:16]}"',
        "pass",
        f"{BAMBOOGLE_TASKS}_the_search_engine_is_named",
    ),
    _m(
        "the last call of a turn counts",
        f"{API_BANK}/playing.py",
        "return spelled(first.calls[0])",
        "return spelled(first.calls[-1])",
        f"{API_BANK_PLAYED}_the_first_call_of_the_first_turn_counts",
    ),
    _m(
        "a model sees the recorded call that it should make",
        f"{API_BANK}/loading.py",
        "before = turns[:at]",
        "before = turns[: at + 1]",
        f"{API_BANK_PLAYED}_nothing_after_an_item_is_shown",
    ),
    _m(
        "tools that have to be searched for are there from the start",
        f"{API_BANK}/loading.py",
        "named = found_tools(before) if searches else called_tools(turns)",
        "named = called_tools(turns)",
        f"{API_BANK_PLAYED}_the_tools_are_those_that_are_known",
    ),
    _m(
        "a request need not say what its call needs",
        f"{PLAYED}/api_bank/writing.py",
        "if unsaid := _unsaid(call, docs, known):",
        'if unsaid := "":',
        f"{API_BANK_TASKS}{_CHANGED}",
    ),
    _m(
        "an argument may have any type",
        f"{PLAYED}/api_bank/writing.py",
        "if error is not None:",
        "if False:",
        f"{API_BANK_TASKS}{_CHANGED}",
    ),
    _m(
        "an earlier call may be one of the benchmark's",
        f"{PLAYED}/api_bank/domain.py",
        "for call in self.calls_of(draft):",
        "for call in self.calls_of(draft)[-1:]:",
        f"{API_BANK_TASKS}_a_generation_that_repeats_an_item_is_contaminated",
    ),
    _m(
        "a wrong call is answered as the right one",
        f"{PLAYED}/api_bank/attempt.py",
        "if len(made) >= len(request.calls) or not request.are_right(made):",
        "if len(made) >= len(request.calls):",
        f"{API_BANK_TASKS}_calls_are_judged_in_order",
    ),
    _m(
        "a drawn request may be one of the benchmark's",
        f"{PLAYED}/api_bank/requests.py",
        "if isinstance(draft, TaskDraft) and self._fits(draft):",
        "if isinstance(draft, TaskDraft):",
        f"{API_BANK_TASKS}_every_drawn_request_is_sound",
    ),
)

TRAVEL = "genenv_core/benchmarks/travelplanner"
TRAVEL_TESTS = "unit/benchmarks/test_travelplanner.py::test"
ALONE = f"{TRAVEL_TESTS}_a_broken_constraint_fails_alone"
CLOSED = f"{TRAVEL_TESTS}_what_the_official_evaluator_overlooks_fails_in_mode_strict"
_TRAVELPLANNER = (
    _m(
        "a plan's last attraction is never looked at",
        f"{TRAVEL}/plan.py",
        "if not strict:\n            return parts[:-1]",
        "if parts:\n            return parts[:-1]",
        CLOSED,
    ),
    _m(
        "the official mode sees the last attraction",
        f"{TRAVEL}/plan.py",
        "return parts[:-1]",
        "return [part for part in parts if part]",
        CLOSED,
    ),
    _m(
        "any flight of the number flies where the plan goes",
        f"{TRAVEL}/commonsense.py",
        "(flight.origin, flight.destination) == ends",
        "bool(ends)",
        ALONE,
    ),
    _m(
        "one night is always enough",
        f"{TRAVEL}/commonsense.py",
        "nights < room.nights",
        "nights < 1",
        ALONE,
    ),
    _m(
        "a trip may end anywhere",
        f"{TRAVEL}/commonsense.py",
        "if cities[0] != cities[-1]:",
        "if not cities:",
        f"{TRAVEL_TESTS}_a_route_is_a_round_trip_through_known_cities",
    ),
    _m(
        "a plan that leaves out the last day is complete",
        f"{TRAVEL}/commonsense.py",
        "if len(given) != query.days:",
        "if not given:",
        f"{TRAVEL_TESTS}_too_few_days_or_values_are_incomplete",
    ),
    _m(
        "one room holds everybody",
        f"{TRAVEL}/hard.py",
        "room.price * math.ceil(query.people / room.occupancy)",
        "room.price",
        f"{TRAVEL_TESTS}_the_budget_is_for_all_people_nights_and_rides",
    ),
    _m(
        "hard constraints are judged on any plan",
        f"{TRAVEL}/judging.py",
        "judged = all(outcomes[name].passed for name in BEFORE_HARD)",
        "judged = True",
        f"{TRAVEL_TESTS}_hard_constraints_wait_for_a_complete_plan_within_the_database",
    ),
    _m(
        "constraints that were not judged are not counted",
        f"{TRAVEL}/suite.py",
        "(float(kept), float(query.hard_constraints))",
        "(float(kept), float(sum(passed[name] is not None for name in HARD)))",
        f"{TRAVEL_TESTS}_rates_have_the_official_denominators",
    ),
    _m(
        "places that lack a value are in the database",
        f"{TRAVEL}/database.py",
        "if whole and any(value is None or value in MISSING for value in row.values()):",
        "if None in row.values():",
        f"{TRAVEL_TESTS}_rows_that_lack_a_value_are_not_in_the_database",
    ),
    _m(
        "a plan that cannot be read stops the run",
        f"{TRAVEL}/judging.py",
        "except Unreadable as error:\n                found",
        "except KeyError as error:\n                found",
        f"{TRAVEL_TESTS}_no_prediction_stops_anything_and_none_of_these_passes",
    ),
)

TURNS = f"{BFCL}/turns"
TURNS_TESTS = "unit/benchmarks/test_bfcl_turns.py::test"
_BFCL_TURNS = (
    _m(
        "a call may name a private method",
        f"{TURNS}/backends.py",
        'if not name.startswith("_"))',
        "if name)",
        f"{TURNS_TESTS}_nothing_but_a_call_with_literals_runs[_secret()]",
    ),
    _m(
        "both sides of an item play with the same scenario",
        f"{TURNS}/backends.py",
        "scenario = deepcopy(config.get(class_name, {}))",
        "scenario = config.get(class_name, {})",
        f"{TURNS_TESTS}_both_sides_have_instances_of_their_own_and_each_item_fresh_ones",
    ),
    _m(
        "what calls leave in the classes stays for the next item",
        f"{TURNS}/backends.py",
        "data.update(deepcopy(whole))",
        "data.update(whole)",
        f"{TURNS_TESTS}_both_sides_have_instances_of_their_own_and_each_item_fresh_ones",
    ),
    _m(
        "what earlier turns gave counts no more",
        f"{TURNS}/checks.py",
        "        given.update(",
        "        given = Counter(",
        f"{TURNS_TESTS}_gold_s_results_must_be_among_those_so_far_as_often",
    ),
    _m(
        "gold's result of two calls is found in one",
        f"{TURNS}/checks.py",
        "Counter(map(_mark, wanted)) - given",
        "Counter({*map(_mark, wanted)}) - given",
        f"{TURNS_TESTS}_gold_s_results_must_be_among_those_so_far_as_often",
    ),
    _m(
        "a turn in which gold calls nothing is compared",
        f"{TURNS}/checks.py",
        "        if not wanted:\n            continue\n",
        "",
        f"{TURNS_TESTS}_a_turn_without_gold_s_calls_is_not_compared",
    ),
)

ALFWORLD = "genenv_core/benchmarks/alfworld"
ALFWORLD_TESTS = "unit/benchmarks/test_alfworld.py::test"
_ALFWORLD = (
    _m(
        "a game that is over is won",
        f"{ALFWORLD}/replay.py",
        "won = replay.state.won",
        "won = replay.state.done",
        f"{ALFWORLD_TESTS}_done_is_no_success",
    ),
    _m(
        "a game goes on after 50 commands",
        f"{ALFWORLD}/replay.py",
        " or self._steps >= STEPS",
        "",
        f"{ALFWORLD_TESTS}_fifty_commands_are_played",
    ),
    _m(
        "mode strict repairs commands",
        f"{ALFWORLD}/replay.py",
        "given = command if self._strict else repaired",
        "given = repaired",
        f"{ALFWORLD_TESTS}_repairs_are_recorded_and_strict_makes_none",
    ),
    _m(
        "a command that no repair makes known is rewritten",
        f"{ALFWORLD}/commands.py",
        "return command.strip()",
        "return normalized(command)",
        f"{ALFWORLD_TESTS}_a_command_becomes_the_one_that_the_game_knows",
    ),
    _m(
        "games with sliced objects are items",
        f"{ALFWORLD}/loading.py",
        ' or "Sliced" in below',
        "",
        f"{ALFWORLD_TESTS}_items_are_the_games_that_the_official_loader_takes",
    ),
    _m(
        "a game process lives for ever",
        f"{ALFWORLD}/games.py",
        "self._process.games >= self._limits.games",
        "self._process.games < 0",
        f"{ALFWORLD_TESTS}_the_process_is_replaced_after_some_games",
    ),
    _m(
        "a game process that failed plays on",
        f"{ALFWORLD}/games.py",
        "        self.close()\n        return GameError",
        "        return GameError",
        f"{ALFWORLD_TESTS}_a_process_that_fails_costs_one_verdict_and_is_replaced",
    ),
    _m(
        "a fork plays the game of its parent",
        f"{ALFWORLD}/games.py",
        "self._process is None or self._process.owner != os.getpid()",
        "self._process is None",
        f"{ALFWORLD_TESTS}_the_process_ends_with_who_started_it_and_not_with_a_fork",
    ),
)

REPEATED = "unit/domains/test_contamination.py::test_"
SAID = "unit/domains/test_tool_calls.py::test_"
NATIVE = "unit/play/test_native_calls.py::test_"
_SHARED_BY_BENCHMARKS = (
    _m(
        "twelve words in a row are a repetition of an item",
        f"{PLAYED}/contamination.py",
        "WORDS = 13",
        "WORDS = 12",
        f"{REPEATED}thirteen_words_in_a_row_are_a_repetition_and_twelve_are_not",
    ),
    _m(
        "an item with fewer than 13 words may be repeated",
        f"{PLAYED}/contamination.py",
        "if len(words) >= LEAST:",
        "if len(words) >= WORDS:",
        f"{REPEATED}of_a_shorter_item_all_words_are_a_repetition",
    ),
    _m(
        "a part of a short item is a repetition of it",
        f"{PLAYED}/contamination.py",
        "length = min(WORDS, len(words))",
        "length = min(LEAST, len(words))",
        f"{REPEATED}of_a_shorter_item_all_words_are_a_repetition",
    ),
    _m(
        "words are compared with their case",
        f"{PLAYED}/contamination.py",
        "_WORD.findall(text.casefold())",
        "_WORD.findall(text)",
        f"{REPEATED}case_and_punctuation_tell_no_words_apart",
    ),
    _m(
        "the last run of words of a task is not compared",
        f"{PLAYED}/contamination.py",
        "range(len(words) - length + 1)",
        "range(len(words) - length)",
        f"{REPEATED}thirteen_words_in_a_row_are_a_repetition_and_twelve_are_not",
    ),
    _m(
        "an item's calls in another order are no repetition",
        f"{PLAYED}/contamination.py",
        "tuple(sorted(json.dumps(_plain([call.name, call.arguments])) for call in calls))",
        "tuple(json.dumps(_plain([call.name, call.arguments])) for call in calls)",
        f"{REPEATED}equal_calls_are_a_repetition_in_any_order_and_spelling",
    ),
    _m(
        "calls of an item's tools are its calls, whatever their arguments",
        f"{PLAYED}/contamination.py",
        "json.dumps(_plain([call.name, call.arguments]))",
        "json.dumps(_plain([call.name]))",
        f"{REPEATED}other_calls_are_no_repetition",
    ),
    _m(
        "2.0 is another argument than 2",
        f"{PLAYED}/contamination.py",
        "        return int(value)\n",
        "        return value\n",
        f"{REPEATED}equal_calls_are_a_repetition_in_any_order_and_spelling",
    ),
    _m(
        "calls without arguments are a repetition",
        f"{PLAYED}/contamination.py",
        "if calls and any(call.arguments for call in calls):",
        "if calls:",
        f"{REPEATED}calls_without_arguments_tell_nothing",
    ),
    _m(
        "a generation may repeat an item of a benchmark",
        f"{PLAYED}/domain.py",
        "return Rejected(Rejection.CONTAMINATED, why) if why else draft",
        "return draft",
        f"{REPEATED}a_generation_that_repeats_an_item_is_rejected",
    ),
    _m(
        "a verdict that could not be told is a success",
        f"{PLAYED}/domain.py",
        "success = found.valid is True",
        "success = found.valid is not False",
        f"{REPEATED}only_a_verdict_that_says_valid_is_a_success",
    ),
    _m(
        "an attempt is a success by its score",
        f"{PLAYED}/domain.py",
        "success = found.valid is True",
        "success = found.score > 0",
        f"{REPEATED}only_a_verdict_that_says_valid_is_a_success",
    ),
    _m(
        "a call that cannot be read is not told",
        "genenv_core/domains/tool_calls.py",
        "found.append(body if one.arguments is None else",
        "found.append(Call('', {}) if one.arguments is None else",
        f"{SAID}a_turn_has_text_calls_and_what_was_meant_as_one",
    ),
    _m(
        "a call that is never closed is text",
        "genenv_core/domains/tool_calls.py",
        "    if unclosed >= 0:\n",
        "    if unclosed < -1:\n",
        f"{SAID}a_turn_has_text_calls_and_what_was_meant_as_one",
    ),
    _m(
        "calls that a model thinks of are made",
        "genenv_core/domains/tool_calls.py",
        "in_order(text[after_thought(text) :])",
        "in_order(text)",
        f"{SAID}a_turn_has_text_calls_and_what_was_meant_as_one",
    ),
    _m(
        "a call's arguments may be a list",
        "genenv_core/domains/tool_calls.py",
        "if not isinstance(name, str) or not isinstance(arguments, dict):",
        "if not isinstance(name, str) or arguments is None:",
        f"{SAID}what_is_no_call_is_malformed",
    ),
    _m(
        "a native text that cannot be read is a turn without calls",
        "genenv_core/play/native_calls.py",
        'return f"{OPEN}{text}{CLOSE}"',
        "return text",
        f"{NATIVE}a_text_that_cannot_be_read_is_a_malformed_call",
    ),
)

READING = "unit/downloads/test_reading.py::test"
FETCHED = "unit/downloads/test_fetching.py::test"

_DOWNLOADS = (
    _m(
        "a path of an archive stays in its folder",
        "genenv_core/downloads/archives.py",
        'if any(part in ("", ".", "..") for part in parts) or set(name) & set("\\\\:\\0"):',
        'if set(name) & set("\\\\:\\0"):',
        f"{READING}_a_path_that_leaves_the_folder_refuses_the_archive",
    ),
    _m(
        "an archive has no links",
        "genenv_core/downloads/archives.py",
        "if stat.S_ISLNK(member.external_attr >> 16):",
        "if False:",
        f"{READING}_a_link_refuses_the_archive",
    ),
    _m(
        "an archive unpacks to so much at most",
        "genenv_core/downloads/archives.py",
        "if left < 0:",
        "if False:",
        f"{READING}_a_zip_bomb_is_stopped_at_the_limit",
    ),
    _m(
        "an answer has so many bytes at most",
        "genenv_core/downloads/origin.py",
        "if self.got > self.most:",
        "if False:",
        f"{READING}_a_folder_and_a_server_are_the_same_mirror",
    ),
    _m(
        "a listing is that which its parent names",
        "genenv_core/downloads/listings.py",
        "if name != self._commit and (found := git_id_of_entries(entries)) != name:",
        'if (found := git_id_of_entries(entries)) == "":',
        f"{READING}_another_listing_is_refused",
    ),
    _m(
        "a wrong digest is refused",
        "genenv_core/downloads/fetching.py",
        '    if found != expected:\n        raise DownloadError(f"{name}: expected {kind}',
        '    if not found:\n        raise DownloadError(f"{name}: expected {kind}',
        f"{FETCHED}_another_content_is_refused_with_both_digests",
    ),
    _m(
        "an archive without a note is fetched again",
        "genenv_core/downloads/fetching.py",
        "wanted |= {State.UNKNOWN} if isinstance(part, Archive) else set()",
        "",
        f"{FETCHED}_an_archive_cut_off_while_its_files_move_in_is_fetched_again",
    ),
    _m(
        "a download is no longer than what it lacks",
        "genenv_core/downloads/fetching.py",
        "lacking = [one.to for one in found if one.state in wanted]",
        "lacking = [one.to for one in found]",
        f"{FETCHED}_a_second_call_asks_for_nothing_and_damage_for_that_alone",
    ),
    _m(
        "other tool docs are not used",
        "genenv_core/downloads/fetching.py",
        "if (found := sha256_of(path)) != part.sha256:",
        "if not (found := sha256_of(path)):",
        f"{FETCHED}_other_tool_docs_are_kept_aside_and_not_used",
    ),
)

KIT, KIT_TESTS = "genenv_core/domains/kit", "unit/domains/kit"
_KIT = (
    _m(
        "a bool is an integer to a tool",
        f"{KIT}/signatures.py",
        'strict=True, extra="forbid")',
        'strict=False, extra="forbid")',
        f"{KIT_TESTS}/test_tools.py::test_wrong_arguments_are_named",
    ),
    _m(
        "a tool ignores arguments that it does not have",
        f"{KIT}/signatures.py",
        'strict=True, extra="forbid")',
        'strict=True, extra="ignore")',
        f"{KIT_TESTS}/test_tools.py::test_wrong_arguments_are_named",
    ),
    _m(
        "NaN is a number to a tool",
        f"{KIT}/signatures.py",
        "allow_nan=False",
        "allow_nan=True",
        f"{KIT_TESTS}/test_tools.py::test_a_number_is_finite_and_no_bool",
    ),
    _m(
        "the agent sees the parameter that holds the state",
        f"{KIT}/signatures.py",
        "takes_state = state is not None and first is state",
        "takes_state = False",
        f"{KIT_TESTS}/test_tools.py::test_state_goes_to_the_functions_that_declare_it",
    ),
    _m(
        "a docstring overrules the signature",
        f"{KIT}/signatures.py",
        "about = said or described.get(parameter.name)",
        "about = described.get(parameter.name) or said",
        f"{KIT_TESTS}/test_tools.py::test_the_schema_says_what_signature_and_docstring_say",
    ),
    _m(
        "an exception of a tool ends the attempt",
        f"{KIT}/tools.py",
        '        except FAILURES as error:\n            return f"{ERROR} {tool.name} failed',
        '        except OSError as error:\n            return f"{ERROR} {tool.name} failed',
        f"{KIT_TESTS}/test_tools.py::test_what_goes_wrong_is_an_answer_with_what_to_do",
    ),
    _m(
        "a set is told in the order of its hashes",
        f"{KIT}/tools.py",
        'result = sorted(cast("set[object]", result), key=str)',
        'result = [*cast("set[object]", result)][::-1] if len(result) != 2 else ["b", "a"]',
        f"{KIT_TESTS}/test_tools.py::test_what_a_function_returns_is_told_as_text_or_json",
    ),
    _m(
        "calls in a thought are made",
        f"{KIT}/episode.py",
        "_, calls = in_order(without_thought(action))",
        "_, calls = in_order(action)",
        f"{KIT_TESTS}/test_episode.py::test_a_turn_without_a_call_ends_the_attempt",
    ),
    _m(
        "a turn has as many calls as the agent likes",
        f"{KIT}/episode.py",
        "for call in calls[:most]]",
        "for call in calls]",
        f"{KIT_TESTS}/test_episode.py::test_calls_of_a_turn_are_bounded",
    ),
    _m(
        "an attempt has as many turns as the agent likes",
        f"{KIT}/episode.py",
        "done=self._turns >= self._bounds.turns",
        "done=False",
        f"{KIT_TESTS}/test_episode.py::test_turns_are_bounded",
    ),
    _m(
        "a call is an answer",
        f"{KIT}/episode.py",
        "return None if calls else text",
        "return text",
        f"{KIT_TESTS}/test_episode.py::test_the_answer_is_the_last_turn_without_a_call",
    ),
    _m(
        "a decimal comma is read as two numbers",
        f"{KIT}/numbers.py",
        "(?<![\\w.,'’/])",
        "(?<![\\w.])",
        f"{KIT_TESTS}/test_numbers.py::test_numbers_are_read_exactly",
    ),
    _m(
        "metres a second are metres",
        f"{KIT}/numbers.py",
        'if first in ("/", "·", "*") and second.isalnum():',
        "if False:",
        f"{KIT_TESTS}/test_numbers.py::test_a_unit_is_a_whole_word_of_the_table",
    ),
    _m(
        "3.5 is 35 to exact",
        f"{KIT}/judges.py",
        'return folded.strip(_QUOTES).rstrip(".!?").strip(_QUOTES)',
        'return folded.strip(_QUOTES).replace(".", "").strip(_QUOTES)',
        f"{KIT_TESTS}/test_judges.py::test_exact",
    ),
    _m(
        "a number without its unit is right",
        f"{KIT}/judges.py",
        "if known and said is None:",
        "if False:",
        f"{KIT_TESTS}/test_judges.py::test_number_with_units",
    ),
    _m(
        "token F1 drops the point of a number",
        f"{KIT}/judges.py",
        "best_token_f1(numbers_as_words(answer), [numbers_as_words(one) for one in references])",
        "best_token_f1(answer, list(references))",
        f"{KIT_TESTS}/test_judges.py::test_words_with_other_numbers_are_no_success",
    ),
    _m(
        "words with another number are a success",
        f"{KIT}/judges.py",
        "same = any(_numbers(answer) == _numbers(one) for one in references)",
        "same = True",
        f"{KIT_TESTS}/test_judges.py::test_words_with_other_numbers_are_no_success",
    ),
    _m(
        "who names both choices is right",
        f"{KIT}/judges.py",
        'return Verdict(0.0, False, "several_choices")',
        'return _all_or_nothing(wanted in named, "several_choices")',
        f"{KIT_TESTS}/test_judges.py::test_a_choice",
    ),
    _m(
        "a wrong answer earns as much as a right one",
        f"{KIT}/judges.py",
        "most * soft.reward",
        "soft.reward",
        f"{KIT_TESTS}/test_judges.py::test_a_wrong_answer_earns_a_part_and_no_answer_nothing",
    ),
    _m(
        "no answer earns a part",
        f"{KIT}/judges.py",
        'if strict.success or strict.failure.startswith("no_"):',
        "if strict.success:",
        f"{KIT_TESTS}/test_judges.py::test_a_wrong_answer_earns_a_part_and_no_answer_nothing",
    ),
    _m(
        "what an author's reader raises ends the stage",
        f"{KIT}/domain.py",
        "        except FAILURES as error:\n            found = Rejected",
        "        except OSError as error:\n            found = Rejected",
        f"{KIT_TESTS}/test_kit_domain.py::test_a_text_that_is_no_program_has_a_reason",
    ),
    _m(
        "a task above the levels is in range",
        f"{KIT}/domain.py",
        "found.difficulty > self.levels()",
        "found.difficulty > 99",
        f"{KIT_TESTS}/test_kit_domain.py::test_a_text_that_is_no_program_has_a_reason",
    ),
    _m(
        "base tasks of parts may be held-out ones",
        f"{KIT}/domain.py",
        "return self._distinct(rng, count, pick, heldout=False)",
        "return self._distinct(rng, count, pick, heldout=True)",
        f"{KIT_TESTS}/test_kit_domain.py::test_nothing_but_heldout_tasks_is_of_the_heldout_bucket",
    ),
    _m(
        "an answer of a tool is revealed again and again",
        f"{KIT}/solved.py",
        "bool(part) and part not in heard and not holds(known, part)",
        "bool(part) and not holds(known, part)",
        f"{KIT_TESTS}/test_kit_domain.py::test_a_solution_reveals_what_the_tools_say_first",
    ),
    _m(
        "a solution goes on after a call that failed",
        f"{KIT}/solved.py",
        "if wrong or done:",
        "if done:",
        f"{KIT_TESTS}/test_kit_domain.py::test_what_an_author_gets_wrong_is_named",
    ),
)

_SERVED = (
    _m(
        "a version has no file that MLflow loads it by",
        "tasks/tracking/flavor.py",
        "    shutil.move(scratch, folder / MLMODEL)\n",
        "",
        "unit/tasks/test_mlflow_references.py"
        "::test_a_checkpoint_is_laid_out_for_mlflow_without_its_weights_again",
    ),
    _m(
        "libraries are asked to be quiet after they are imported",
        "flows/cli/app.py",
        "    quiet()\n",
        "",
        "unit/flows/test_environment.py::test_libraries_are_quiet_before_any_command_begins",
    ),
    _m(
        "whatever has the name of genenv's package is taken for it",
        "genenv_core/importing.py",
        "found.parents[1] != HOME",
        "False",
        "unit/test_importing.py::test_what_has_the_name_of_a_package_is_named",
    ),
    _m(
        "people hear after each epoch that MLflow is away",
        "tasks/tracking/news.py",
        "        _away.add(run)\n",
        "",
        "unit/tasks/test_tracking_away.py"
        "::test_people_hear_once_that_the_server_is_away_and_once_that_it_is_back",
    ),
    _m(
        "the closing text names a database that does not exist",
        "flows/cli/runs/live.py",
        'if not (home / "mlflow" / "mlflow.db").exists():',
        "if False:",
        "unit/tasks/test_tracking_away.py::test_the_closing_text_names_the_tracking_that_was_used",
    ),
    _m(
        "a web page in place of a store is a lost object",
        "genenv_core/storage/store/s3/requests.py",
        'if code == "NoSuchBucket" or foreign(error):',
        'if code == "NoSuchBucket":',
        "unit/storage/s3/test_s3_store.py::test_an_endpoint_that_is_no_store_is_named",
    ),
    _m(
        "a folder that goes while it is listed is an error",
        "genenv_core/storage/store/local.py",
        "FileNotFoundError | NotADirectoryError):",
        "NotADirectoryError):",
        "unit/storage/test_local_store.py::test_a_folder_that_goes_while_it_is_listed_is_left_out",
    ),
    _m(
        "a folder that cannot be listed is empty",
        "genenv_core/storage/store/local.py",
        "os.walk(folder, onerror=_unless_gone)",
        "os.walk(folder)",
        "unit/storage/test_local_store.py::test_a_listing_that_is_not_allowed_says_so",
    ),
    _m(
        "every request to a bucket that is away says so",
        "genenv_core/storage/store/s3/away.py",
        "self._told is None and ",
        "",
        "unit/storage/s3/test_s3_store.py"
        "::test_trouble_of_many_requests_is_told_once_and_no_end_where_there_is_none",
    ),
    _m(
        "nobody hears that a bucket answers again",
        "genenv_core/storage/store/s3/requests.py",
        "                self._away.answered(path)\n                return done",
        "                return done",
        "unit/storage/s3/test_s3_store.py::test_trouble_is_told_once_and_its_end",
    ),
    _m(
        "a first draw is absent from what changed",
        "genenv_core/storage/records/keys.py",
        '_flat("", {"draw": 0, **old})',
        '_flat("", old)',
        "unit/flows/test_replaying.py::test_every_part_that_differs_is_named_before_any_work",
    ),
    _m(
        "a clock that is off is a matter of credentials",
        "genenv_core/storage/store/s3/faults.py",
        "    if skew := _skew(error):\n        return skew\n",
        "",
        "unit/storage/s3/test_s3_store.py::test_a_clock_that_is_off_is_named",
    ),
    _m(
        "a run that ended early as asked is watched for ever",
        "flows/cli/runs/status.py",
        "return complete or bool(stuck) or stopped",
        "return complete or bool(stuck)",
        "unit/flows/test_status.py::test_a_run_that_was_to_end_early_is_watched_no_longer",
    ),
    _m(
        "a command that takes a run on leaves the note of its end",
        "tasks/upkeep/opening.py",
        "    clear_ending(store, name)\n",
        "",
        "pipeline/test_until.py::test_a_run_ends_where_it_is_asked_to_and_goes_on",
    ),
    _m(
        "the memory of RWR takes any prompt of pi_env for the usual one",
        "genenv_core/training/memory/needs.py",
        "return longest_prompt(config, given) or PROMPT",
        "return PROMPT",
        "unit/training/test_training_memory.py"
        "::test_the_prompt_of_pi_env_is_as_long_as_its_domain_makes_it",
    ),
)

CALLS = "unit/play/test_calls.py::test_"
OF_ITS_OWN = "unit/exchange/test_export_readers.py::test_calls_of_a_form_of_its_own_are_calls"
_CALLS = (
    _m(
        "a finished attempt does not name its calls",
        "genenv_core/play/driver.py",
        "[with_calls_of(one.rollout(), self._play.domain) for one in group]",
        "[one.rollout() for one in group]",
        f"{CALLS}no_template_sees_what_was_added",
    ),
    _m(
        "what a domain says of its calls is not asked for",
        "genenv_core/domains/tool_calls.py",
        "    if not isinstance(domain, ReadsCalls):\n",
        "    if True:\n",
        f"{SAID}what_a_domain_gives_for_calls_is_checked",
    ),
    _m(
        "calls of a prompt count as the agent's",
        "genenv_core/play/calls.py",
        "for message in own[len(own) - turns :])",
        "for message in own)",
        "unit/epoch/test_attempts.py::test_the_rows_of_a_rollout",
    ),
    _m(
        "a step that failed shows a call",
        "genenv_core/play/calls.py",
        'answering = [i for i in answering if not answers[i].get("error")]',
        "pass",
        f"{CALLS}a_step_that_failed_shows_no_call",
    ),
    _m(
        "pi_env is asked again with the calls named",
        "genenv_core/play/fidelity.py",
        "messages = as_said(messages)",
        "messages = list(messages)",
        f"{CALLS}pi_env_is_asked_again_about_the_words_alone",
    ),
    _m(
        "an endpoint reads calls that its model only meant",
        "genenv_core/exchange/chat_player.py",
        "return [call for call in calls_said(text) if call.arguments is not None]",
        "return calls_said(text)",
        f"{CALLS}a_model_behind_an_endpoint_reads_what_it_wrote",
    ),
    _m(
        "a user's answer to a call leaves as the user's",
        "genenv_core/play/transcript.py",
        "        if ident in waiting:\n",
        '        if ident in waiting and message["role"] == "tool":\n',
        OF_ITS_OWN,
    ),
    _m(
        "others learn to write calls that cannot be read",
        "genenv_core/exchange/turns.py",
        "(unread or place not in own)",
        "place not in own",
        OF_ITS_OWN,
    ),
    _m(
        "a call that a prompt records is lost in an export",
        "genenv_core/exchange/rows.py",
        'return canonical(message["content"], recorded) if recorded else message["content"]',
        'return message["content"]',
        "unit/exchange/test_export_readers.py::test_calls_that_a_prompt_records_are_in_its_text",
    ),
    _m(
        "a call of a prompt is a row of the view calls",
        "schemas/views/calls.sql",
        "WHERE turn >= 0",
        "WHERE turn >= -9",
        "unit/schemas/test_views_of_texts.py::test_each_call_by_hand",
    ),
    _m(
        "a column of before its renaming is not found by SQL",
        "genenv_core/storage/sql/catalog.py",
        "    if earlier is None:\n",
        "    if True:\n",
        "unit/storage/sql/test_catalog.py::test_a_root_from_before_a_column_was_renamed_is_read",
    ),
    _m(
        "a column of before its renaming is refused",
        "schemas/registry.py",
        'and number not in self._about["renamed"]',
        "and number",
        "unit/storage/test_parquet.py::"
        "test_a_file_from_before_a_column_was_renamed_is_read_by_the_new_name",
    ),
    _m(
        "a domain whose calls nobody knows has no fault",
        "genenv_core/play/checking/texts.py",
        "if not known and not seen.failed and _tools_speak(seen):",
        "if False:",
        "unit/play/test_checking.py::test_calls_that_a_domain_does_not_know_are_a_fault",
    ),
)

READERS = "unit/storage/test_readers.py::test"
ROOTS = "unit/tasks/test_roots.py::test"
_READERS = (
    _m(
        "a stage of the own root is asked for in other roots",
        "tasks/stage/execution.py",
        "manifest = call.find() or readers_of(config).take_in(stage.name, call.key)",
        "manifest = readers_of(config).take_in(stage.name, call.key) or call.find()",
        f"{ROOTS}_a_stage_of_the_own_root_is_asked_for_nowhere_else",
    ),
    _m(
        "weights of another root are copied with the stage",
        "genenv_core/storage/records/readers.py",
        "along = [part for part in manifest.parts if part not in weights]",
        "along = list(manifest.parts)",
        f"{READERS}_a_stage_is_taken_without_its_weights_and_nothing_there_changes",
    ),
    _m(
        "what is copied from another root is not compared",
        "genenv_core/storage/records/parts.py",
        "if file_sha256(made) != part.sha256:",
        "if False:",
        f"{READERS}_damaged_weights_are_found_when_they_are_copied_and_then_computed_here",
    ),
    _m(
        "files of another root are linked, not copied",
        "genenv_core/storage/records/parts.py",
        "shutil.copyfile(store.local(part.path), made)",
        "made.hardlink_to(store.local(part.path))",
        f"{READERS}_a_stage_is_taken_without_its_weights_and_nothing_there_changes",
    ),
    _m(
        "an altered object in a bucket that is only read is marked",
        "genenv_core/storage/store/s3/store.py",
        "if not self._writable:  # it may be another team's",
        "if False:",
        "unit/storage/s3/test_s3_readers.py::test_altered_weights_in_a_bucket_are_not_marked_there",
    ),
    _m(
        "a root to read from is opened for writing",
        "genenv_core/storage/records/readers.py",
        "self._open[uri] = Artifacts(open_store(uri, writable=False), shared=True)",
        "self._open[uri] = Artifacts(open_store(uri), shared=True)",
        f"{READERS}_a_stage_is_taken_without_its_weights_and_nothing_there_changes",
    ),
    _m(
        "weights with a fault elsewhere are asked for again",
        "genenv_core/storage/records/readers.py",
        "if note and note.fault:",
        "if False:",
        f"{READERS}_damaged_weights_are_found_when_they_are_copied_and_then_computed_here",
    ),
    _m(
        "a note with a fault excuses missing weights",
        "genenv_core/storage/records/foreign.py",
        "return found if found and not found.fault and found.parts == left_behind(manifest) "
        "else None",
        "return found if found and found.parts == left_behind(manifest) else None",
        f"{READERS}_damaged_weights_are_found_when_they_are_copied_and_then_computed_here",
    ),
    _m(
        "a root that is away is asked again for every stage",
        "genenv_core/storage/records/readers.py",
        "left = [uri for uri in self._uris if uri not in self._away]",
        "left = list(self._uris)",
        f"{READERS}_a_root_that_goes_away_is_said_once_and_left_out",
    ),
    _m(
        "gc leaves the note of weights elsewhere",
        "genenv_core/storage/upkeep/gc.py",
        "self._store.delete(paths.foreign(*output))",
        "pass",
        f"{READERS}_gc_keeps_what_was_taken_and_a_note_goes_with_its_stage",
    ),
    _m(
        "weights elsewhere count as missing",
        "genenv_core/storage/upkeep/verify.py",
        "if isinstance(record, Foreign) and not record.fault:",
        "if False:",
        f"{READERS}_a_stage_is_taken_without_its_weights_and_nothing_there_changes",
    ),
    _m(
        "a copy of a run lacks what lies elsewhere",
        "genenv_core/storage/upkeep/copying.py",
        "self._lying.update((part.path, note.root) for part in note.parts)",
        "pass",
        f"{READERS}_a_copy_of_a_run_is_whole",
    ),
    _m(
        "gc --restore gives up weights that can be had",
        "genenv_core/storage/records/foreign.py",
        'why = "" if None not in stats else "they are not there"',
        'why = "they are not there"',
        f"{READERS}_weights_that_are_gone_there_say_how_they_are_computed_here",
    ),
    _m(
        "the own root may be read from as another one",
        "genenv_core/storage/records/readers.py",
        "if _same(store.uri, own):",
        "if False:",
        f"{READERS}_roots_that_cannot_be_read_are_refused_at_the_start",
    ),
    _m(
        "a password in a root to read from is kept",
        "genenv_core/config/sections/roots.py",
        'if scheme == "s3" and ("@" in rest or',
        'if scheme == "s3" and (False or',
        "unit/config/test_config.py::test_roots_to_read_from_that_cannot_be_are_refused",
    ),
)

BUNDLE = "genenv_core/bundle"
ZIP = "unit/bundle/test_sealed_zip.py::test_"
HELD = "unit/bundle/test_contents.py::test_"
BUNDLES = "unit/flows/test_bundling.py::test_"
REPLAYS = "unit/flows/test_replaying.py::test_"
_BUNDLES = (
    _m(
        "a bundle is read without a look at its seal",
        f"{BUNDLE}/sealed_zip.py",
        "if data[-SEAL:] != sha256(data[:-SEAL]).encode():",
        "if False:",
        f"{ZIP}of_other_bytes_none_goes_unnoticed",
    ),
    _m(
        "a seal in capital letters is right as well",
        f"{BUNDLE}/sealed_zip.py",
        "if data[-SEAL:] != sha256(data[:-SEAL]).encode():",
        "if data[-SEAL:].lower() != sha256(data[:-SEAL]).encode():",
        f"{ZIP}no_bit_of_a_small_file_may_differ",
    ),
    _m(
        "a member of a bundle may lie above its folder",
        f"{BUNDLE}/sealed_zip.py",
        "(?!.*(^|/)\\.{1,2}(/|$))",
        "",
        f"{ZIP}no_name_leads_out_of_a_folder",
    ),
    _m(
        "a bundle may be compressed",
        f"{BUNDLE}/sealed_zip.py",
        "if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:",
        "if info.flag_bits & 1:",
        f"{ZIP}nothing_grows_when_it_is_read",
    ),
    _m(
        "a bundle's statement need not know its members",
        f"{BUNDLE}/contents.py",
        "    _check_listed(members, statement)\n",
        "",
        f"{HELD}a_rewritten_member_is_refused_with_a_right_seal",
    ),
    _m(
        "a bundle's manifest may be of another key",
        f"{BUNDLE}/contents.py",
        "if (one.key, stage_key(one.key_parts)) != (key, key) or place",
        "if place",
        f"{HELD}another_manifest_is_refused",
    ),
    _m(
        "a bundle's statement may name other outputs",
        f"{BUNDLE}/contents.py",
        'if statement["subject"] != subjects(stages):',
        "if False:",
        f"{HELD}another_manifest_is_refused",
        f"{HELD}a_rewritten_statement_is_refused_with_a_right_seal",
    ),
    _m(
        "a run is bundled with other code than its own",
        "flows/bundling.py",
        'if planned.status == "hit" and planned.key == key:',
        'if planned.status == "hit":',
        f"{BUNDLES}a_key_that_is_not_that_of_this_installation_is_refused",
    ),
    _m(
        "a bundle has the limits and places of the machine that made it",
        "flows/bundling.py",
        'if name not in (*FREE_SECTIONS, "root")',
        'if name != "root"',
        f"{BUNDLES}a_configuration_for_others_gives_the_same_keys",
    ),
    _m(
        "a replay begins with keys that are not the bundle's",
        "flows/replaying.py",
        "    if not where:\n        return\n",
        "    return\n",
        f"{REPLAYS}every_part_that_differs_is_named_before_any_work",
    ),
    _m(
        "a bundle chooses which code of this machine is loaded",
        "flows/replaying.py",
        "if reaches(config) and field not in said:",
        "if False:",
        f"{REPLAYS}what_reaches_beyond_genenv_is_not_taken_from_a_bundle",
    ),
    _m(
        "a bundle names variables with secrets",
        "flows/replaying.py",
        "overridden(portable(contents.config), where",
        "overridden(contents.config, where",
        f"{REPLAYS}a_bundle_has_no_say_in_secrets_and_places",
    ),
    _m(
        "a replay reuses what a root has",
        "flows/replaying.py",
        'used = "it has stages already" if store.names("stages") or store.names("runs") else ""',
        'used = ""',
        f"{REPLAYS}a_replay_has_a_root_of_its_own",
    ),
    _m(
        "a replay goes on after a stage that differs",
        "flows/replaying.py",
        "            self.unequal[event.epoch, event.stage] = lines\n"
        "        raise ReplayError(self.said())\n",
        "            self.unequal[event.epoch, event.stage] = lines\n",
        f"{REPLAYS}the_first_stage_that_differs_is_named",
    ),
    _m(
        "a replay that ends early is equal",
        "flows/replaying.py",
        "        if missing:\n            epoch, stage = missing[0]",
        "        if False:\n            epoch, stage = missing[0]",
        f"{REPLAYS}a_replay_with_equal_stages_is_equal",
    ),
    _m(
        "a file that is there is overwritten where there are no links",
        "genenv_core/storage/files.py",
        "        if os.path.lexists(path):\n            raise FileExistsError(path) from None\n",
        "",
        "unit/flows/test_bundle_commands.py::test_a_file_is_created_once",
    ),
)

_VIEW = (
    _m(
        "another page may start requests at the view",
        "flows/view/guarding.py",
        "        return origin == ",
        "        return True or origin == ",
        "unit/view/test_guarding.py::test_only_this_page_and_its_person_may_ask",
    ),
    _m(
        "the view asks for no token where others can reach it",
        "flows/view/guarding.py",
        "        if self._token is None:\n",
        "        if True:\n",
        "unit/view/test_guarding.py::test_a_token_is_asked_for_where_others_can_reach_the_page",
    ),
    _m(
        "a link from elsewhere asks its question",
        "flows/view/pages/console.py",
        '    may = request.headers.get("sec-fetch-site", "none") in ("none", "same-origin")\n',
        "    may = True\n",
        "unit/view/test_guarding.py"
        "::test_a_link_from_elsewhere_fills_in_a_question_and_does_not_ask_it",
    ),
    _m(
        "pages show the tables of when the view began",
        "flows/view/reading.py",
        "            if session is not None and session.alive and seen == self._seen:\n",
        "            if session is not None and session.alive:\n",
        "unit/view/test_pages.py::test_a_page_shows_what_was_written_since",
    ),
    _m(
        "what an address holds is markup",
        "genenv_core/report/page.py",
        "        autoescape=True,\n",
        "        autoescape=False,\n",
        "unit/view/test_pages.py::test_hostile_addresses_are_answered_with_a_page",
    ),
    _m(
        "numbers of a page are not those of its SQL",
        "flows/view/shown.py",
        "        return number(value) if math.isfinite(value) else str(value)\n",
        "        return number(value + 1) if math.isfinite(value) else str(value)\n",
        "unit/view/test_shown.py::test_values_as_pages_show_them",
    ),
    _m(
        "what an answer holds can end the script of the plot",
        "flows/view/app.py",
        '    return Markup(text.replace("<", "\\\\u003c"))\n',
        "    return Markup(text)\n",
        "unit/view/test_hostile.py::test_any_answer_is_shown_and_drawn_from_as_text_and_numbers",
    ),
    _m(
        "an infinite time ends the page that shows it",
        "flows/view/reading.py",
        "        frame = spelled(answer.frame)\n",
        "        frame = answer.frame\n",
        "unit/view/test_hostile.py::test_any_answer_is_shown_and_drawn_from_as_text_and_numbers",
    ),
    _m(
        "texts of models are markup",
        "flows/view/shown.py",
        "    said = escape(shown(value))\n",
        "    said = Markup(shown(value))\n",
        "unit/view/test_hostile.py::test_texts_of_models_come_out_as_text",
    ),
    _m(
        "the line of an arm is its best run's",
        "flows/view/curves.py",
        'f"avg(e.{curve.column})',
        'f"max(e.{curve.column})',
        "unit/view/test_parts_of_pages.py::test_the_line_of_an_arm_is_the_mean_of_its_runs",
    ),
    _m(
        "the trainer's logprobs of an observation are kept",
        "genenv_core/engines/transformers/gap.py",
        "    return torch.where(mask, made, 0.0)\n",
        "    return made\n",
        "unit/engines/test_logprob_gap.py::test_only_sampled_tokens_count",
    ),
    _m(
        "a query that takes too long is said to need memory",
        "genenv_core/storage/sql/session.py",
        "        if late.is_set():\n",
        "        if False:\n",
        "unit/storage/sql/test_session.py::test_a_query_that_takes_too_long_ends_it",
    ),
    _m(
        "the summary of a flow run names no page of the view",
        "flows/shown.py",
        "    if page := page_of(str(run)):\n",
        "    if page := '':\n",
        "unit/flows/test_deployments.py::test_the_summary_links_to_the_view",
    ),
)

INSPECT_TESTS = "unit/exchange/test_inspect_logs.py::test"
SPAN_TESTS = "unit/tasks/test_telemetry.py::test"
_OTHER_VIEWERS = (
    _m(
        "an item's name is a path in a log",
        "genenv_core/exchange/inspect_logs/samples.py",
        "    if _NAME.fullmatch(text):",
        "    if True:",
        f"{INSPECT_TESTS}_a_name_from_outside_is_one_plain_part_of_a_file_name",
    ),
    _m(
        "half a character stops a log",
        "genenv_core/exchange/inspect_logs/archive.py",
        'text.encode("utf-8", "replace")',
        "text.encode()",
        f"{INSPECT_TESTS}_halves_of_characters_and_long_texts_are_written",
    ),
    _m(
        "a log has numbers that no reader of JSON takes",
        "genenv_core/exchange/inspect_logs/samples.py",
        "return math.isfinite(value)",
        "return True",
        f"{INSPECT_TESTS}_arguments_that_no_reader_takes_are_text",
    ),
    _m(
        "Inspect's repeats count from 0",
        "genenv_core/exchange/inspect_logs/samples.py",
        '"epoch": row["sample_index"] + 1,',
        '"epoch": row["sample_index"],',
        f"{INSPECT_TESTS}_a_sample_tells_what_the_tables_know",
    ),
    _m(
        "the error of a log's metric is too small",
        "genenv_core/exchange/inspect_logs/writing.py",
        "error = float(means.std(ddof=1)",
        "error = float(means.std(ddof=0)",
        f"{INSPECT_TESTS}_metrics_are_means_over_tasks_of_the_means_of_their_attempts",
    ),
    _m(
        "spans are sent although nobody asked",
        "tasks/telemetry/spans.py",
        'exporter != "none" and any(',
        'exporter != "none" or any(',
        f"{SPAN_TESTS}_the_usual_variables_ask_for_spans",
    ),
    _m(
        "a span holds what a model said",
        "tasks/telemetry/attempts.py",
        'str(row["error"]).partition(":")[0][:200]',
        'str(row["error"])',
        f"{SPAN_TESTS}_an_attempt_has_its_numbers_and_no_word_of_a_model",
    ),
    _m(
        "a failed span holds the error's text",
        "tasks/telemetry/spans.py",
        '{"error.type": type(error).__name__}',
        '{"error.type": str(error)}',
        f"{SPAN_TESTS}_a_failure_marks_the_span_by_its_type_alone",
    ),
    _m(
        "a collector that is away is waited for again and again",
        "tasks/telemetry/sending.py",
        "if time.monotonic() < self._until:",
        "if False:",
        f"{SPAN_TESTS}_a_collector_that_is_away_is_tried_once_and_told_once",
    ),
    _m(
        "ids of spans are drawn from the seed of a run",
        "tasks/telemetry/sending.py",
        ", id_generator=Ids()",
        "",
        f"{SPAN_TESTS}_spans_draw_nothing_from_pythons_random_numbers",
    ),
    _m(
        "a stage on a work pool begins a trace of its own",
        "tasks/telemetry/spans.py",
        "elsewhere = _from_elsewhere.get() or",
        'elsewhere = "" or',
        f"{SPAN_TESTS}_a_span_goes_on_in_another_process",
    ),
)

MUTATIONS: tuple[Mutation, ...] = (
    *_ALGORITHM,
    *_EPOCH,
    *_GRPO,
    *_TRAINING,
    *_PLAY,
    *_KEYS,
    *_STORE,
    *_SANDBOX,
    *_COMPARE,
    *_WORK,
    *_TRAILS,
    *_FIDELITY,
    *_TEACHER,
    *_MEASURING,
    *_BENCHMARKS,
    *_BFCL,
    *_BFCL_TURNS,
    *_API_BANK,
    *_PLAYED,
    *_SHARED_BY_BENCHMARKS,
    *_TRAVELPLANNER,
    *_ALFWORLD,
    *_DOWNLOADS,
    *_KIT,
    *_SERVED,
    *_CALLS,
    *_READERS,
    *_BUNDLES,
    *_VIEW,
    *_OTHER_VIEWERS,
)

for _beside in sorted(Path(__file__).parent.glob("added_*.py")):
    MUTATIONS += importlib.import_module(f"tests.mutations.{_beside.stem}").MUTATIONS
