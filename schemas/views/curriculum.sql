-- How did the tasks that the agent was given move from epoch to epoch?
-- Reads: task_scores, tasks, traces, selections, settings
-- Key: run_id, epoch
-- policy_version: Version of pi_agent that attempted them.
-- env_policy_version: Version of pi_env that wrote them; null when it did not.
-- tasks: New tasks attempted; base tasks count nowhere in this view.
-- attempts: Rollouts of them.
-- p_hat: Share of successes over those rollouts.
-- r_env: Mean R_env of the tasks, at the configured level.
-- skill: p_hat above the chance of a guess, which alpha is the target of; p_hat itself where nothing can be guessed.
-- share_in_band: Share of the tasks with |skill - alpha| <= k_min, at the configured level.
-- share_zero_signal: Share of the tasks whose rewards are all equal.
-- difficulty: Mean difficulty of the tasks (desk, trails: tool calls).
-- difficulty_sd: Standard deviation of the difficulty over the tasks; null for a single one.
-- response_tokens: Mean tokens that the agent sampled in a rollout.
-- response_tokens_p90: Nine rollouts in ten are at most this long, in tokens.
WITH new_tasks AS (
    SELECT
        g.run_id,
        g.arm,
        g.epoch,
        g.group_id,
        g.n,
        g.successes,
        g.r_env,
        g.zero_signal,
        t.difficulty,
        t.env_policy_version,
        g.skill_batch,
        s.alpha,
        -- The tolerance of genenv_core.algorithm.selection.
        x.distance <= s.k_min + 1e-9 AS in_band
    FROM task_scores AS g
    INNER JOIN tasks AS t ON t.run_id = g.run_id AND t.task_id = g.task_id
    LEFT JOIN settings AS s ON s.run_id = g.run_id
    LEFT JOIN selections AS x
        ON x.run_id = g.run_id AND x.group_id = g.group_id AND x.update = 'env'
    WHERE g.source <> 'base'
),
lengths AS (
    SELECT
        r.run_id,
        r.epoch,
        max(r.policy_version) AS policy_version,
        avg(r.response_tokens) AS response_tokens,
        quantile_cont(r.response_tokens, 0.9) AS response_tokens_p90
    FROM traces AS r
    SEMI JOIN new_tasks AS g ON g.run_id = r.run_id AND g.group_id = r.group_id
    WHERE coalesce(r.cause, 'agent') = 'agent'  -- the others were lost
    GROUP BY r.run_id, r.epoch
),
by_epoch AS (
    SELECT
        run_id,
        arm,
        epoch,
        max(env_policy_version) AS env_policy_version,
        count(*) AS tasks,
        CAST(sum(n) AS BIGINT) AS attempts,
        any_value(alpha) AS alpha,
        sum(successes) / sum(n) AS p_hat,
        coalesce(any_value(skill_batch), sum(successes) / sum(n)) AS skill,
        avg(r_env) AS r_env,
        avg(CAST(in_band AS DOUBLE)) AS share_in_band,
        avg(CAST(zero_signal AS DOUBLE)) AS share_zero_signal,
        avg(difficulty) AS difficulty,
        stddev_samp(difficulty) AS difficulty_sd
    FROM new_tasks
    GROUP BY run_id, arm, epoch
)
SELECT
    e.run_id,
    e.arm,
    e.epoch,
    l.policy_version,
    e.env_policy_version,
    e.tasks,
    e.attempts,
    e.alpha,
    e.p_hat,
    e.skill,
    e.r_env,
    e.share_in_band,
    e.share_zero_signal,
    e.difficulty,
    e.difficulty_sd,
    l.response_tokens,
    l.response_tokens_p90
FROM by_epoch AS e
LEFT JOIN lengths AS l ON l.run_id = e.run_id AND l.epoch = e.epoch
