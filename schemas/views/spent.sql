-- What has each run spent by the end of an epoch: attempts, optimizer steps, tokens?
-- Reads: epochs, traces, cost
-- Key: run_id, epoch
-- rollouts: Attempts at tasks, of this epoch and all before, evaluations left out.
-- steps: Optimizer steps of both policies, of this epoch and all before.
-- tokens: Tokens read as prompts (of several turns: the first) and sampled by pi_env for tasks and by pi_agent for attempts, of this epoch and all before. Updates pass over tokens that are counted here; evaluations cost every arm the same.
WITH attempts AS (
    SELECT run_id, epoch, count(*) AS rollouts FROM traces GROUP BY run_id, epoch
),
paid AS (
    SELECT run_id, epoch, sum(tokens) AS tokens
    FROM cost
    WHERE stage IN ('generate_tasks', 'rollout')
    GROUP BY run_id, epoch
)
SELECT
    e.run_id,
    e.arm,
    e.epoch,
    CAST(sum(coalesce(a.rollouts, 0)) OVER so_far AS BIGINT) AS rollouts,
    CAST(sum(e.grpo_steps + e.rwr_steps) OVER so_far AS BIGINT) AS steps,
    CAST(sum(coalesce(p.tokens, 0)) OVER so_far AS BIGINT) AS tokens
FROM epochs AS e
LEFT JOIN attempts AS a ON a.run_id = e.run_id AND a.epoch = e.epoch
LEFT JOIN paid AS p ON p.run_id = e.run_id AND p.epoch = e.epoch
WINDOW so_far AS (PARTITION BY e.run_id ORDER BY e.epoch)
