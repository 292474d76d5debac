-- What was behind each update: how many rows, of which sources, and with how different weights?
-- Reads: checkpoints, update_samples
-- Key: run_id, policy, epoch
-- checkpoint: Digest of the weights that the update made; its parent's when it was skipped.
-- rows: Rows that it trained on: attempts for pi_agent, generations for pi_env. Those that only the KL is along do not count.
-- kl_rows: Generations that the KL of pi_env's update was along; null for pi_agent.
-- row_groups: Groups that these rows belong to; null for pi_env.
-- new_rows: Rows of this epoch's new tasks.
-- base_rows: Rows of base tasks.
-- history_rows: Rows of earlier epochs.
-- weight_low: Smallest RWR weight; weights have mean 1. Null for pi_agent.
-- weight_high: Largest RWR weight; null for pi_agent.
-- effective_rows: Effective sample size of the weights, (sum w)^2 / sum w^2 (Kish, Survey Sampling, 1965): all rows where all weigh alike. Null for pi_agent.
WITH used AS (SELECT *, weight IS NULL OR weight > 0 AS learned FROM update_samples)
SELECT
    c.run_id,
    c.arm,
    c.policy,
    c.epoch,
    c.digest AS checkpoint,
    c.published,
    c.steps,
    count(u.row_id) FILTER (u.learned) AS rows,
    CASE WHEN c.policy = 'env' THEN count(u.row_id) FILTER (u.leash) END AS kl_rows,
    CASE WHEN c.policy = 'agent' THEN count(DISTINCT u.group_id) END AS row_groups,
    count(u.row_id) FILTER (u.learned AND u.source = 'new') AS new_rows,
    count(u.row_id) FILTER (u.learned AND u.source = 'base') AS base_rows,
    count(u.row_id) FILTER (u.learned AND u.source = 'history') AS history_rows,
    min(u.weight) FILTER (u.learned) AS weight_low,
    max(u.weight) FILTER (u.learned) AS weight_high,
    sum(u.weight) ** 2 / nullif(sum(u.weight * u.weight), 0) AS effective_rows
FROM checkpoints AS c
LEFT JOIN used AS u
    ON u.run_id = c.run_id AND u.policy = c.policy AND u.epoch = c.epoch
WHERE c.epoch > 0
GROUP BY c.run_id, c.arm, c.policy, c.epoch, c.digest, c.published, c.steps
