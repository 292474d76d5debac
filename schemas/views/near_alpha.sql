-- Which new tasks were near alpha, so that the environment update could use them?
-- Reads: tasks, selections, task_scores
-- Key: run_id, epoch, task_id
-- p_hat_task: Share of successes of the task itself, k / n.
SELECT
    s.run_id,
    s.arm,
    s.epoch,
    s.task_id,
    t.family,
    t.difficulty,
    g.n,
    g.successes,
    g.p_hat AS p_hat_task,
    s.p_hat,
    s.distance,
    g.r_env,
    t.program,
    t.prompt
FROM selections AS s
INNER JOIN tasks AS t ON t.run_id = s.run_id AND t.task_id = s.task_id
INNER JOIN task_scores AS g ON g.run_id = s.run_id AND g.group_id = s.group_id
WHERE s.update = 'env' AND s.kept
