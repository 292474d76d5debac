-- The questions of README.md and docs/sql.md, in their order: `genenv view` offers them in its console.
-- A question is a comment line that ends in a question mark, and the statement below it.

-- How did the tasks change?
SELECT epoch, p_hat, r_env, share_in_band, difficulty, response_tokens
FROM curriculum
ORDER BY ALL;

-- How do the agent's attempts fail, and what does each failure look like?
SELECT failure, sum(attempts) AS n, min(example_trace_id) AS example
FROM failures
GROUP BY 1
ORDER BY n DESC;

-- Which rows made the agent's newest checkpoint?
SELECT row_id, source, row_epoch, advantage
FROM lineage
WHERE policy = 'agent' AND epoch = (SELECT max(epoch) FROM lineage WHERE policy = 'agent');

-- Is pi_env gaming its reward?
SELECT epoch, reason, count(*) AS n, max(value) AS worst, min(detail) AS example
FROM suspects
GROUP BY 1, 2
ORDER BY 1, 2;

-- What if alpha were 0.4?
SELECT epoch, avg(r_env_played) AS played, avg(r_env) AS r_env, count(*) FILTER (env_reason = 'kept') AS kept
FROM what_if(alpha := 0.4)
GROUP BY epoch
ORDER BY epoch;

-- What did the agent say where it was wrong, and what was right?
SELECT family, difficulty, response_text, ground_truth, failure, advantage, agent_updates
FROM agent_attempts
WHERE source = 'generated' AND NOT success LIMIT 5;

-- Was an answer judged wrong that says the expected one?
SELECT source, count(*) AS failed, count(*) FILTER (said = expected) AS equal, count(*) FILTER (contains(said, expected)) AS holds_it
FROM (SELECT source, regexp_replace(lower(response_text), '[^\p{L}\p{N}]', '', 'g') AS said, regexp_replace(lower(ground_truth), '[^\p{L}\p{N}]', '', 'g') AS expected FROM agent_attempts WHERE NOT success)
GROUP BY source
ORDER BY source;

-- Which held-out task does the last agent still fail, and with which answer?
SELECT prompt, response_text, ground_truth
FROM agent_attempts
WHERE source = 'test' AND mode = 'greedy' AND NOT success
ORDER BY epoch DESC, task_id LIMIT 5;

-- Which tool fails most?
SELECT name, count(*) AS made, avg(failed::INT) AS failed, avg((NOT well_formed)::INT) AS unreadable
FROM calls
GROUP BY name
ORDER BY failed DESC;

-- What was pi_env asked, and what did it answer?
SELECT epoch, asked, generation_text, p_hat, weight
FROM env_texts
ORDER BY epoch, task_id LIMIT 5;

-- Which tasks were nearest to alpha?
SELECT epoch, prompt, successes, n
FROM near_alpha
ORDER BY distance, epoch LIMIT 5;

-- What did pi_env write that became no task?
SELECT epoch, rejection, rejections, example_text
FROM rejections
WHERE kept_from = 'tasks'
ORDER BY ALL;

-- Does pi_env repeat itself?
SELECT epoch, avg(similarity) AS similarity, avg((similarity >= 0.9)::INT) AS nearly_equal
FROM tasks
WHERE source = 'generated' AND valid
GROUP BY epoch
ORDER BY epoch;

-- How did the test tasks move that resemble what pi_env wrote?
SELECT epoch, program, test_program, test_similarity, test_gain
FROM lookalikes
ORDER BY test_similarity DESC, task_id LIMIT 10;

-- Which checkpoints were trained on the oldest row?
SELECT checkpoint, epoch, policy
FROM lineage
WHERE row_id = (SELECT min(trace_id) FROM d_train JOIN update_samples AS u ON u.run_id = d_train.run_id AND row_id = trace_id);

-- How much better is the agent than at the start, and how sure is that?
SELECT epoch, measure, start, value, gain, gain_low, gain_high
FROM test_gains
ORDER BY measure, epoch;

-- How many rows were behind each update, and how different were their weights?
SELECT epoch, policy, rows, new_rows, history_rows, weight_low, weight_high, effective_rows
FROM updates
ORDER BY epoch, policy;

-- With n attempts a task, is pi_env's ranking of tasks more than noise?
SELECT epoch, alpha, p_hat, cluster_low, cluster_high, rank_noise
FROM calibration
WHERE scope = 'epoch'
ORDER BY epoch;

-- What does a kept rollout cost?
SELECT stage, avg(seconds_per_kept_rollout) AS s, avg(tokens_per_kept_rollout) AS tokens
FROM cost
GROUP BY stage
ORDER BY s DESC;
