-- How far is each run that measures a model: items with a verdict, of all that there are?
-- Reads: runs, benchmark_metrics, certified_sets
-- Key: run_id
-- items: Items of the benchmark, or tasks of the set, that have a verdict; 0 before the first result.
-- of_items: All items of the benchmark or the set; null before the first result.
WITH results AS (
    SELECT run_id, items, items + not_run AS of_items
    FROM benchmark_metrics
    WHERE headline
    UNION ALL
    SELECT run_id, n AS items, n AS of_items
    FROM certified_sets
    WHERE name = 'any_flaw'
)
SELECT r.run_id, r.arm, coalesce(f.items, 0) AS items, f.of_items
FROM runs AS r
LEFT JOIN results AS f ON f.run_id = r.run_id
WHERE coalesce(r.config ->> '$.benchmark.model', r.config ->> '$.benchmark.url') IS NOT NULL
