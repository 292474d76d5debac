-- How much of what pi_env writes has the run had before?
-- Reads: tasks, task_domains, fixed_sets
-- Key: run_id, epoch
-- epoch: Epoch that wrote the texts.
-- texts: Texts of pi_env in the epoch, valid or not.
-- texts_repeated: Those that repeat a task of the run: a rejected duplicate, or a valid task that equals one of any earlier epoch.
-- written: Texts of domains whose tasks pi_env writes. In a fixed set it chooses, and has to choose a task again.
-- written_repeated: Those of them that repeat a task of the run.
-- tasks: New tasks: the valid ones of the texts.
-- equal_earlier: Share of the new tasks that equal a task of any earlier epoch. Duplicates are rejected within the newest `generation.history_epochs` epochs alone.
-- similarity: Mean similarity of a new task to the one that it is nearest to: a base task, one of those newest epochs, or one of its own epoch. Null in older runs.
-- repeats: Share of the new tasks that equal a task of any earlier epoch, or have a similarity of .9 or more.
WITH written AS (
    SELECT
        t.run_id,
        t.arm,
        t.epoch,
        t.source,
        t.valid,
        t.similarity,
        f.domain IS NULL AS own,
        coalesce(t.rejection IN ('duplicate', 'duplicate_of_history'), false) AS duplicate,
        coalesce(t.valid AND t.epoch > min(t.epoch) FILTER (t.valid) OVER (PARTITION BY t.run_id, t.fingerprint), false)
        AND t.fingerprint IS NOT NULL AS earlier
    FROM tasks AS t
    LEFT JOIN task_domains AS d ON d.run_id = t.run_id AND d.task_id = t.task_id
    LEFT JOIN fixed_sets AS f ON f.run_id = t.run_id AND f.domain = d.domain
    WHERE t.source NOT IN ('validation', 'test')
)
SELECT
    run_id,
    arm,
    epoch,
    count(*) AS texts,
    count(*) FILTER (duplicate OR earlier) AS texts_repeated,
    count(*) FILTER (own) AS written,
    count(*) FILTER (own AND (duplicate OR earlier)) AS written_repeated,
    count(*) FILTER (valid) AS tasks,
    avg(CAST(earlier AS DOUBLE)) FILTER (valid) AS equal_earlier,
    avg(similarity) FILTER (valid) AS similarity,
    avg(CAST(earlier OR coalesce(similarity >= 0.9, false) AS DOUBLE)) FILTER (valid) AS repeats
FROM written
WHERE source <> 'base' AND epoch > 0
GROUP BY run_id, arm, epoch
