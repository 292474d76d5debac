-- What was rejected and why, and how often in each epoch?
-- Reads: tasks, selections
-- Key: run_id, epoch, kept_from, rejection
-- epoch: Epoch of the decision.
-- kept_from: What the rows are missing from: `tasks` (a generation became no task), or the update `agent` or `env` (a task's group of rollouts may not be used by it). A generation that became no task is counted once, under `tasks`; a task that was not chosen is not rejected.
-- rejection: The reason.
-- rejections: Rows rejected for this reason in the epoch.
-- share: Part of all the epoch's rows that were decided about, rejected or not; 0 to 1.
-- example_task_id: First such row.
-- example_detail: What exactly was wrong with it.
-- example_text: pi_env's text in it; the program of a task that pi_env did not write.
WITH decided AS (
    SELECT run_id, arm, epoch, task_id, 'tasks' AS kept_from, rejection, rejection_detail AS detail
    FROM tasks
    WHERE source NOT IN ('base', 'validation', 'test')
    UNION ALL
    SELECT
        run_id,
        arm,
        epoch,
        task_id,
        update AS kept_from,
        nullif(reason, 'kept') AS rejection,
        format('p_hat {:.4g}', p_hat) AS detail
    FROM selections
    WHERE reason NOT IN ('invalid_task', 'not_attempted')
),
counted AS (
    SELECT
        run_id,
        arm,
        epoch,
        kept_from,
        rejection,
        count(*) AS rejections,
        sum(count(*)) OVER (PARTITION BY run_id, epoch, kept_from) AS decisions,
        min(task_id) AS example_task_id,
        arg_min(detail, task_id) AS example_detail
    FROM decided
    GROUP BY run_id, arm, epoch, kept_from, rejection
)
SELECT
    c.run_id,
    c.arm,
    c.epoch,
    c.kept_from,
    c.rejection,
    c.rejections,
    c.rejections / c.decisions AS share,
    c.example_task_id,
    c.example_detail,
    coalesce(t.generation_text, t.program) AS example_text
FROM counted AS c
INNER JOIN tasks AS t ON t.run_id = c.run_id AND t.task_id = c.example_task_id
WHERE c.rejection IS NOT NULL
