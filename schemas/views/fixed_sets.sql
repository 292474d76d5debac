-- Where does pi_env only choose among tasks that are there, and how many of them has the run played?
-- Reads: runs, task_domains, tasks, task_scores
-- Key: run_id, domain
-- domain: Name of the domain in the run.
-- tasks: Tasks of the set that may be trained on; held-out ones are not among them.
-- played: Different ones of them that pi_agent has attempted, base tasks too.
WITH sets AS (
    SELECT
        run_id,
        arm,
        unnest(map_entries(CAST(CAST(fixed_tasks AS JSON) AS MAP(VARCHAR, BIGINT)))) AS one
    FROM runs
    WHERE fixed_tasks IS NOT NULL
),
attempted AS (
    SELECT d.run_id, d.domain, count(DISTINCT t.fingerprint) AS played
    FROM task_domains AS d
    INNER JOIN tasks AS t ON t.run_id = d.run_id AND t.task_id = d.task_id
    INNER JOIN task_scores AS g ON g.run_id = d.run_id AND g.task_id = d.task_id
    GROUP BY d.run_id, d.domain
)
SELECT
    s.run_id,
    s.arm,
    s.one.key AS domain,
    s.one.value AS tasks,
    coalesce(a.played, 0) AS played
FROM sets AS s
LEFT JOIN attempted AS a ON a.run_id = s.run_id AND a.domain = s.one.key
