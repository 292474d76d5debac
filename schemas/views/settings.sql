-- With which settings did each run play, as columns instead of JSON?
-- Reads: runs
-- Key: run_id
-- seed: Seed of everything random.
-- alpha: Target success rate of the agent.
-- beta: Sharpness of R_env = exp(-beta (p_hat - alpha)^2).
-- k_min: Half-width of the difficulty band around alpha.
-- level: Where p_hat is judged: task, group or batch.
-- filter_agent: Whether the band also guards the agent update.
-- pay: What pi_env is paid for: alpha (R_env), learnability or signal.
-- lambda_: Temperature of the weight exp(lambda pay); `lambda` alone is a word of SQL.
-- track: How far the target of the RWR weights moves against the error of what pi_env wrote; 0 is off.
-- weight_by: `row` for the plain RWR weights, `family` for those divided by the size of their task family.
-- n: Attempts at each task that the configuration asks for.
-- refill: Groups of further tasks that replace those without a signal, at most; 0 is off.
--
-- These are the settings that other views and most questions read. The view differing_settings finds
-- by itself every one in which runs differ.
SELECT
    run_id,
    arm,
    CAST(config ->> '$.seed' AS BIGINT) AS seed,
    CAST(config ->> '$.curriculum.alpha' AS DOUBLE) AS alpha,
    CAST(config ->> '$.curriculum.beta' AS DOUBLE) AS beta,
    CAST(config ->> '$.curriculum.k_min' AS DOUBLE) AS k_min,
    config ->> '$.curriculum.level' AS level,
    CAST(config ->> '$.curriculum.filter_agent' AS BOOLEAN) AS filter_agent,
    coalesce(config ->> '$.rwr.pay', 'alpha') AS pay,
    CAST(config ->> '$.rwr.lambda' AS DOUBLE) AS lambda_,
    coalesce(CAST(config ->> '$.curriculum.track' AS DOUBLE), 0) AS track,
    coalesce(config ->> '$.rwr.weight_by', 'row') AS weight_by,
    CAST(config ->> '$.rollout.n' AS BIGINT) AS n,
    coalesce(CAST(config ->> '$.refill.groups' AS BIGINT), 0) AS refill
FROM runs
