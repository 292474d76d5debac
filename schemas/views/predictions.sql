-- How good is the prediction that chooses the tasks, and what does pi_env write beside them?
-- Reads: tasks, task_scores
-- Key: run_id, epoch, choice
-- choice: `predicted` (near alpha), `random` (drawn by lot: what pi_env writes), `reserve` (attempted where groups without a signal are refilled), or `not_chosen`.
-- tasks: Tasks with this choice.
-- predicted_p: Mean predicted success rate; null in an epoch that had nothing to predict from.
-- predicted_sd: Mean standard deviation of the predictions.
-- p_hat: Share of successes over the attempts at them; null for tasks that nobody attempted.
-- bias: p_hat - predicted_p of the same tasks.
-- error: Root of the mean square of share of successes - prediction, task by task.
-- noise: The same if the prediction were right: its own deviation and that of n attempts. An error far above it says that the prediction is surer than it should be.
-- share_signal: Share of their groups whose rewards differ.
SELECT
    t.run_id,
    any_value(t.arm) AS arm,
    t.epoch,
    t.choice,
    count(*) AS tasks,
    avg(t.predicted_p) AS predicted_p,
    avg(t.predicted_sd) AS predicted_sd,
    sum(g.successes) / sum(g.n) AS p_hat,
    avg(g.p_hat - t.predicted_p) AS bias,
    sqrt(avg(pow(g.p_hat - t.predicted_p, 2))) AS error,
    sqrt(
        avg(
            pow(t.predicted_sd, 2)
            + (t.predicted_p * (1 - t.predicted_p) - pow(t.predicted_sd, 2)) / g.n
        )
    ) AS noise,
    avg(CAST(NOT g.zero_signal AS INTEGER)) AS share_signal
FROM tasks AS t
LEFT JOIN task_scores AS g
    ON g.run_id = t.run_id AND g.task_id = t.task_id AND g.epoch = t.epoch
WHERE t.choice IS NOT NULL
GROUP BY t.run_id, t.epoch, t.choice
