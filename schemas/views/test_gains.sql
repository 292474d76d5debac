-- How much better is the agent of each epoch on the test tasks than the one that the run began with?
-- Reads: test_results
-- Key: run_id, epoch, measure
-- measure: As in test_results.
-- tasks: Test tasks that both agents attempted.
-- value: Mean over the tasks: success, or the probability of the reference answer.
-- start: The same of the agent of epoch 0.
-- gain: value - start.
-- gain_se: Standard error of the gain: of the differences task by task, so what is hard for both cancels. Null for a single task.
-- gain_low: Lower end of the 95 % interval of the gain. It speaks about these weights on tasks such as these, not about another seed of the run.
-- gain_high: Upper end of that interval.
--
-- The interval is Student's t over the differences. Where every task is right or wrong under both
-- agents, one more task that only the first one solves and one that only the second one solves
-- count in it (Bonett and Price 2012), so it is no point where no verdict differs.
-- The .975 quantile of Student's t: from a table for 1 and 2 degrees of freedom, else by its
-- expansion in 1 / degrees (Abramowitz and Stegun, 26.7.5), off by 4e-3 at 3 degrees, 3e-4 at 5.
WITH paired AS (
    SELECT
        n.run_id,
        n.arm,
        n.epoch,
        n.measure,
        count(*) AS tasks,
        avg(n.value) AS value,
        avg(o.value) AS start,
        avg(n.value - o.value) AS gain,
        stddev_samp(n.value - o.value) / sqrt(count(*)) AS gain_se,
        sum((n.value - o.value) ** 2) AS squares,
        n.measure <> 'answer_probability' AND count(*) > 1
            AND bool_and(n.value - o.value IN (-1, 0, 1)) AS verdicts
    FROM test_results AS n
    INNER JOIN test_results AS o
        ON o.run_id = n.run_id AND o.task_id = n.task_id AND o.measure = n.measure AND o.epoch = 0
    WHERE n.epoch > 0
    GROUP BY n.run_id, n.arm, n.epoch, n.measure
),
centred AS (
    SELECT
        *,
        CASE WHEN verdicts THEN tasks * gain / (tasks + 2) ELSE gain END AS centre,
        CASE
            WHEN verdicts
                THEN sqrt(
                    (squares + 2 - (tasks * gain) ** 2 / (tasks + 2)) / ((tasks + 1) * (tasks + 2))
                )
            ELSE gain_se
        END AS se,
        CASE WHEN verdicts THEN tasks + 1 ELSE tasks - 1 END AS df,
        CAST(1.959963984540054 AS DOUBLE) AS z
    FROM paired
),
ranged AS (
    SELECT
        *,
        se * CASE df
            WHEN 1 THEN 12.706204736
            WHEN 2 THEN 4.302652730
            ELSE z
                + (z ** 3 + z) / (4 * df)
                + (5 * z ** 5 + 16 * z ** 3 + 3 * z) / (96 * df ** 2)
                + (3 * z ** 7 + 19 * z ** 5 + 17 * z ** 3 - 15 * z) / (384 * df ** 3)
                + (79 * z ** 9 + 776 * z ** 7 + 1482 * z ** 5 - 1920 * z ** 3 - 945 * z)
                / (92160 * df ** 4)
        END AS half
    FROM centred
)
SELECT
    run_id,
    arm,
    epoch,
    measure,
    tasks,
    value,
    start,
    gain,
    gain_se,
    CASE WHEN verdicts THEN greatest(-1, least(gain, centre - half)) ELSE gain - half END AS gain_low,
    CASE WHEN verdicts THEN least(1, greatest(gain, centre + half)) ELSE gain + half END AS gain_high
FROM ranged
