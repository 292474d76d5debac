-- What went wrong in the agent's attempts, whose failure was it, and how often in each epoch?
-- Reads: scores, traces
-- Key: run_id, epoch, cause, failure
-- cause: `agent`, whose failures are verdicts; `environment`, `engine` and `run` broke the others, which count nowhere else.
-- failure: What the domain says went wrong; `error` where the attempt was cut short.
-- attempts: Rollouts that failed in this way, of new and base tasks.
-- share: Part of all the epoch's rollouts, failed or not, that this is; 0 to 1.
-- tasks: Different tasks among them.
-- truncated: Those whose last completion was cut for its length.
-- response_tokens: Mean tokens that the agent sampled in them.
-- example_trace_id: First such rollout.
-- example_task_id: Task that it attempted.
-- example_error: What broke it; '' when it ran to its end.
WITH made AS (
    SELECT r.*, s.success, coalesce(r.cause, 'agent') AS whose, coalesce(s.failure, 'error') AS what
    FROM traces AS r
    LEFT JOIN scores AS s ON s.run_id = r.run_id AND s.trace_id = r.trace_id
    WHERE s.trace_id IS NOT NULL OR r.cause <> 'agent'
),
counted AS (
    SELECT run_id, epoch, count(*) AS rollouts
    FROM traces
    GROUP BY run_id, epoch
)
SELECT
    m.run_id,
    m.arm,
    m.epoch,
    m.whose AS cause,
    m.what AS failure,
    count(*) AS attempts,
    count(*) / any_value(c.rollouts) AS share,
    count(DISTINCT m.task_id) AS tasks,
    count(*) FILTER (WHERE m.finish_reason = 'length') AS truncated,
    avg(m.response_tokens) AS response_tokens,
    min(m.trace_id) AS example_trace_id,
    arg_min(m.task_id, m.trace_id) AS example_task_id,
    arg_min(m.error, m.trace_id) AS example_error
FROM made AS m
INNER JOIN counted AS c ON c.run_id = m.run_id AND c.epoch = m.epoch
WHERE NOT coalesce(m.success, false)
GROUP BY m.run_id, m.arm, m.epoch, m.whose, m.what
