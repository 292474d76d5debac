-- The questions of README.md and docs/sql.md, in their order: `genenv view` offers them in its console.
-- A question is a comment line that ends in a question mark, and the statement below it.

-- How did the tasks change?
SELECT run_id, epoch, p_hat, r_env, share_in_band, difficulty, response_tokens
FROM curriculum
ORDER BY ALL;

-- How do the agent's attempts fail, and what does each failure look like?
SELECT run_id, failure, sum(attempts) AS n, min(example_trace_id) AS example
FROM failures
GROUP BY ALL
ORDER BY run_id, n DESC;

-- Which rows made the agent's newest checkpoint?
SELECT run_id, row_id, source, row_epoch, advantage
FROM lineage
WHERE policy = 'agent'
QUALIFY rank() OVER (PARTITION BY run_id ORDER BY epoch DESC) = 1;

-- Is pi_env gaming its reward?
SELECT run_id, epoch, reason, count(*) AS n, max(value) AS worst, min(detail) AS example
FROM suspects
GROUP BY ALL
ORDER BY ALL;

-- What if alpha were 0.4?
SELECT run_id, epoch, avg(r_env_played) AS played, avg(r_env) AS r_env, count(*) FILTER (env_reason = 'kept') AS kept
FROM what_if(alpha := 0.4)
GROUP BY ALL
ORDER BY ALL;

-- What did the agent say where it was wrong, and what was right?
SELECT run_id, family, difficulty, response_text, ground_truth, failure, advantage, agent_updates
FROM agent_attempts
WHERE source = 'generated' AND NOT success LIMIT 5;

-- Was an answer judged wrong that says the expected one?
SELECT run_id, source, count(*) AS failed, count(*) FILTER (said = expected) AS equal, count(*) FILTER (contains(said, expected)) AS holds_it
FROM (SELECT run_id, source, regexp_replace(lower(response_text), '[^\p{L}\p{N}]', '', 'g') AS said, regexp_replace(lower(ground_truth), '[^\p{L}\p{N}]', '', 'g') AS expected FROM agent_attempts WHERE NOT success)
GROUP BY ALL
ORDER BY ALL;

-- Which held-out task does the last agent still fail, and with which answer?
SELECT run_id, task_id, prompt, response_text, ground_truth
FROM agent_attempts
WHERE source = 'test' AND mode = 'greedy'
QUALIFY rank() OVER (PARTITION BY run_id ORDER BY epoch DESC) = 1 AND NOT success
ORDER BY run_id, task_id LIMIT 5;

-- How long are right and wrong attempts, in a run and in a measurement?
SELECT run_id, benchmark, success, count(*) AS attempts, avg(turns) AS turns, avg(response_tokens) AS tokens
FROM judged_traces
GROUP BY ALL
ORDER BY ALL;

-- Which tool fails most?
SELECT run_id, name, count(*) AS made, avg(failed::INT) AS failed, avg((NOT well_formed)::INT) AS unreadable
FROM calls
GROUP BY ALL
ORDER BY run_id, failed DESC;

-- What was pi_env asked, and what did it answer?
SELECT run_id, epoch, asked, generation_text, p_hat, weight
FROM env_texts
ORDER BY run_id, epoch, task_id LIMIT 5;

-- Which tasks were nearest to alpha?
SELECT run_id, epoch, prompt, successes, n
FROM near_alpha
ORDER BY distance, run_id, epoch LIMIT 5;

-- What did pi_env write that became no task?
SELECT run_id, epoch, rejection, rejections, example_text
FROM rejections
WHERE kept_from = 'tasks'
ORDER BY ALL;

-- Does pi_env repeat itself?
SELECT run_id, epoch, texts, texts_repeated, repeats, similarity
FROM repeats
ORDER BY run_id, epoch;

-- How did the test tasks move that resemble what pi_env wrote?
SELECT run_id, epoch, program, test_program, test_similarity, test_gain
FROM lookalikes
ORDER BY test_similarity DESC, run_id, task_id LIMIT 10;

-- Which families of tasks taught the agent most?
SELECT run_id, epoch, family, attempts, groups, alignment, alignment_mean, alignment_se, share
FROM taught
ORDER BY run_id, epoch, alignment DESC;

-- Which single tasks taught it most?
SELECT run_id, i.epoch, share, family, prompt
FROM influence AS i JOIN tasks USING (run_id, task_id)
ORDER BY run_id, share DESC LIMIT 10;

-- Which checkpoints were trained on the oldest row?
SELECT run_id, checkpoint, epoch, policy
FROM lineage
WHERE row_id = (SELECT min(trace_id) FROM d_train JOIN update_samples AS u ON u.run_id = d_train.run_id AND row_id = trace_id);

-- How much better is the agent than at the start, and how sure is that?
SELECT run_id, epoch, measure, start, value, gain, gain_low, gain_high
FROM test_gains
ORDER BY run_id, measure, epoch;

-- With which settings did each run play?
SELECT run_id, fullkey, atom
FROM runs, json_tree(config)
WHERE atom IS NOT NULL
ORDER BY ALL;

-- How long did each stage of a run take, the start included?
SELECT run_id, stage, sum(seconds) AS seconds, sum(tokens) AS tokens, max(peak_memory) / 1e9 AS gb
FROM stage_runs
GROUP BY ALL
ORDER BY run_id, seconds DESC;

-- What did pi_env write that nobody solved?
SELECT run_id, tasks.epoch, task_id, program, n
FROM tasks JOIN task_scores USING (run_id, task_id)
WHERE tasks.source = 'generated' AND successes = 0
ORDER BY ALL;

-- How did attempts at equal tasks go from epoch to epoch?
SELECT run_id, fingerprint, epoch, occasion, p_hat, p_hat_before
FROM task_history
ORDER BY run_id, fingerprint, occasion
LIMIT 10;

-- How many rows were behind each update, and how different were their weights?
SELECT run_id, epoch, policy, rows, new_rows, history_rows, weight_low, weight_high, effective_rows
FROM updates
ORDER BY run_id, epoch, policy;

-- With n attempts a task, is pi_env's ranking of tasks more than noise?
SELECT run_id, epoch, alpha, p_hat, cluster_low, cluster_high, rank_noise
FROM calibration
WHERE scope = 'epoch'
ORDER BY run_id, epoch;

-- How many sequences do attempts have whose conversation began anew, and how many tokens in each?
SELECT run_id, sequence, count(*) AS attempts, avg(len(prompt_ids)) AS prompt, avg(list_sum(loss_mask)) AS sampled
FROM trace_sequences
GROUP BY ALL
ORDER BY ALL;

-- From which sequence of its attempt was each further one made, and at which turn did it leave it?
SELECT run_id, trace_id, sequence, parent, branch_turn, turn
FROM trace_sequences
ORDER BY run_id, trace_id, sequence
LIMIT 10;

-- What does a kept rollout cost?
SELECT run_id, stage, avg(seconds_per_kept_rollout) AS s, avg(tokens_per_kept_rollout) AS tokens
FROM cost
GROUP BY ALL
ORDER BY run_id, s DESC;

-- What does a group that teaches the agent cost, epoch by epoch?
SELECT run_id, epoch, groups, sum(seconds) / groups AS seconds, sum(tokens) / groups AS tokens
FROM cost JOIN (SELECT run_id, epoch, count(*) AS groups FROM task_scores WHERE NOT zero_signal GROUP BY ALL) USING (run_id, epoch)
WHERE stage NOT IN ('evaluate', 'benchmark')
GROUP BY run_id, epoch, groups
ORDER BY ALL;
