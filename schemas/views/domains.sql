-- How did each domain of a run do in each epoch, in what was written, attempted and measured?
-- Reads: task_domains, tasks, task_scores, selections, settings, evaluations, test_results
-- Key: run_id, epoch, domain
-- domain: Name of the domain in the run; a run of one domain has one row an epoch.
-- written: Texts of pi_env, or of a teacher, for this domain.
-- valid: Those that became tasks.
-- tasks: New tasks attempted; base tasks count in base_tasks alone.
-- attempts: Rollouts of them.
-- base_tasks: Base tasks attempted beside them.
-- p_hat: Share of successes over those rollouts.
-- skill: p_hat above the chance of a guess; p_hat itself where nothing can be guessed.
-- predicted_p: Mean predicted success rate of the new tasks attempted; null without predictions.
-- share_in_band: Share of the new tasks with |skill - alpha| <= k_min, at the configured level.
-- share_signal: Share of the new tasks whose rewards differ.
-- difficulty: Mean difficulty of the new tasks, by the domain's own measure, which does not compare with another domain's.
-- test_tasks: Test tasks of the domain that were measured.
-- sampled: Share of sampled attempts at them that succeed.
-- greedy: The same of greedy attempts.
-- answer_probability: Mean probability of the reference answer.
-- validation: Share of sampled attempts at validation tasks that succeed.
WITH texts AS (
    SELECT
        d.run_id,
        d.epoch,
        d.domain,
        count(*) AS written,
        count(*) FILTER (WHERE t.valid) AS valid
    FROM task_domains AS d
    INNER JOIN tasks AS t ON t.run_id = d.run_id AND t.task_id = d.task_id
    WHERE d.source IN ('generated', 'teacher')
    GROUP BY d.run_id, d.epoch, d.domain
),
attempted AS (
    SELECT
        g.run_id,
        g.epoch,
        d.domain,
        count(*) FILTER (WHERE g.source <> 'base') AS tasks,
        CAST(sum(g.n) FILTER (WHERE g.source <> 'base') AS BIGINT) AS attempts,
        count(*) FILTER (WHERE g.source = 'base') AS base_tasks,
        sum(g.successes) FILTER (WHERE g.source <> 'base')
            / sum(g.n) FILTER (WHERE g.source <> 'base') AS p_hat,
        sum(g.n * coalesce(t.chance, 0)) FILTER (WHERE g.source <> 'base')
            / sum(g.n) FILTER (WHERE g.source <> 'base') AS chance,
        avg(t.predicted_p) FILTER (WHERE g.source <> 'base') AS predicted_p,
        -- The tolerance of genenv_core.algorithm.selection.
        avg(CAST(x.distance <= s.k_min + 1e-9 AS DOUBLE)) FILTER (WHERE g.source <> 'base')
            AS share_in_band,
        avg(CAST(NOT g.zero_signal AS DOUBLE)) FILTER (WHERE g.source <> 'base') AS share_signal,
        avg(t.difficulty) FILTER (WHERE g.source <> 'base') AS difficulty
    FROM task_scores AS g
    INNER JOIN task_domains AS d ON d.run_id = g.run_id AND d.task_id = g.task_id
    INNER JOIN tasks AS t ON t.run_id = g.run_id AND t.task_id = g.task_id
    LEFT JOIN settings AS s ON s.run_id = g.run_id
    LEFT JOIN selections AS x
        ON x.run_id = g.run_id AND x.group_id = g.group_id AND x.update = 'env'
    GROUP BY g.run_id, g.epoch, d.domain
),
tested AS (
    SELECT
        m.run_id,
        m.epoch,
        d.domain,
        count(DISTINCT m.task_id) AS test_tasks,
        avg(m.value) FILTER (WHERE m.measure = 'sampled') AS sampled,
        avg(m.value) FILTER (WHERE m.measure = 'greedy') AS greedy,
        avg(m.value) FILTER (WHERE m.measure = 'answer_probability') AS answer_probability
    FROM test_results AS m
    INNER JOIN task_domains AS d ON d.run_id = m.run_id AND d.task_id = m.task_id
    GROUP BY m.run_id, m.epoch, d.domain
),
validated AS (
    SELECT
        v.run_id,
        v.epoch,
        d.domain,
        avg(CAST(v.success AS INTEGER)) AS validation
    FROM evaluations AS v
    INNER JOIN task_domains AS d ON d.run_id = v.run_id AND d.task_id = v.task_id
    WHERE v.split = 'validation'
    GROUP BY v.run_id, v.epoch, d.domain
),
places AS (
    SELECT run_id, epoch, domain FROM texts
    UNION
    SELECT run_id, epoch, domain FROM attempted
    UNION
    SELECT run_id, epoch, domain FROM tested
)
SELECT
    p.run_id,
    r.arm,
    p.epoch,
    p.domain,
    w.written,
    w.valid,
    a.tasks,
    a.attempts,
    a.base_tasks,
    a.p_hat,
    -- As genenv_core.algorithm.chance has it; greatest() alone would make 0 of null.
    CASE WHEN a.p_hat IS NOT NULL THEN greatest(0, (a.p_hat - a.chance) / (1 - a.chance)) END
        AS skill,
    a.predicted_p,
    a.share_in_band,
    a.share_signal,
    a.difficulty,
    m.test_tasks,
    m.sampled,
    m.greedy,
    m.answer_probability,
    v.validation
FROM places AS p
INNER JOIN settings AS r ON r.run_id = p.run_id
LEFT JOIN texts AS w ON w.run_id = p.run_id AND w.epoch = p.epoch AND w.domain = p.domain
LEFT JOIN attempted AS a ON a.run_id = p.run_id AND a.epoch = p.epoch AND a.domain = p.domain
LEFT JOIN tested AS m ON m.run_id = p.run_id AND m.epoch = p.epoch AND m.domain = p.domain
LEFT JOIN validated AS v ON v.run_id = p.run_id AND v.epoch = p.epoch AND v.domain = p.domain
