-- In which settings do the runs differ?
-- Reads: runs
-- Key: run_id, setting
-- setting: Name of a field of the configuration as --set takes it, such as rollout.n.
-- value: The run's value as JSON; a run whose configuration has no such field has no row.
--
-- A setting is here when two runs differ in it, whatever its name: the rows come from the stored
-- configurations themselves. A list is one value. The name of a run and its root are no settings.
WITH leaves AS (
    SELECT r.run_id, r.arm, substr(t.fullkey, 3) AS setting, CAST(t.value AS VARCHAR) AS value
    FROM runs AS r, json_tree(r.config) AS t
    WHERE t.type <> 'OBJECT' AND NOT contains(t.fullkey, '[')
),

counted AS (
    SELECT
        *,
        count(*) OVER (PARTITION BY setting) AS runs_with_it,
        count(DISTINCT value) OVER (PARTITION BY setting) AS different,
        count(DISTINCT run_id) OVER () AS runs
    FROM leaves
)

SELECT run_id, arm, setting, value
FROM counted
WHERE (different > 1 OR runs_with_it < runs) AND setting NOT IN ('run_id', 'root')
