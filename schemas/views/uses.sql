-- Which updates trained on each attempt of pi_agent, and on each generation of pi_env?
-- Reads: update_samples
-- Key: run_id, policy, row_id
-- weight: RWR weight in the first of the updates; null for pi_agent.
-- updates: Epochs of the updates, in order.
--
-- Generations that only the KL of an update was along have no row.
SELECT
    run_id,
    any_value(arm) AS arm,
    policy,
    row_id,
    any_value(group_id) AS group_id,
    any_value(advantage) AS advantage,
    arg_min(weight, epoch) AS weight,
    list_sort(list(epoch)) AS updates  -- list(epoch ORDER BY epoch) takes ten times as long
FROM update_samples
WHERE weight IS NULL OR weight > 0
GROUP BY run_id, policy, row_id
