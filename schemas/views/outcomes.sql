-- What came out of each run so far: its gain with interval, its curriculum, its cost?
-- Reads: runs, epochs, test_results, test_gains
-- Key: run_id
-- epochs: Finished epochs, epoch 0 left out.
-- planned: Epochs that the configuration asks for.
-- epoch: Newest finished epoch; null before the first one has ended.
-- measure: What start, value and gain are of: answer_probability, or sampled where that is unknown.
-- start: The measure on the test tasks before training.
-- value: The same of the newest finished epoch; null where that was not measured.
-- gain: Its difference to epoch 0, paired by task; null before epoch 1 has ended.
-- gain_low: Lower end of the 95 % interval of the gain; see test_gains.
-- gain_high: Upper end of that interval.
-- p_hat: Share of successes over the new tasks' rollouts of the newest epoch.
-- skill: p_hat above the chance of a guess, which alpha is the target of.
-- alpha: Target success rate of the agent.
-- k_min: Half-width of the difficulty band around alpha.
-- share_in_band: Share of the new tasks within k_min of alpha.
-- share_signal: Share of the new groups whose rewards differ, so that pi_agent learns from them.
-- seconds: Time at work on the finished epochs, in seconds, what came before epoch 1 left out; null without a stage history.
-- epochs_at_work: Finished epochs in which the run computed a stage itself. An epoch that was reused whole adds nothing to seconds, so seconds / epochs_at_work is the mean time of an epoch.
WITH worked AS (
    SELECT run_id, sum(seconds) AS seconds, count(*) FILTER (WHERE seconds > 0) AS epochs
    FROM epochs
    GROUP BY run_id
),
newest AS (
    FROM epochs QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY epoch DESC) = 1
),
before AS (
    SELECT run_id, measure, avg(value) AS start
    FROM test_results
    WHERE epoch = 0 AND measure IN ('answer_probability', 'sampled')
    GROUP BY run_id, measure
    -- As in `evidence`: the name that comes first in the alphabet has less noise.
    QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY measure) = 1
)
SELECT
    r.run_id,
    r.arm,
    coalesce(e.epoch, 0) AS epochs,
    r.epochs_planned AS planned,
    e.epoch,
    b.measure,
    b.start,
    CASE WHEN e.epoch IS NULL THEN b.start ELSE g.value END AS value,
    g.gain,
    g.gain_low,
    g.gain_high,
    e.p_hat,
    e.skill,
    CAST(r.config ->> '$.curriculum.alpha' AS DOUBLE) AS alpha,
    CAST(r.config ->> '$.curriculum.k_min' AS DOUBLE) AS k_min,
    e.share_in_band,
    1 - e.share_zero_signal AS share_signal,
    w.seconds,
    coalesce(w.epochs, 0) AS epochs_at_work
FROM runs AS r
LEFT JOIN newest AS e ON e.run_id = r.run_id
LEFT JOIN worked AS w ON w.run_id = r.run_id
LEFT JOIN before AS b ON b.run_id = r.run_id
LEFT JOIN test_gains AS g
    ON g.run_id = r.run_id AND g.epoch = e.epoch AND g.measure = b.measure
