-- Which new tasks are sound, by their certificates and by their attempts?
-- Reads: certificates, tasks, task_scores, scores, trace_tokens, test_results
-- Key: run_id, task_id
-- checks: Flaws that were looked for before any attempt.
-- flaws: How many of them were found; with `generation.guard` such a task is refused.
-- flaw: Their names, '' when none was found.
-- reachable: Whether a right answer can be given: by the domain's own attempt, or by one of the agent's; null when neither can say.
-- separating: Whether some attempts succeeded and some failed; null when there are none.
-- by_chance: Whether one and the same text succeeded and failed; null when there are no attempts.
-- improving: Sampled success on test tasks of its family in the last epoch, less that before the task's epoch; null when there are none.
-- sound: No flaw was found, and no attempt speaks against it.
--
-- A flaw is found before any attempt; the other columns say what only attempts can. `improving` is
-- of the whole family and for all that the agent learned since: it separates families that teach
-- something from those that do not.
WITH checked AS (
    SELECT
        run_id,
        arm,
        epoch,
        task_id,
        count(*) AS checks,
        count(*) FILTER (NOT passed) AS flaws,
        coalesce(string_agg(flaw, ', ' ORDER BY flaw) FILTER (NOT passed), '') AS flaw,
        bool_or(passed) FILTER (flaw = 'unreachable') AS solved
    FROM certificates
    GROUP BY run_id, arm, epoch, task_id
),
attempts AS (
    SELECT
        run_id,
        task_id,
        CAST(sum(n) AS BIGINT) AS n,
        CAST(sum(successes) AS BIGINT) AS successes
    FROM task_scores
    GROUP BY run_id, task_id
),
verdicts AS (
    SELECT s.run_id, s.task_id, count(DISTINCT s.success) AS verdicts
    FROM scores AS s
    INNER JOIN trace_tokens AS p ON p.run_id = s.run_id AND p.trace_id = s.trace_id
    WHERE s.failure <> 'error'  -- an attempt that was cut short was not judged
    GROUP BY s.run_id, s.task_id, hash(p.response_text)
),
chance AS (
    SELECT run_id, task_id, max(verdicts) > 1 AS by_chance FROM verdicts GROUP BY run_id, task_id
),
families AS (
    SELECT r.run_id, r.epoch, t.family, avg(r.value) AS success
    FROM test_results AS r
    INNER JOIN tasks AS t ON t.run_id = r.run_id AND t.task_id = r.task_id
    WHERE r.measure = 'sampled'
    GROUP BY r.run_id, r.epoch, t.family
),
latest AS (
    SELECT run_id, family, max(epoch) AS epoch, arg_max(success, epoch) AS success
    FROM families
    GROUP BY run_id, family
)
SELECT
    c.run_id,
    c.arm,
    c.epoch,
    c.task_id,
    t.source,
    t.family,
    t.valid,
    t.choice,
    c.checks,
    c.flaws,
    c.flaw,
    a.n,
    a.successes,
    CASE WHEN c.solved OR a.successes > 0 THEN true WHEN NOT c.solved THEN false END AS reachable,
    a.successes BETWEEN 1 AND a.n - 1 AS separating,
    h.by_chance,
    l.success - f.success AS improving,
    c.flaws = 0 AND NOT coalesce(h.by_chance, false) AS sound
FROM checked AS c
INNER JOIN tasks AS t ON t.run_id = c.run_id AND t.task_id = c.task_id
LEFT JOIN attempts AS a ON a.run_id = c.run_id AND a.task_id = c.task_id
LEFT JOIN chance AS h ON h.run_id = c.run_id AND h.task_id = c.task_id
LEFT JOIN families AS f ON f.run_id = c.run_id AND f.family = t.family AND f.epoch = c.epoch - 1
LEFT JOIN latest AS l ON l.run_id = c.run_id AND l.family = t.family AND l.epoch >= c.epoch
