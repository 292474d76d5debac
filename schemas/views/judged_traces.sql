-- How was each trace judged, at a pool's task or at a benchmark's item?
-- Reads: traces, scores, benchmark_items
-- Key: run_id, trace_id
-- reward: R_agent of the attempt, 0 to 1; of a benchmark's item its score.
-- success: Whether the raw outcome is right; null where it could not be judged.
-- failure: What went wrong, of a benchmark's item why it is not valid; '' when nothing did.
-- benchmark: Name of the benchmark; null for a pool's task.
-- item: Id of the item in the benchmark; null for a pool's task.
-- category: Category, level or split of the item; null for a pool's task.
-- parts: How the benchmark's verdict came about, JSON object; null for a pool's task.
--
-- `scores` judges what pools hold, `benchmark_items` what a measurement attempted: no trace is in both.
-- Which updates trained on a trace is in `uses`. To gather that takes longer than the verdict of a
-- few traces.
SELECT
    r.*,
    coalesce(s.reward, b.score) AS reward,
    coalesce(s.success, b.valid) AS success,
    coalesce(s.failure, b.reason) AS failure,
    b.benchmark,
    b.item,
    b.category,
    b.parts
FROM traces AS r
LEFT JOIN scores AS s ON s.run_id = r.run_id AND s.trace_id = r.trace_id
LEFT JOIN benchmark_items AS b ON b.run_id = r.run_id AND b.trace_id = r.trace_id
