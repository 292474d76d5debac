-- What went wrong in the agent's attempts, and how often in each epoch?
-- Reads: scores, traces
-- Key: run_id, epoch, failure
-- attempts: Rollouts that failed in this way, of new and base tasks.
-- share: Part of all the epoch's rollouts, failed or not, that this is; 0 to 1.
-- tasks: Different tasks among them.
-- truncated: Those whose last completion was cut for its length.
-- response_tokens: Mean tokens that the agent sampled in them.
-- example_trace_id: First such rollout.
-- example_task_id: Task that it attempted.
-- example_error: What broke it; '' when it ran to its end.
WITH counted AS (
    SELECT run_id, epoch, count(*) AS rollouts
    FROM scores
    GROUP BY run_id, epoch
)
SELECT
    s.run_id,
    s.arm,
    s.epoch,
    s.failure,
    count(*) AS attempts,
    count(*) / any_value(c.rollouts) AS share,
    count(DISTINCT s.task_id) AS tasks,
    count(*) FILTER (WHERE r.finish_reason = 'length') AS truncated,
    avg(r.response_tokens) AS response_tokens,
    min(s.trace_id) AS example_trace_id,
    arg_min(s.task_id, s.trace_id) AS example_task_id,
    arg_min(r.error, s.trace_id) AS example_error
FROM scores AS s
INNER JOIN traces AS r ON r.run_id = s.run_id AND r.trace_id = s.trace_id
INNER JOIN counted AS c ON c.run_id = s.run_id AND c.epoch = s.epoch
WHERE NOT s.success
GROUP BY s.run_id, s.arm, s.epoch, s.failure
