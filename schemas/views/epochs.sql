-- How did each epoch go, and how long did the run work on it?
-- Reads: epoch_rows, stage_runs
-- Key: run_id, epoch
-- skill: p_hat above the chance of a guess, which alpha is the target of; p_hat itself where nothing can be guessed, and in older runs.
-- seconds: Time in which at least one stage attempt of the epoch was running, in seconds. Stages side by side count once; waiting between a crash and its resume, cached stages and attempts that were killed count nothing. The start, epoch 0, has no row here; `stage_runs` has its time. Null when the run kept no stage history.
WITH spans AS (
    SELECT
        run_id,
        epoch,
        epoch_us(started_at) AS begun_us,
        epoch_us(started_at)
            + CASE WHEN state = 'cached' THEN 0 ELSE round(coalesce(seconds, 0) * 1e6) END
            AS ended_us
    FROM stage_runs
),
covered AS (
    SELECT
        *,
        max(ended_us) OVER (
            PARTITION BY run_id, epoch
            ORDER BY begun_us, ended_us
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS covered_us
    FROM spans
),
worked AS (
    -- Each attempt adds only what lies beyond every earlier one, so overlaps count once.
    SELECT
        run_id,
        epoch,
        sum(greatest(0, ended_us - greatest(begun_us, coalesce(covered_us, begun_us)))) / 1e6
            AS seconds
    FROM covered
    GROUP BY run_id, epoch
)
SELECT
    e.run_id,
    e.arm,
    e.epoch,
    e.tasks_generated,
    e.tasks_valid,
    e.p_hat,
    e.r_env_mean,
    e.share_in_band,
    e.share_zero_signal,
    e.share_kept,
    e.mean_difficulty,
    e.mean_response_tokens,
    e.heldout_success,
    e.heldout_success_greedy,
    e.kl_env,
    e.grpo_steps,
    e.rwr_steps,
    e.agent_checkpoint,
    e.env_checkpoint,
    w.seconds,
    e.heldout_answer_probability,
    e.validation_success,
    e.kl_env_se,
    e.p_hat_written,
    e.agent_action,
    e.agent_note,
    e.env_action,
    e.env_note,
    e.attempts_lost,
    e.tasks_refilled,
    coalesce(e.skill, e.p_hat) AS skill,
    e.tasks_note
FROM epoch_rows AS e
LEFT JOIN worked AS w ON w.run_id = e.run_id AND w.epoch = e.epoch
