-- Of which domain is each task?
-- Reads: tasks, runs
-- Key: run_id, task_id
-- domain: Name of its domain in the run. In a run of several it stands before the family; a rejected text is of the domain that it was asked for.
SELECT
    t.run_id,
    t.arm,
    t.task_id,
    t.epoch,
    t.source,
    CASE
        WHEN r.domain = 'several' THEN split_part(coalesce(t.family, b.family), '/', 1)
        ELSE r.domain
    END AS domain
FROM tasks AS t
INNER JOIN runs AS r ON r.run_id = t.run_id
LEFT JOIN tasks AS b ON b.run_id = t.run_id AND b.task_id = t.base_task_id
