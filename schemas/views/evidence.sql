-- What says whether an epoch is to be believed: its gain with interval, its signal, its weights, its target?
-- Reads: epochs, task_scores, tasks, test_gains, updates, calibration, fidelity
-- Key: run_id, epoch
-- distinct_tasks: Different new tasks attempted.
-- share_signal: Share of the new groups whose rewards differ, so that pi_agent learns from them.
-- skill: p_hat above the chance of a guess, which alpha is the target of.
-- alpha_inside: Whether the success rate of the skill alpha is inside the clustered 95 % interval of p_hat; see calibration.
-- measure: What the gain is of: answer_probability, or sampled where that is unknown.
-- value: The measure on the test tasks.
-- gain: Its difference to epoch 0, paired by task.
-- gain_low: Lower end of the 95 % interval of the gain; see test_gains.
-- gain_high: Upper end of that interval.
-- agent_rows: Attempts behind the agent's update.
-- env_rows: Generations behind pi_env's update.
-- weight_low: Smallest RWR weight.
-- weight_high: Largest RWR weight.
-- effective_rows: Effective sample size of the RWR weights; see updates.
-- fidelity: Mean fidelity of what pi_env said in the place of the tools; null where they were executed.
WITH attempted AS (
    SELECT g.run_id, g.epoch, count(DISTINCT t.fingerprint) AS distinct_tasks
    FROM task_scores AS g
    INNER JOIN tasks AS t ON t.run_id = g.run_id AND t.task_id = g.task_id
    WHERE g.source <> 'base'
    GROUP BY g.run_id, g.epoch
),
gains AS (
    SELECT *
    FROM test_gains
    WHERE measure IN ('answer_probability', 'sampled')
    -- The name that comes first in the alphabet is also the one with less noise.
    QUALIFY row_number() OVER (PARTITION BY run_id, epoch ORDER BY measure) = 1
)
SELECT
    e.run_id,
    e.arm,
    e.epoch,
    coalesce(d.distinct_tasks, 0) AS distinct_tasks,
    1 - e.share_zero_signal AS share_signal,
    e.p_hat,
    e.skill,
    c.alpha,
    c.alpha_inside,
    g.measure,
    g.value,
    g.gain,
    g.gain_low,
    g.gain_high,
    a.rows AS agent_rows,
    v.rows AS env_rows,
    v.weight_low,
    v.weight_high,
    v.effective_rows,
    f.fidelity
FROM epochs AS e
LEFT JOIN attempted AS d ON d.run_id = e.run_id AND d.epoch = e.epoch
LEFT JOIN calibration AS c
    ON c.run_id = e.run_id AND c.epoch = e.epoch AND c.scope = 'epoch'
LEFT JOIN gains AS g ON g.run_id = e.run_id AND g.epoch = e.epoch
LEFT JOIN updates AS a ON a.run_id = e.run_id AND a.epoch = e.epoch AND a.policy = 'agent'
LEFT JOIN updates AS v ON v.run_id = e.run_id AND v.epoch = e.epoch AND v.policy = 'env'
LEFT JOIN fidelity AS f ON f.run_id = e.run_id AND f.epoch = e.epoch
