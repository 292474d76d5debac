-- What would R_env and the filter have said about the stored rollouts under other settings?
-- Reads: task_scores, tasks, decisions, settings
-- Key: run_id, group_id
-- Parameter alpha DOUBLE: Target success rate; left out: the run's own.
-- Parameter beta DOUBLE: Sharpness of R_env; left out: the run's own.
-- Parameter k_min DOUBLE: Half-width of the band; left out: the run's own.
-- Parameter lambda_ DOUBLE: Temperature of the weight; left out: the run's own. Fourth by position.
-- p_hat: Share of successes at the run's level.
-- skill: That above the chance of a guess, which R_env and the filter judge; p_hat itself where nothing can be guessed.
-- distance: |skill - alpha| under the given alpha.
-- in_band: Whether that is at most k_min.
-- r_env: R_env under the given settings; null for base tasks.
-- r_env_played: R_env as the run had it.
-- env_reason: `kept`, or why the environment update may not use the task, under the given settings.
-- env_reason_played: The same, as the run had it.
-- agent_reason: `kept`, or why the agent update may not use the task, under the given settings.
-- agent_reason_played: The same, as the run had it.
-- weight_raw: exp(lambda R_env), as `rwr.pay` alpha weighs, of the task's generation, whose R_env is the mean of its tasks'; null for tasks that pi_env did not write. Neither a tracked target nor families count in it.
WITH given AS (
    SELECT
        s.run_id,
        s.level,
        s.filter_agent,
        coalesce(alpha, s.alpha) AS target,
        coalesce(beta, s.beta) AS sharpness,
        coalesce(k_min, s.k_min) AS width,
        coalesce(lambda_, s.lambda_) AS temperature
    FROM settings AS s
),
judged AS (
    SELECT
        g.run_id,
        g.arm,
        g.epoch,
        g.task_id,
        g.group_id,
        g.source,
        g.n,
        g.successes,
        g.zero_signal,
        g.r_env AS r_env_played,
        CASE s.level
            WHEN 'group' THEN coalesce(g.p_hat_group, g.p_hat)
            WHEN 'batch' THEN coalesce(g.p_hat_batch, g.p_hat)
            ELSE g.p_hat
        END AS p_hat,
        CASE s.level
            WHEN 'group' THEN coalesce(g.skill_group, g.skill, g.p_hat_group, g.p_hat)
            WHEN 'batch' THEN coalesce(g.skill_batch, g.skill, g.p_hat_batch, g.p_hat)
            ELSE coalesce(g.skill, g.p_hat)
        END AS skill,
        s.* EXCLUDE (run_id, level)
    FROM task_scores AS g
    INNER JOIN given AS s ON s.run_id = g.run_id
),
rated AS (
    SELECT
        j.*,
        t.generation_id,
        t.family,
        t.difficulty,
        abs(j.skill - j.target) AS distance,
        -- The tolerance of genenv_core.algorithm.selection.
        abs(j.skill - j.target) <= j.width + 1e-9 AS in_band,
        CASE
            WHEN j.source <> 'base' THEN exp(-j.sharpness * pow(j.skill - j.target, 2))
        END AS r_env
    FROM judged AS j
    INNER JOIN tasks AS t ON t.run_id = j.run_id AND t.task_id = j.task_id
),
filtered AS (
    SELECT
        *,
        CASE
            WHEN in_band THEN NULL
            WHEN skill < target THEN 'below_band'
            ELSE 'above_band'
        END AS flaw,
        CASE
            WHEN generation_id IS NOT NULL
                THEN avg(r_env) OVER (PARTITION BY run_id, epoch, generation_id)
        END AS generation_reward
    FROM rated
)
SELECT
    f.run_id,
    f.arm,
    f.epoch,
    f.task_id,
    f.group_id,
    f.generation_id,
    f.family,
    f.difficulty,
    f.n,
    f.successes,
    f.p_hat,
    f.skill,
    f.distance,
    f.in_band,
    f.r_env,
    f.r_env_played,
    CASE WHEN f.source <> 'generated' THEN 'not_in_update' ELSE coalesce(f.flaw, 'kept') END
        AS env_reason,
    p.env_reason AS env_reason_played,
    CASE
        WHEN f.flaw IS NOT NULL AND f.filter_agent THEN f.flaw
        WHEN f.zero_signal THEN 'zero_signal'
        ELSE 'kept'
    END AS agent_reason,
    p.agent_reason AS agent_reason_played,
    exp(f.temperature * f.generation_reward) AS weight_raw
FROM filtered AS f
LEFT JOIN decisions AS p ON p.run_id = f.run_id AND p.group_id = f.group_id
