-- Why were generations of pi_env rejected, and how often in each epoch?
-- Reads: tasks
-- rejections: Rows rejected for this reason in the epoch.
-- share: Part of all the epoch's new rows, valid or not, that this is; 0 to 1.
-- example_task_id: First such row.
-- example_detail: What exactly was wrong with it.
-- example_text: pi_env's text in it.
WITH counted AS (
    SELECT *, count(*) OVER (PARTITION BY run_id, epoch) AS new_rows
    FROM tasks
    WHERE source NOT IN ('base', 'heldout')
)
SELECT
    run_id,
    arm,
    epoch,
    rejection,
    count(*) AS rejections,
    count(*) / any_value(new_rows) AS share,
    min(task_id) AS example_task_id,
    arg_min(rejection_detail, task_id) AS example_detail,
    arg_min(generation_text, task_id) AS example_text
FROM counted
WHERE NOT valid
GROUP BY run_id, arm, epoch, rejection
