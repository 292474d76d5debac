-- Does pi_env hit the target alpha, by task family, and is the ranking of tasks by R_env more than noise at this n?
-- Reads: task_scores, tasks, settings
-- Key: run_id, epoch, scope, family
-- scope: `epoch` for all new tasks of the epoch together, `family` for those of one family.
-- family: The task family; null for scope `epoch`.
-- tasks: New tasks attempted.
-- n: Mean attempts at a task.
-- p_hat: Share of successes over all attempts.
-- wilson_low: Lower end of the 95 % Wilson interval of p_hat. It takes all attempts for independent, so it speaks about these very tasks, not about what pi_env would write next.
-- wilson_high: Upper end of that interval.
-- design_effect: How many times larger the variance of p_hat is than independent attempts would make it, because attempts at one task are alike; at least 1. Null for a single task.
-- cluster_low: Lower end of the 95 % interval that is honest about this clustering: Wilson's, at attempts / design_effect. It speaks about tasks such as these. Null for a single task.
-- cluster_high: Upper end of that interval.
-- chance: Mean chance of a guess over the attempts; 0 where nothing can be guessed.
-- alpha_inside: Whether the success rate of the skill alpha, chance + (1 - chance) alpha, is inside the clustered interval; null for a single task.
-- ranked_pairs: Pairs of tasks whose own p_hat give different R_env, so that one ranks above the other.
-- rank_noise: Mean probability, over those pairs, that n fresh attempts at both tasks would reverse the order; a tie counts half. 0 is a sure ranking, 0.5 a coin. Null without pairs.
--
-- Wilson interval: E. B. Wilson, JASA 22 (1927). Design effect: variance of a ratio estimate under
-- one-stage cluster sampling, over that of simple random sampling (Kish, Survey Sampling, 1965,
-- ch. 5 and 6); all attempts alike leave it undefined, and then each task counts as one attempt.
-- Interval at the effective sample size: Korn and Graubard, Survey Methodology 24 (1998).
-- rank_noise: fresh successes k' of a task that had k of n are beta-binomial, the posterior
-- predictive under Jeffreys' prior Beta(1/2, 1/2); only |skill - alpha| decides the order by R_env.
WITH judged AS (
    SELECT
        g.run_id,
        g.arm,
        g.epoch,
        t.family,
        g.n,
        g.successes,
        coalesce(t.chance, 0) AS guess,
        s.alpha
    FROM task_scores AS g
    INNER JOIN tasks AS t ON t.run_id = g.run_id AND t.task_id = g.task_id
    INNER JOIN settings AS s ON s.run_id = g.run_id
    WHERE g.source <> 'base'
),
scoped AS (
    SELECT *, 'epoch:' AS scope_key FROM judged
    UNION ALL
    SELECT *, 'family:' || family AS scope_key FROM judged WHERE family IS NOT NULL
),
pooled AS (
    SELECT
        run_id,
        arm,
        epoch,
        scope_key,
        count(*) AS tasks,
        sum(n) AS attempts,
        sum(successes) AS hits,
        sum(successes) / sum(n) AS p_hat,
        sum(n * guess) / sum(n) AS chance,
        any_value(alpha) AS alpha,
        -- Sums of the variance of a ratio: sum of (k - p n)^2 is sum k^2 - 2 p sum k n + p^2 sum n^2.
        sum(successes * successes) AS kk,
        sum(successes * n) AS kn,
        sum(n * n) AS nn
    FROM scoped
    GROUP BY run_id, arm, epoch, scope_key
),
clustered AS (
    SELECT
        *,
        CASE
            WHEN tasks = 1 THEN NULL
            WHEN hits = 0 OR hits = attempts THEN attempts / tasks
            ELSE greatest(
                1,
                tasks / (tasks - 1)
                * (kk - 2 * p_hat * kn + p_hat * p_hat * nn)
                / (attempts * p_hat * (1 - p_hat))
            )
        END AS design_effect
    FROM pooled
),
sized AS (
    SELECT
        *,
        attempts / design_effect AS effective,
        1.959963984540054 AS z
    FROM clustered
),
centred AS (
    SELECT
        *,
        (p_hat + z * z / (2 * attempts)) / (1 + z * z / attempts) AS centre,
        z * sqrt(p_hat * (1 - p_hat) / attempts + z * z / (4 * attempts * attempts))
            / (1 + z * z / attempts) AS half,
        (p_hat + z * z / (2 * effective)) / (1 + z * z / effective) AS wide_centre,
        z * sqrt(p_hat * (1 - p_hat) / effective + z * z / (4 * effective * effective))
            / (1 + z * z / effective) AS wide_half
    FROM sized
),
observed AS (
    -- Tasks with equal (n, k) are equal here. Distances are rounded so that 3/8 and 5/8 tie, and
    -- from 100 attempts on to hundredths, so that the grid below stays small.
    SELECT
        run_id,
        epoch,
        scope_key,
        n,
        successes AS k,
        guess,
        round(
            abs(greatest(0, (successes / n - guess) / (1 - guess)) - alpha),
            CASE WHEN n > 100 THEN 2 ELSE 9 END
        ) AS distance,
        count(*) AS held
    FROM scoped
    GROUP BY run_id, epoch, scope_key, n, k, guess, distance, alpha
),
outcomes AS (
    SELECT DISTINCT o.n, o.k, f.fresh
    FROM (SELECT DISTINCT n, k FROM observed) AS o, unnest(range(o.n + 1)) AS f (fresh)
),
predictive AS (
    SELECT
        *,
        exp(
            lgamma(n + 1) - lgamma(fresh + 1) - lgamma(n - fresh + 1)
            + lgamma(k + fresh + 0.5) + lgamma(2 * n - k - fresh + 0.5) - lgamma(2 * n + 1)
            - lgamma(k + 0.5) - lgamma(n - k + 0.5) + lgamma(n + 1)
        ) AS likely
    FROM outcomes
),
expected AS (
    -- Expected number of tasks at a distance now and at another one in fresh attempts.
    SELECT
        o.run_id,
        o.epoch,
        o.scope_key,
        o.distance,
        round(
            abs(greatest(0, (q.fresh / q.n - o.guess) / (1 - o.guess)) - a.alpha),
            CASE WHEN q.n > 100 THEN 2 ELSE 9 END
        ) AS fresh_distance,
        sum(o.held * q.likely) AS mass
    FROM observed AS o
    INNER JOIN settings AS a ON a.run_id = o.run_id
    INNER JOIN predictive AS q ON q.n = o.n AND q.k = o.k
    GROUP BY ALL
),
grid AS (
    -- Every pair of distances, so that the sums along both axes below see all of them.
    SELECT d.run_id, d.epoch, d.scope_key, d.distance, f.fresh_distance, coalesce(e.mass, 0) AS mass
    FROM (SELECT DISTINCT run_id, epoch, scope_key, distance FROM expected) AS d
    INNER JOIN (SELECT DISTINCT run_id, epoch, scope_key, fresh_distance FROM expected) AS f
        USING (run_id, epoch, scope_key)
    LEFT JOIN expected AS e
        USING (run_id, epoch, scope_key, distance, fresh_distance)
),
nearer AS (
    SELECT
        *,
        sum(mass) OVER (
            PARTITION BY run_id, epoch, scope_key, distance ORDER BY fresh_distance
        ) - mass / 2 AS below
    FROM grid
),
reversed AS (
    -- Tasks that ranked lower and would now rank higher than one at this fresh distance.
    SELECT
        *,
        sum(below) OVER (
            PARTITION BY run_id, epoch, scope_key, fresh_distance ORDER BY distance DESC
        ) - below AS rivals
    FROM nearer
),
flips AS (
    SELECT run_id, epoch, scope_key, sum(mass * rivals) AS expected_flips
    FROM reversed
    GROUP BY run_id, epoch, scope_key
),
ranked AS (
    SELECT
        run_id,
        epoch,
        scope_key,
        CAST((sum(held) * sum(held) - sum(held * held)) / 2 AS BIGINT) AS pairs
    FROM (
        SELECT run_id, epoch, scope_key, distance, sum(held) AS held
        FROM observed
        GROUP BY run_id, epoch, scope_key, distance
    )
    GROUP BY run_id, epoch, scope_key
)
SELECT
    c.run_id,
    c.arm,
    c.epoch,
    split_part(c.scope_key, ':', 1) AS scope,
    nullif(substr(c.scope_key, strpos(c.scope_key, ':') + 1), '') AS family,
    c.tasks,
    c.attempts / c.tasks AS n,
    c.alpha,
    c.p_hat,
    greatest(0, c.centre - c.half) AS wilson_low,
    least(1, c.centre + c.half) AS wilson_high,
    c.design_effect,
    -- greatest and least pass over nulls, so they stand inside.
    c.wide_centre - least(c.wide_half, c.wide_centre) AS cluster_low,
    c.wide_centre + least(c.wide_half, 1 - c.wide_centre) AS cluster_high,
    c.chance,
    c.chance + (1 - c.chance) * c.alpha BETWEEN cluster_low AND cluster_high AS alpha_inside,
    r.pairs AS ranked_pairs,
    f.expected_flips / nullif(r.pairs, 0) AS rank_noise
FROM centred AS c
INNER JOIN ranked AS r USING (run_id, epoch, scope_key)
INNER JOIN flips AS f USING (run_id, epoch, scope_key)
