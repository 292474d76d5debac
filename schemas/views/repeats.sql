-- How much of what pi_env writes has the run had before?
-- Reads: tasks
-- Key: run_id, epoch
-- epoch: Epoch that wrote the texts.
-- texts: Texts of pi_env in the epoch, valid or not.
-- texts_repeated: Those that repeat a task of the run: a rejected duplicate, or a valid task that equals one of any earlier epoch.
-- tasks: New tasks: the valid ones of the texts.
-- equal_earlier: Share of the new tasks that equal a task of any earlier epoch. Duplicates are rejected within the newest `generation.history_epochs` epochs alone.
-- similarity: Mean similarity of a new task to the one that it is nearest to: a base task, one of those newest epochs, or one of its own epoch. Null in older runs.
-- repeats: Share of the new tasks that equal a task of any earlier epoch, or have a similarity of .9 or more.
WITH written AS (
    SELECT
        run_id,
        arm,
        epoch,
        source,
        valid,
        similarity,
        coalesce(rejection IN ('duplicate', 'duplicate_of_history'), false) AS duplicate,
        coalesce(valid AND epoch > min(epoch) FILTER (valid) OVER (PARTITION BY run_id, fingerprint), false)
        AND fingerprint IS NOT NULL AS earlier
    FROM tasks
    WHERE source NOT IN ('validation', 'test')
)
SELECT
    run_id,
    arm,
    epoch,
    count(*) AS texts,
    count(*) FILTER (duplicate OR earlier) AS texts_repeated,
    count(*) FILTER (valid) AS tasks,
    avg(CAST(earlier AS DOUBLE)) FILTER (valid) AS equal_earlier,
    avg(similarity) FILTER (valid) AS similarity,
    avg(CAST(earlier OR coalesce(similarity >= 0.9, false) AS DOUBLE)) FILTER (valid) AS repeats
FROM written
WHERE source <> 'base' AND epoch > 0
GROUP BY run_id, arm, epoch
