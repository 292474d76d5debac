-- What was rejected and why, and how often in each epoch?
-- Reads: tasks, selections
-- Key: run_id, epoch, kept_from, rejection
-- epoch: Epoch of the decision.
-- kept_from: What the rows are missing from: `tasks` (a generation became no task), or the update `agent` or `env` (a task's group of rollouts may not be used by it). A generation that became no task is counted once, under `tasks`; a task that was not chosen is not rejected, and one that pi_env did not write is not rejected from its update.
-- rejection: The reason. `unparseable`: the domain reads no task in pi_env's text. `out_of_range`: a number in it, or its length, is outside of what the domain allows. `inconsistent`: its parts contradict each other, so it has no one answer. `truncated`: the text reached the limit of tokens before its end. `duplicate`: it equals a task that came before it in the same epoch. `duplicate_of_history`: it equals a task of an earlier epoch, of as many as `generation.history_epochs` says. `in_heldout`: it equals a validation or test task. `contaminated`: it is an item of a benchmark, or too much like one. `engine_error`: the engine failed while it sampled the text. `leaks_answer`: the request says the expected answer, or a part of it that has to be worked out. `rejects_ground_truth`: the expected answer does not succeed. `accepts_trivial`: an empty, constant, incomplete or echoed answer succeeds. `accepts_canary`: a text that answers nothing succeeds. `unsteady_verdict`: one and the same transcript gets different verdicts. `unknown_tool`: the right answer calls a tool that does not exist. `unreachable`: the domain's own attempt never succeeds. `ambiguous`: the domain's own attempt succeeds with some seeds of the environment alone. `leaks_early`: a tool says a part of the answer before the right calls were made. `below_band`: the agent solves it more than `curriculum.k_min` less often than alpha. `above_band`: the agent solves it more than `curriculum.k_min` more often than alpha. `zero_signal`: all its attempts got the same reward, so the group has no advantage. `incomplete_group`: not all of its attempts finished.
-- rejections: Rows rejected for this reason in the epoch.
-- share: Part of all the epoch's rows that were decided about, rejected or not; 0 to 1.
-- example_task_id: First such row.
-- example_detail: What exactly was wrong with it.
-- example_text: pi_env's text in it; the program of a task that pi_env did not write.
WITH decided AS (
    SELECT run_id, arm, epoch, task_id, 'tasks' AS kept_from, rejection, rejection_detail AS detail
    FROM tasks
    WHERE source NOT IN ('base', 'validation', 'test')
    UNION ALL
    SELECT
        run_id,
        arm,
        epoch,
        task_id,
        update AS kept_from,
        nullif(reason, 'kept') AS rejection,
        format('p_hat {:.4g}', p_hat) AS detail
    FROM selections
    WHERE reason NOT IN ('invalid_task', 'not_attempted', 'not_in_update')
),
counted AS (
    SELECT
        run_id,
        arm,
        epoch,
        kept_from,
        rejection,
        count(*) AS rejections,
        sum(count(*)) OVER (PARTITION BY run_id, epoch, kept_from) AS decisions,
        min(task_id) AS example_task_id,
        arg_min(detail, task_id) AS example_detail
    FROM decided
    GROUP BY run_id, arm, epoch, kept_from, rejection
)
SELECT
    c.run_id,
    c.arm,
    c.epoch,
    c.kept_from,
    c.rejection,
    c.rejections,
    c.rejections / c.decisions AS share,
    c.example_task_id,
    c.example_detail,
    coalesce(t.generation_text, t.program) AS example_text
FROM counted AS c
INNER JOIN tasks AS t ON t.run_id = c.run_id AND t.task_id = c.example_task_id
WHERE c.rejection IS NOT NULL
