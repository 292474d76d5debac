-- Which stages did each run reuse, which run of which root computed them, when, and what did it cost?
-- Reads: stage_runs
-- Key: run_id, stage, computed_by, computed_root
-- epochs: Epochs whose stage was reused.
-- first_epoch: The first of them.
-- last_epoch: The last of them.
-- first_at: When the first of those computations began; null where nobody noted it.
-- last_at: When the last of them began.
-- seconds: Wall time of those computations in all; null where nobody noted it.
WITH newest AS (
    SELECT *
    FROM stage_runs
    WHERE state = 'cached'
    QUALIFY row_number() OVER (PARTITION BY run_id, epoch, stage ORDER BY attempt DESC) = 1
)
SELECT
    run_id,
    arm,
    stage,
    computed_by,
    computed_root,
    count(*) AS epochs,
    min(epoch) AS first_epoch,
    max(epoch) AS last_epoch,
    min(computed_at) AS first_at,
    max(computed_at) AS last_at,
    sum(computed_seconds) AS seconds
FROM newest
GROUP BY run_id, arm, stage, computed_by, computed_root
