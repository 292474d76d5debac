-- What is each agent's result on each test task, by measure?
-- Reads: evaluations
-- Key: run_id, epoch, task_id, measure
-- measure: `answer_probability` (no sampling noise), `sampled` or `greedy`.
-- value: Mean over the task's attempts: success, or the probability of the reference answer.
SELECT run_id, arm, epoch, task_id, mode AS measure, avg(CAST(success AS INTEGER)) AS value
FROM evaluations
WHERE split = 'test'
GROUP BY ALL
UNION ALL
SELECT run_id, arm, epoch, task_id, 'answer_probability' AS measure, avg(answer_probability) AS value
FROM evaluations
WHERE split = 'test' AND answer_probability IS NOT NULL
GROUP BY ALL
