-- Which tools did the agent call, in which turn, with what, and what did they answer?
-- Reads: traces, trace_tokens
-- Key: run_id, trace_id, call
-- call: Index among the calls of the attempt, from 0; an attempt has as many as its `tool_calls`.
-- turn: Turn of the agent, from 0; null in attempts of older versions of genenv, which noted no calls.
-- call_in_turn: Index among the calls of the turn, from 0, in the order of their answers; null as `turn`.
-- name: Tool that the call names, or else its answer; null when neither does.
-- arguments: Arguments, JSON object; null when they cannot be read.
-- well_formed: Whether the call can be read; null where tools answered a text in which the domain finds no call.
-- written: The call as the agent wrote it, marks included.
-- answer: What the tool answered; null when nothing did.
-- failed: Whether the step failed or its answer begins with the word error; null without an answer.
--
-- Calls in examples that a prompt shows are not the agent's. Attempts at held-out tasks are in
-- evaluation_texts, whose messages have the same form.
WITH attempts AS (
    SELECT
        r.run_id,
        r.arm,
        r.epoch,
        r.task_id,
        r.trace_id,
        r.turns,
        r.tool_calls,
        -- A quotation mark in a text has a backslash before it, so only calls match.
        CASE WHEN contains(k.messages, '"span":[') THEN json_extract(k.messages, '$[*]') END AS named
    FROM traces AS r
    JOIN trace_tokens AS k ON k.run_id = r.run_id AND k.trace_id = r.trace_id
    WHERE r.tool_calls > 0
),
spoken AS (
    SELECT
        * EXCLUDE (named, tool_calls),
        unnest(named) AS message,
        generate_subscripts(named, 1) AS place
    FROM attempts
    WHERE named IS NOT NULL
),
own AS (
    SELECT
        *,
        -- Those before the last `turns` are part of the prompt.
        turns - row_number() OVER (PARTITION BY run_id, trace_id ORDER BY place DESC) AS turn
    FROM spoken
    WHERE json_extract_string(message, '$.role') = 'assistant'
),
made AS (
    SELECT
        * EXCLUDE (message),
        json_extract_string(message, '$.content') AS said,
        unnest(json_extract(message, '$.tool_calls[*]')) AS call,
        generate_subscripts(json_extract(message, '$.tool_calls[*]'), 1) - 1 AS call_in_turn
    FROM own
    WHERE turn >= 0
),
answers AS (
    SELECT
        run_id,
        trace_id,
        json_extract_string(message, '$.tool_call_id') AS id,
        json_extract_string(message, '$.content') AS answer,
        coalesce(CAST(json_extract_string(message, '$.error') AS BOOLEAN), false) AS broke
    FROM spoken
    WHERE json_extract_string(message, '$.tool_call_id') IS NOT NULL
),
call_fields AS (
    SELECT
        * EXCLUDE (call),
        json_extract_string(call, '$.id') AS id,
        json_extract_string(call, '$.function.name') AS named,
        json_extract_string(call, '$.function.arguments') AS given,
        CAST(json_extract_string(call, '$.well_formed') AS BOOLEAN) AS well_formed,
        CAST(json_extract(call, '$.span[0]') AS BIGINT) AS span_start,
        CAST(json_extract(call, '$.span[1]') AS BIGINT) AS span_end
    FROM made
)
SELECT
    t.run_id,
    t.arm,
    t.epoch,
    t.task_id,
    t.trace_id,
    row_number() OVER (PARTITION BY t.run_id, t.trace_id ORDER BY t.turn, t.call_in_turn) - 1
        AS call,
    t.turn,
    t.call_in_turn,
    nullif(t.named, '') AS name,
    CASE WHEN t.well_formed THEN t.given END AS arguments,
    t.well_formed,
    substring(t.said, t.span_start + 1, t.span_end - t.span_start) AS written,
    a.answer,
    a.broke OR lower(ltrim(a.answer)) LIKE 'error%' AS failed
FROM call_fields AS t
LEFT JOIN answers AS a ON a.run_id = t.run_id AND a.trace_id = t.trace_id AND a.id = t.id
UNION ALL BY NAME
SELECT run_id, arm, epoch, task_id, trace_id, unnest(range(tool_calls)) AS call
FROM attempts
WHERE named IS NULL
