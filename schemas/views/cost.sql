-- What did each stage of an epoch cost, for every rollout kept and every task accepted?
-- Reads: stage_runs, tasks, traces, evaluations, update_samples, influence, d_train, benchmark_items
-- Key: run_id, epoch, stage
-- attempts: Tries of the stage that did not find it done already.
-- seconds: Wall time of those tries; a try that was killed counts nothing. 0 when the stage was reused from another run. Stages that ran side by side count twice in a sum.
-- compute_seconds: Part of it spent in the stage's own computation.
-- tokens: Tokens that the stage read as prompts (of several turns: the first) and sampled; for evaluate those that it sampled, 0 where an earlier evaluation of the same agent stands; for an update those of the rows it drew (for rwr_update also those that only its KL was along), once, however often it passed over them, and those read for `grpo.attribution`; those of its probe are not stored. Null for stages without a model. A sum over stages counts a row once where it was sampled and again in each update that drew it, so it is larger than the tokens of `spent`, which the page of a run shows.
-- rows: Rows that the stage wrote.
-- bytes: Bytes that it wrote, checkpoints included.
-- kept_rollouts: Rollouts of the epoch that were admitted to D_train.
-- accepted_tasks: Generations of the epoch that became tasks.
-- seconds_per_kept_rollout: Seconds of the stage for each of them; null without any, as below.
-- tokens_per_kept_rollout: Tokens of the stage for each of them.
-- bytes_per_kept_rollout: Bytes of the stage for each of them.
-- seconds_per_accepted_task: Seconds of the stage for each accepted task.
-- tokens_per_accepted_task: Tokens of the stage for each accepted task.
-- bytes_per_accepted_task: Bytes of the stage for each accepted task.
WITH stages AS (
    SELECT
        run_id,
        arm,
        epoch,
        stage,
        count(*) FILTER (WHERE state <> 'cached') AS attempts,
        coalesce(sum(seconds) FILTER (WHERE state <> 'cached'), 0) AS seconds,
        coalesce(sum(compute_seconds) FILTER (WHERE state <> 'cached'), 0) AS compute_seconds,
        -- Every finished attempt names all that the stage wrote; the last one counts.
        arg_max(rows, attempt) FILTER (WHERE state IN ('computed', 'cached')) AS rows,
        arg_max(bytes, attempt) FILTER (WHERE state IN ('computed', 'cached')) AS bytes
    FROM stage_runs
    GROUP BY run_id, arm, epoch, stage
),
generations_of_tasks AS (
    -- A generation that holds several tasks was paid for once.
    -- A teacher's has no id.
    SELECT DISTINCT
        run_id,
        epoch,
        source,
        generation_index,
        generation_id,
        env_prompt_tokens + generation_tokens AS tokens
    FROM tasks
    WHERE generation_id IS NOT NULL OR env_prompt_tokens + generation_tokens > 0
),
measured AS (
    SELECT run_id, epoch, sum(tokens) AS tokens FROM influence GROUP BY run_id, epoch
),
tokens AS (
    SELECT run_id, epoch, 'generate_tasks' AS stage, sum(tokens) AS tokens
    FROM generations_of_tasks
    GROUP BY run_id, epoch
    UNION ALL
    SELECT run_id, epoch, 'rollout' AS stage, sum(prompt_tokens + response_tokens) AS tokens
    FROM traces
    GROUP BY run_id, epoch
    UNION ALL
    SELECT
        run_id,
        epoch,
        'evaluate' AS stage,
        coalesce(
            sum(response_tokens) FILTER (WHERE coalesce(measured_epoch, epoch) = epoch), 0
        ) AS tokens
    FROM evaluations
    GROUP BY run_id, epoch
    UNION ALL
    SELECT b.run_id, r.epoch, 'benchmark' AS stage, sum(r.prompt_tokens + r.response_tokens) AS tokens
    FROM benchmark_items AS b
    INNER JOIN traces AS r ON r.run_id = b.run_id AND r.trace_id = b.trace_id
    GROUP BY b.run_id, r.epoch
    UNION ALL
    SELECT
        u.run_id,
        u.epoch,
        'grpo_update' AS stage,
        sum(r.prompt_tokens + r.response_tokens) + coalesce(any_value(m.tokens), 0) AS tokens
    FROM update_samples AS u
    INNER JOIN traces AS r ON r.run_id = u.run_id AND r.trace_id = u.row_id
    LEFT JOIN measured AS m ON m.run_id = u.run_id AND m.epoch = u.epoch
    WHERE u.policy = 'agent'
    GROUP BY u.run_id, u.epoch
    UNION ALL
    SELECT u.run_id, u.epoch, 'rwr_update' AS stage, sum(g.tokens) AS tokens
    FROM update_samples AS u
    INNER JOIN generations_of_tasks AS g ON g.run_id = u.run_id AND g.generation_id = u.row_id
    WHERE u.policy = 'env'
    GROUP BY u.run_id, u.epoch
),
kept AS (
    SELECT run_id, epoch, count(*) AS rollouts FROM d_train GROUP BY run_id, epoch
),
accepted AS (
    SELECT run_id, epoch, count(*) AS tasks
    FROM tasks
    WHERE valid AND source NOT IN ('base', 'validation', 'test', 'benchmark')
    GROUP BY run_id, epoch
),
counted AS (
    SELECT
        s.*,
        CAST(t.tokens AS BIGINT) AS tokens,
        coalesce(k.rollouts, 0) AS kept_rollouts,
        coalesce(a.tasks, 0) AS accepted_tasks
    FROM stages AS s
    LEFT JOIN tokens AS t ON t.run_id = s.run_id AND t.epoch = s.epoch AND t.stage = s.stage
    LEFT JOIN kept AS k ON k.run_id = s.run_id AND k.epoch = s.epoch
    LEFT JOIN accepted AS a ON a.run_id = s.run_id AND a.epoch = s.epoch
)
SELECT
    run_id,
    arm,
    epoch,
    stage,
    attempts,
    seconds,
    compute_seconds,
    tokens,
    rows,
    bytes,
    kept_rollouts,
    accepted_tasks,
    seconds / nullif(kept_rollouts, 0) AS seconds_per_kept_rollout,
    tokens / nullif(kept_rollouts, 0) AS tokens_per_kept_rollout,
    bytes / nullif(kept_rollouts, 0) AS bytes_per_kept_rollout,
    seconds / nullif(accepted_tasks, 0) AS seconds_per_accepted_task,
    tokens / nullif(accepted_tasks, 0) AS tokens_per_accepted_task,
    bytes / nullif(accepted_tasks, 0) AS bytes_per_accepted_task
FROM counted
