-- Could each update use a task's group of rollouts, and if not, why?
-- Reads: selections
-- Key: run_id, group_id
-- agent_reason: `kept`, or why the agent update of the epoch could not use it.
-- env_reason: The same for the environment update.
SELECT
    run_id,
    any_value(arm) AS arm,
    any_value(epoch) AS epoch,
    group_id,
    any_value(task_id) AS task_id,
    any_value(reason) FILTER (WHERE update = 'agent') AS agent_reason,
    any_value(reason) FILTER (WHERE update = 'env') AS env_reason
FROM selections
WHERE group_id IS NOT NULL
GROUP BY run_id, group_id
