-- How true was pi_env in the place of the tools, and how true is the one that the epoch made?
-- Reads: observations, checkpoints
-- Key: run_id, epoch
-- observations: Answers that pi_env gave in the epoch's attempts.
-- attempts: Attempts in which it gave them.
-- schema: Share of the answers that fit the domain's schema; 0 to 1.
-- state: Share of the answers of the same kind as the true one; 0 to 1.
-- content: Mean similarity to the true text, where both gave one; 0 to 1.
-- fidelity: Mean fidelity of all answers; the agent learned from them. gates.min_fidelity is its limit.
-- wrong: Answers whose fidelity is below 1.
-- candidate: Mean fidelity of the new pi_env, asked again at turns of this epoch; null where there is none.
-- candidate_se: Standard error of candidate.
-- candidate_gate: `open`, or the gate that closed in front of the new pi_env.
-- example_trace_id: First attempt with the least true answer.
-- example_turn: Turn of that answer.
-- example_said: What pi_env said there.
-- example_true: What the domain's own code says there.
--
-- An epoch without a row had no answer of pi_env: its tools were executed, or nobody called them.
WITH heard AS (
    SELECT *, row_number() OVER (PARTITION BY run_id, epoch ORDER BY fidelity, trace_id, turn) AS place
    FROM observations
)
SELECT
    h.run_id,
    h.arm,
    h.epoch,
    count(*) AS observations,
    count(DISTINCT h.trace_id) AS attempts,
    avg(CAST(h.fits_schema AS INTEGER)) AS schema,
    avg(CAST(h.same_state AS INTEGER)) AS state,
    avg(h.content_similarity) AS content,
    avg(h.fidelity) AS fidelity,
    count(*) FILTER (WHERE h.fidelity < 1) AS wrong,
    any_value(CAST(json_extract(c.metrics, '$.fidelity') AS DOUBLE)) AS candidate,
    any_value(CAST(json_extract(c.metrics, '$.fidelity_se') AS DOUBLE)) AS candidate_se,
    any_value(CASE WHEN c.steps > 0 THEN c.gate END) AS candidate_gate,
    any_value(h.trace_id) FILTER (WHERE h.place = 1 AND h.fidelity < 1) AS example_trace_id,
    any_value(h.turn) FILTER (WHERE h.place = 1 AND h.fidelity < 1) AS example_turn,
    any_value(h.said) FILTER (WHERE h.place = 1 AND h.fidelity < 1) AS example_said,
    any_value(h.true_content) FILTER (WHERE h.place = 1 AND h.fidelity < 1) AS example_true
FROM heard AS h
LEFT JOIN checkpoints AS c
    ON c.run_id = h.run_id AND c.epoch = h.epoch AND c.policy = 'env'
GROUP BY h.run_id, h.arm, h.epoch
