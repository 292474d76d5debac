-- How did the agent fare on one task, or on equal ones, over the epochs?
-- Reads: task_scores, tasks, traces, decisions, uses
-- Key: run_id, group_id
-- occasion: How often tasks of this fingerprint were attempted up to here, from 1.
-- policy_version: Version of pi_agent that attempted it.
-- p_hat_before: The same on the occasion before; null on the first.
-- agent_updates: Epochs whose agent update trained on these rollouts, as text; null when none did.
-- env_updates: Epochs whose environment update trained on the task's generation; null when none did.
WITH used AS (
    -- An agent update uses groups of rollouts, an environment update single generations.
    SELECT
        run_id,
        policy,
        coalesce(group_id, row_id) AS used_id,
        array_to_string(list_sort(list_distinct(flatten(list(updates)))), ', ') AS epochs
    FROM uses
    GROUP BY ALL
)
SELECT
    g.run_id,
    g.arm,
    t.fingerprint,
    g.epoch,
    row_number() OVER same AS occasion,
    g.task_id,
    g.group_id,
    g.source,
    t.family,
    t.difficulty,
    r.policy_version,
    g.n,
    g.successes,
    g.p_hat,
    lag(g.p_hat) OVER same AS p_hat_before,
    g.r_env,
    x.agent_reason,
    x.env_reason,
    a.epochs AS agent_updates,
    b.epochs AS env_updates
FROM task_scores AS g
INNER JOIN tasks AS t ON t.run_id = g.run_id AND t.task_id = g.task_id
LEFT JOIN traces AS r
    ON r.run_id = g.run_id AND r.group_id = g.group_id AND r.sample_index = 0
LEFT JOIN decisions AS x ON x.run_id = g.run_id AND x.group_id = g.group_id
LEFT JOIN used AS a
    ON a.policy = 'agent' AND a.run_id = g.run_id AND a.used_id = g.group_id
LEFT JOIN used AS b
    ON b.policy = 'env' AND b.run_id = g.run_id AND b.used_id = t.generation_id
WINDOW same AS (PARTITION BY g.run_id, t.fingerprint ORDER BY g.epoch, g.group_id)
