-- How was each trace judged, at a pool's task or at a benchmark's item, and which updates used it?
-- Reads: traces, scores, benchmark_items, update_samples
-- Key: run_id, trace_id
-- reward: R_agent of the attempt, 0 to 1; of a benchmark's item its score.
-- success: Whether the raw outcome is right; null where it could not be judged.
-- failure: What went wrong, of a benchmark's item why it is not valid; '' when nothing did.
-- benchmark: Name of the benchmark; null for a pool's task.
-- item: Id of the item in the benchmark; null for a pool's task.
-- category: Category, level or split of the item; null for a pool's task.
-- parts: How the benchmark's verdict came about, JSON object; null for a pool's task.
-- advantage: Reward relative to the group, the same in every update; null where no update used it.
-- agent_updates: Epochs whose agent update trained on it, as text; null when none did.
--
-- `scores` judges what pools hold, `benchmark_items` what a measurement attempted: no trace is in both.
WITH used AS (
    SELECT
        run_id,
        row_id,
        any_value(advantage) AS advantage,
        string_agg(CAST(epoch AS VARCHAR), ', ' ORDER BY epoch) AS epochs
    FROM update_samples
    WHERE policy = 'agent'
    GROUP BY run_id, row_id
)
SELECT
    r.*,
    coalesce(s.reward, b.score) AS reward,
    coalesce(s.success, b.valid) AS success,
    coalesce(s.failure, b.reason) AS failure,
    b.benchmark,
    b.item,
    b.category,
    b.parts,
    u.advantage,
    u.epochs AS agent_updates
FROM traces AS r
LEFT JOIN scores AS s ON s.run_id = r.run_id AND s.trace_id = r.trace_id
LEFT JOIN benchmark_items AS b ON b.run_id = r.run_id AND b.trace_id = r.trace_id
LEFT JOIN used AS u ON u.run_id = r.run_id AND u.row_id = r.trace_id
