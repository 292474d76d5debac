-- How did each model do on each benchmark?
-- Reads: benchmark_metrics, runs
-- Key: run_id, metric
-- model: What was measured: a checkpoint, or the name of a model and its endpoint.
-- points: The metric, in points of 100.
-- low: Lower end of its 95 % bootstrap interval over items, in points.
-- high: Upper end of that interval, in points.
SELECT
    m.run_id,
    m.arm,
    m.benchmark,
    coalesce(
        r.config ->> '$.benchmark.model',
        (r.config ->> '$.benchmark.model_name') || ' at ' || (r.config ->> '$.benchmark.url')
    ) AS model,
    m.metric,
    m.headline,
    m.items,
    m.not_run,
    100 * m.value AS points,
    100 * m.low AS low,
    100 * m.high AS high,
    r.started_at
FROM benchmark_metrics AS m
INNER JOIN runs AS r ON r.run_id = m.run_id
