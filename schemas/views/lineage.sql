-- Which rows made this checkpoint, and which checkpoints saw this row?
-- Reads: update_samples, checkpoints, d_train, d_env
-- checkpoint: Digest of the weights that the update made.
-- parent_checkpoint: Digest of the weights that the update started from; its own rows are behind this checkpoint too.
-- row_epoch: Epoch in which the row was sampled.
SELECT
    u.run_id,
    u.arm,
    u.policy,
    u.epoch,
    c.digest AS checkpoint,
    c.parent_digest AS parent_checkpoint,
    c.published,
    u.row_id,
    coalesce(a.task_id, b.task_id) AS task_id,
    u.group_id,
    u.source,
    coalesce(a.epoch, b.epoch) AS row_epoch,
    u.policy_version,
    u.advantage,
    u.weight
FROM update_samples AS u
LEFT JOIN checkpoints AS c
    ON c.run_id = u.run_id AND c.policy = u.policy AND c.epoch = u.epoch
LEFT JOIN d_train AS a
    ON u.policy = 'agent' AND a.run_id = u.run_id AND a.trace_id = u.row_id
LEFT JOIN d_env AS b
    ON u.policy = 'env' AND b.run_id = u.run_id AND b.generation_id = u.row_id
