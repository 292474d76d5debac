-- Which rows made this checkpoint, and which checkpoints saw this row?
-- Reads: update_samples, checkpoints, d_train, tasks
-- Key: run_id, policy, epoch, row_id
-- checkpoint: Digest of the weights that the update made.
-- parent_checkpoint: Digest of the weights that the update started from; its own rows are behind this checkpoint too.
-- row_epoch: Epoch in which the row was sampled.
WITH pools AS (
    -- One join on equal columns: two joins, each for one policy, would compare all rows with all.
    SELECT run_id, 'agent' AS policy, trace_id AS row_id, task_id, epoch FROM d_train
    UNION ALL
    SELECT run_id, 'env' AS policy, generation_id AS row_id, task_id, epoch FROM tasks
    WHERE generation_id IS NOT NULL
)
SELECT
    u.run_id,
    u.arm,
    u.policy,
    u.epoch,
    c.digest AS checkpoint,
    c.parent_digest AS parent_checkpoint,
    c.published,
    u.row_id,
    p.task_id,
    u.group_id,
    u.source,
    p.epoch AS row_epoch,
    u.policy_version,
    u.advantage,
    u.weight
FROM update_samples AS u
LEFT JOIN checkpoints AS c
    ON c.run_id = u.run_id AND c.policy = u.policy AND c.epoch = u.epoch
LEFT JOIN pools AS p
    ON p.run_id = u.run_id AND p.policy = u.policy AND p.row_id = u.row_id
-- Not those that only the KL of an environment update was along.
WHERE u.weight IS NULL OR u.weight > 0
