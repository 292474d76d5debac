-- What was pi_env asked, what did it write, and what became of that?
-- Reads: tasks, contexts, task_scores, decisions, uses
-- Key: run_id, task_id
-- epoch: Epoch that produced the text.
-- task_id: Task that the text became, or that it was refused as.
-- asked: What pi_env, or a teacher, was asked: the texts of the messages, one below the other; null for runs that did not keep it.
-- n: Rollouts of the first group of the task; null when nobody attempted it.
-- successes: Rollouts that succeeded; null when nobody attempted it.
-- p_hat: Share of successes of that group, k / n; null when nobody attempted it.
-- weight: RWR weight of the generation in the first environment update that trained on it; null when none did.
-- env_updates: Epochs whose environment update trained on it, as text; null when none did.
--
-- A generation with several tasks has several rows. The tokens of the prompt, chat template and all, are generations.prompt_ids.
WITH attempted AS (
    -- A task of a set is attempted again when its window comes round.
    SELECT *
    FROM task_scores
    QUALIFY row_number() OVER (PARTITION BY run_id, task_id ORDER BY epoch, group_id) = 1
)
SELECT
    t.run_id,
    t.arm,
    t.epoch,
    t.source,
    t.task_id,
    t.generation_id,
    t.context_id,
    t.base_task_id,
    t.env_policy_version,
    array_to_string(json_extract_string(c.messages, '$[*].content'), chr(10)) AS asked,
    t.generation_text,
    t.program,
    t.prompt,
    t.ground_truth,
    t.family,
    t.difficulty,
    t.valid,
    t.rejection,
    t.rejection_detail,
    t.choice,
    g.n,
    g.successes,
    g.p_hat,
    g.r_env,
    d.env_reason,
    u.weight,
    array_to_string(u.updates, ', ') AS env_updates
FROM tasks AS t
LEFT JOIN contexts AS c ON c.run_id = t.run_id AND c.context_id = t.context_id
LEFT JOIN attempted AS g ON g.run_id = t.run_id AND g.task_id = t.task_id
LEFT JOIN decisions AS d ON d.run_id = g.run_id AND d.group_id = g.group_id
LEFT JOIN uses AS u
    ON u.run_id = t.run_id AND u.policy = 'env' AND u.row_id = t.generation_id
WHERE t.source IN ('generated', 'teacher')
