-- Which earlier task and which test task does each new task resemble, and what became of that test task?
-- Reads: tasks, task_scores, test_results
-- Key: run_id, task_id
-- epoch: Epoch that produced the task.
-- p_hat: Share of successes over the attempts at it; null when nobody attempted it.
-- nearest_epoch: Epoch that produced the earlier task; 0 for a base task.
-- nearest_program: Program of the earlier task.
-- test_program: Program of the test task.
-- test_before: Result of the agent on the test task when it was last measured before this epoch's update: the probability of the answer, or where that is not known the sampled success.
-- test_after: The same when it was first measured after the update.
-- test_gain: test_after - test_before. One epoch teaches many tasks: this is a trace of what they taught together, not proof that this one did.
WITH measured AS (
    -- As in `evidence`: the measure that comes first in the alphabet has less noise.
    SELECT run_id, epoch, task_id, value
    FROM test_results
    WHERE measure IN ('answer_probability', 'sampled')
    QUALIFY row_number() OVER (PARTITION BY run_id, epoch, task_id ORDER BY measure) = 1
),
new_tasks AS NOT MATERIALIZED (
    SELECT *
    FROM tasks
    WHERE valid AND similarity IS NOT NULL
),
moved AS (
    SELECT
        t.run_id,
        t.epoch,
        t.nearest_test_id,
        arg_max(m.value, m.epoch) FILTER (m.epoch < t.epoch) AS test_before,
        arg_min(m.value, m.epoch) FILTER (m.epoch >= t.epoch) AS test_after
    FROM (SELECT DISTINCT run_id, epoch, nearest_test_id FROM new_tasks) AS t
    INNER JOIN measured AS m ON m.run_id = t.run_id AND m.task_id = t.nearest_test_id
    GROUP BY t.run_id, t.epoch, t.nearest_test_id
)
SELECT
    t.run_id,
    t.arm,
    t.epoch,
    t.task_id,
    t.family,
    t.difficulty,
    t.program,
    g.p_hat,
    t.nearest_task_id,
    n.epoch AS nearest_epoch,
    n.program AS nearest_program,
    t.similarity,
    t.nearest_test_id,
    p.program AS test_program,
    t.test_similarity,
    m.test_before,
    m.test_after,
    m.test_after - m.test_before AS test_gain
FROM new_tasks AS t
LEFT JOIN tasks AS n ON n.run_id = t.run_id AND n.task_id = t.nearest_task_id
LEFT JOIN tasks AS p ON p.run_id = t.run_id AND p.task_id = t.nearest_test_id
LEFT JOIN task_scores AS g
    ON g.run_id = t.run_id AND g.task_id = t.task_id AND g.epoch = t.epoch
LEFT JOIN moved AS m
    ON m.run_id = t.run_id AND m.epoch = t.epoch AND m.nearest_test_id = t.nearest_test_id
