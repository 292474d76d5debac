-- Which new tasks look as if pi_env were gaming its reward, and by what number?
-- Reads: certified, tasks, task_scores, scores, trace_tokens, traces
-- Key: run_id, epoch, reason, family, task_id
-- epoch: Epoch that produced the task, or the suspicious epoch.
-- reason: `near_duplicate`: the words of the request, in any order, are those of an earlier task of the run. `flaw`: its certificate names a flaw, and `generation.guard` was off. `by_chance`: one and the same text succeeded and failed on it. `constant_answer`: one and the same answer succeeded on tasks whose expected answers differ. `bimodal`: the epoch's tasks are solved always or never, half-way only on average. `length_drift`: answers to one family grew longer or shorter while its success stood still.
-- task_id: The suspicious task; null where the suspect is an epoch, or a family in it.
-- value: The number behind the suspicion. `near_duplicate`: how many earlier tasks have these words. `flaw`: how many flaws the certificate names. `by_chance`: always 1. `constant_answer`: for how many different expected answers one answer passed. `bimodal`: the share of tasks that were solved always or never. `length_drift`: how much the mean response length has changed since the family's first epoch, 0.5 is half as long again.
-- threshold: Value, without its sign, from which a row is listed.
-- detail: What to look at, for people.
--
-- The limits are judgements, not tests: a row is a reason to look, and desk, whose tasks are all of
-- one make, gives some. bimodal also asks that each end holds a fifth of at least 10 tasks;
-- length_drift for 50 rollouts at both ends and for success to differ by less than 0.1.
WITH new_tasks AS (
    SELECT
        run_id,
        arm,
        epoch,
        task_id,
        family,
        ground_truth,
        trim(regexp_replace(lower(prompt), '[^\p{L}\p{N}]+', ' ', 'g')) AS words,
        trim(regexp_replace(lower(ground_truth), '[^\p{L}\p{N}]+', ' ', 'g')) AS answer
    FROM tasks
    WHERE valid AND source NOT IN ('base', 'validation', 'test')
),
alike AS (
    -- Bucketed by the sorted words, so no task is compared with another.
    SELECT
        *,
        row_number() OVER bag - 1 AS earlier,
        first_value(task_id) OVER bag AS first_task_id
    FROM new_tasks
    WINDOW bag AS (
        PARTITION BY run_id, list_sort(string_split(words, ' ')) ORDER BY epoch, task_id
    )
),
near_duplicates AS (
    SELECT
        run_id, arm, epoch, 'near_duplicate' AS reason, task_id, family,
        CAST(earlier AS DOUBLE) AS value, CAST(1.0 AS DOUBLE) AS threshold,
        'same words as ' || first_task_id AS detail
    FROM alike
    WHERE earlier >= 1
),
unsound AS (
    SELECT
        run_id, arm, epoch, 'flaw' AS reason, task_id, family,
        CAST(flaws AS DOUBLE) AS value, CAST(1.0 AS DOUBLE) AS threshold, flaw AS detail
    FROM certified
    WHERE valid AND flaws > 0
    UNION ALL
    SELECT
        run_id, arm, epoch, 'by_chance' AS reason, task_id, family,
        CAST(1.0 AS DOUBLE) AS value, CAST(1.0 AS DOUBLE) AS threshold,
        format('{} of {} attempts succeeded', successes, n) AS detail
    FROM certified
    WHERE by_chance
),
passed AS (
    SELECT DISTINCT t.run_id, t.task_id, t.answer, hash(p.response_text) AS said
    FROM scores AS s
    INNER JOIN new_tasks AS t ON t.run_id = s.run_id AND t.task_id = s.task_id
    INNER JOIN trace_tokens AS p ON p.run_id = s.run_id AND p.trace_id = s.trace_id
    WHERE s.success
),
constants AS (
    SELECT run_id, said, count(DISTINCT answer) AS answers
    FROM passed
    GROUP BY run_id, said
    HAVING count(DISTINCT answer) >= 3
),
fooled AS (
    SELECT p.run_id, p.task_id, max(c.answers) AS answers
    FROM passed AS p
    INNER JOIN constants AS c ON c.run_id = p.run_id AND c.said = p.said
    GROUP BY p.run_id, p.task_id
),
constant_answers AS (
    SELECT
        t.run_id, t.arm, t.epoch, 'constant_answer' AS reason, t.task_id, t.family,
        CAST(f.answers AS DOUBLE) AS value, CAST(3.0 AS DOUBLE) AS threshold,
        format('an answer that passed here passed for {} expected answers', f.answers) AS detail
    FROM fooled AS f
    INNER JOIN new_tasks AS t ON t.run_id = f.run_id AND t.task_id = f.task_id
),
ends AS (
    SELECT
        run_id,
        arm,
        epoch,
        count(*) AS tasks,
        avg(CASE WHEN successes = 0 THEN 1 ELSE 0 END) AS never,
        avg(CASE WHEN successes = n THEN 1 ELSE 0 END) AS always
    FROM task_scores
    WHERE source <> 'base'
    GROUP BY run_id, arm, epoch
),
bimodal AS (
    SELECT
        run_id, arm, epoch, 'bimodal' AS reason, CAST(NULL AS VARCHAR) AS task_id,
        CAST(NULL AS VARCHAR) AS family, never + always AS value, CAST(0.75 AS DOUBLE) AS threshold,
        format('{:.0f} % never solved, {:.0f} % always', 100 * never, 100 * always) AS detail
    FROM ends
    WHERE tasks >= 10 AND never >= 0.2 AND always >= 0.2 AND never + always >= 0.75
),
lengths AS (
    SELECT
        s.run_id,
        s.arm,
        s.epoch,
        t.family,
        avg(r.response_tokens) AS tokens,
        avg(CASE WHEN s.success THEN 1 ELSE 0 END) AS p_hat
    FROM scores AS s
    INNER JOIN traces AS r ON r.run_id = s.run_id AND r.trace_id = s.trace_id
    INNER JOIN new_tasks AS t ON t.run_id = s.run_id AND t.task_id = s.task_id
    WHERE t.family IS NOT NULL
    GROUP BY s.run_id, s.arm, s.epoch, t.family
    HAVING count(*) >= 50
),
since_first AS (
    SELECT
        *,
        first_value(tokens) OVER older AS tokens_first,
        first_value(p_hat) OVER older AS p_hat_first,
        first_value(epoch) OVER older AS epoch_first
    FROM lengths
    WINDOW older AS (PARTITION BY run_id, family ORDER BY epoch)
),
drifts AS (
    SELECT
        run_id, arm, epoch, 'length_drift' AS reason, CAST(NULL AS VARCHAR) AS task_id, family,
        tokens / tokens_first - 1 AS value, CAST(0.25 AS DOUBLE) AS threshold,
        format(
            'epoch {} to {}: {:.1f} to {:.1f} tokens, success {:.2f} to {:.2f}',
            epoch_first, epoch, tokens_first, tokens, p_hat_first, p_hat
        ) AS detail
    FROM since_first
    WHERE tokens_first > 0
        AND abs(tokens / tokens_first - 1) >= 0.25
        AND abs(p_hat - p_hat_first) < 0.1
)
FROM near_duplicates
UNION ALL
FROM unsound
UNION ALL
FROM constant_answers
UNION ALL
FROM bimodal
UNION ALL
FROM drifts
