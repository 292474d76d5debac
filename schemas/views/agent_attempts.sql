-- What did the agent say in each attempt, what was right, what did it earn, and which updates used it?
-- Reads: judged_traces, tasks, trace_tokens, uses, evaluations, evaluation_texts
-- Key: run_id, epoch, task_id, mode, sample_index
-- epoch: Epoch of the rollout, or whose agent was evaluated; 0 is the bootstrap.
-- source: Where the task comes from. `validation` and `test` are held-out tasks: attempts that nothing learns from.
-- mode: How a held-out task was attempted, `sampled` or `greedy`; null for a rollout, which is sampled.
-- group_id: Group of the rollout; null for a held-out task.
-- trace_id: Trace of the rollout; null for a held-out task, except where a benchmark was measured.
-- sample_index: Index among the attempts at the task, from 0.
-- response_text: What the agent said, all turns; null for held-out tasks of runs that did not keep it.
-- success: Whether the raw outcome is right; null where it could not be judged.
-- reward: R_agent of the attempt, 0 to 1; of a benchmark's item its score.
-- error: What broke the attempt; '' when nothing did, null for a held-out task.
-- finish_reason: Why the last completion ended; null for a held-out task.
-- turns: Completions that the agent gave; null for a held-out task.
-- tool_calls: Tool calls that the agent made; null for a held-out task.
-- advantage: Reward relative to the group, the same in every update; null where no update used it.
-- agent_updates: Epochs whose agent update trained on it, as text; null when none did.
--
-- Rollouts of base tasks and held-out attempts are here too: say WHERE source = 'generated' for the
-- attempts at what pi_env wrote.
WITH made AS (
    SELECT
        r.run_id,
        r.arm,
        r.epoch,
        CAST(NULL AS VARCHAR) AS mode,
        r.task_id,
        r.group_id,
        r.trace_id,
        r.sample_index,
        r.policy_version,
        k.response_text,
        r.success,
        r.reward,
        r.failure,
        r.error,
        r.cause,
        r.finish_reason,
        r.turns,
        r.tool_calls,
        r.response_tokens,
        u.advantage,
        array_to_string(u.updates, ', ') AS agent_updates
    FROM judged_traces AS r
    LEFT JOIN trace_tokens AS k ON k.run_id = r.run_id AND k.trace_id = r.trace_id
    LEFT JOIN uses AS u
        ON u.run_id = r.run_id AND u.policy = 'agent' AND u.row_id = r.trace_id
    UNION ALL BY NAME
    SELECT
        e.run_id,
        e.arm,
        e.epoch,
        e.mode,
        e.task_id,
        e.sample_index,
        e.policy_version,
        x.response_text,
        e.success,
        e.reward,
        e.failure,
        e.response_tokens
    FROM evaluations AS e
    LEFT JOIN evaluation_texts AS x
        ON x.run_id = e.run_id
        AND x.epoch = e.epoch
        AND x.split = e.split
        AND x.mode = e.mode
        AND x.task_id = e.task_id
        AND x.sample_index = e.sample_index
)
SELECT
    m.run_id,
    m.arm,
    m.epoch,
    t.source,
    m.mode,
    m.task_id,
    m.group_id,
    m.trace_id,
    m.sample_index,
    m.policy_version,
    t.family,
    t.difficulty,
    t.prompt,
    t.ground_truth,
    m.response_text,
    m.success,
    m.reward,
    m.failure,
    m.error,
    m.cause,
    m.finish_reason,
    m.turns,
    m.tool_calls,
    m.response_tokens,
    m.advantage,
    m.agent_updates
FROM made AS m
LEFT JOIN tasks AS t ON t.run_id = m.run_id AND t.task_id = m.task_id
