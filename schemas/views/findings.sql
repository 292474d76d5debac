-- What is wrong with each run, or worth a look, in words?
-- Reads: runs, epochs, checkpoints, predictions, repeats, test_results, test_gains, updates, fidelity, task_scores, tasks, certificates, traces, stage_runs
-- Key: run_id, epoch, rule, subject
-- epoch: Epoch that shows it. A rule about the gain speaks of the newest epoch alone.
-- rule: Its name. Each rule with its threshold stands once, in this file.
-- subject: The policy, or the stage, that it is about; null where it is about the epoch.
-- severity: `failure`: the work stopped, or an epoch taught nothing. `warning`: something is likely wrong. `note`: worth a look.
-- value: The number behind it.
-- threshold: Value from which the rule says so.
-- words: What is wrong, in a sentence without its epoch.
-- advice: What to try.
-- query: The SELECT that shows what the words are about.
--
-- The thresholds are judgements, not tests. Epoch 1 is played with the first pi_env, which has learned
-- from nothing yet: too_easy, too_hard and no_signal begin with epoch 2.
-- Those of cut_off and broken are the ones of `genenv_core.epoch.trouble`, which warns while the
-- stage is at work; a test holds the two against each other.
WITH rules AS (
    FROM (
        VALUES
        ('stage_failed', 'failure', 1.0,
            'read the error, mend its cause, and continue with genenv resume',
            'SELECT stage, attempt, state, error FROM stage_runs WHERE run_id = {run} AND epoch = {epoch} ORDER BY started_at'),
        ('no_task', 'failure', 1.0,
            'read what pi_env writes; change the prompt of the domain or the section generation, or teach a given model first (warm_start.steps)',
            'SELECT rejection, rejections, example_text FROM rejections WHERE run_id = {run} AND epoch = {epoch} AND kept_from = ''tasks'''),
        ('broken', 'warning', 0.5,
            'look at one with genenv trace, and mend the domain, its tools or the engine; genenv domain check plays the domain without models',
            'SELECT cause, error, count(*) AS attempts FROM traces WHERE run_id = {run} AND epoch = {epoch} AND error <> '''' GROUP BY ALL ORDER BY attempts DESC'),
        ('lost', 'warning', 1.0,
            'look whose failure it was; an engine or an environment that dies often makes epochs smaller than asked for',
            'SELECT cause, failure, attempts, example_error FROM failures WHERE run_id = {run} AND epoch = {epoch} AND cause <> ''agent'''),
        ('cut_off', 'warning', 0.9,
            'raise rollout.max_tokens, max_turns or max_length, or see by genenv doctor --model which tokens end the turns of the agent',
            'SELECT finish_reason, count(*) AS attempts, avg(response_tokens) AS tokens FROM traces WHERE run_id = {run} AND epoch = {epoch} GROUP BY finish_reason'),
        ('few_valid', 'warning', 0.75,
            'read the commonest reason; teach pi_env longer, or raise generation.max_generations',
            'SELECT rejection, rejections, example_text FROM rejections WHERE run_id = {run} AND epoch = {epoch} AND kept_from = ''tasks'' ORDER BY rejections DESC'),
        ('few_tasks', 'warning', 0.5,
            'raise generation.max_generations, or find out why texts are rejected',
            'SELECT kept_from, rejection, rejections FROM rejections WHERE run_id = {run} AND epoch = {epoch}'),
        ('narrow', 'warning', 1.0,
            'raise generation.temperature or rwr.kl_coef',
            'SELECT prompt, count(*) AS tasks FROM tasks WHERE run_id = {run} AND epoch = {epoch} GROUP BY prompt ORDER BY tasks DESC LIMIT 20'),
        ('repeated', 'note', 0.5,
            'raise generation.temperature or rwr.kl_coef; texts that repeat a task cost tokens and teach nothing new',
            'SELECT epoch, written, written_repeated, repeats, similarity FROM repeats WHERE run_id = {run} ORDER BY epoch'),
        ('one_family', 'note', 1.0,
            'look at whether the agent is at alpha there alone; rwr.weight_by=family keeps rare families alive',
            'SELECT family, count(*) AS tasks FROM tasks WHERE run_id = {run} AND epoch = {epoch} AND valid GROUP BY family ORDER BY tasks DESC'),
        ('flawed', 'warning', 1.0,
            'switch generation.guard on, or mend the scoring of the domain',
            'SELECT task_id, flaw, detail FROM certificates WHERE run_id = {run} AND epoch = {epoch} AND NOT passed'),
        ('guessed', 'warning', 0.3,
            'ask for answers that are hard to guess: what a guess gets right pays pi_env and teaches nothing',
            'SELECT family, chance, p_hat, tasks FROM calibration WHERE run_id = {run} AND epoch = {epoch} AND scope = ''family'' ORDER BY chance DESC'),
        ('too_easy', 'warning', 1.0,
            'give pi_env more steps (rwr.steps) or more candidates to choose from (generation.candidates)',
            'SELECT epoch, skill, alpha, share_in_band, difficulty FROM curriculum WHERE run_id = {run} ORDER BY epoch'),
        ('too_hard', 'warning', 1.0,
            'teach the agent longer first (warm_start or bootstrap), or let pi_env begin with easier base tasks',
            'SELECT epoch, skill, alpha, share_in_band, difficulty FROM curriculum WHERE run_id = {run} ORDER BY epoch'),
        ('no_signal', 'warning', 0.75,
            'raise rollout.n, or generation.candidates so that more tasks near alpha can be chosen',
            'SELECT successes, n, count(*) AS groups FROM task_scores WHERE run_id = {run} AND epoch = {epoch} AND source <> ''base'' GROUP BY ALL ORDER BY ALL'),
        ('misjudged', 'warning', 0.25,
            'raise generation.random_share, so that more is known of tasks that were not chosen',
            'SELECT choice, tasks, predicted_p, p_hat, bias FROM predictions WHERE run_id = {run} AND epoch = {epoch}'),
        ('skipped', 'warning', 1.0,
            'read the reason: an update needs rows that the filter lets pass',
            'SELECT rejection, rejections FROM rejections WHERE run_id = {run} AND epoch = {epoch} AND kept_from <> ''tasks'''),
        ('one_row', 'warning', 0.5,
            'raise generation.tasks, rwr.window_epochs or curriculum.k_min, so that more rows share the update',
            'SELECT epoch, rows, effective_rows, weight_low, weight_high FROM updates WHERE run_id = {run} AND policy = ''env'' ORDER BY epoch'),
        ('rolled_back', 'warning', 1.0,
            'lower rwr.learning_rate or rwr.steps, or raise rwr.kl_coef',
            'SELECT epoch, env_action, env_note, kl_env FROM epochs WHERE run_id = {run} ORDER BY epoch'),
        ('far_from_start', 'warning', 1.0,
            'lower rwr.learning_rate or raise rwr.kl_coef; read what pi_env writes now',
            'SELECT epoch, kl_env, kl_env_se, env_action FROM epochs WHERE run_id = {run} ORDER BY epoch'),
        ('gate_closed', 'warning', 1.0,
            'lower the learning rate of the update if it happens again; the weights before it stand',
            'SELECT epoch, policy, gate, gate_detail FROM checkpoints WHERE run_id = {run} AND gate <> ''open'' ORDER BY epoch'),
        ('clipped', 'warning', 0.3,
            'lower grpo.learning_rate or grpo.passes',
            'SELECT epoch, CAST(metrics ->> ''$.clip_fraction'' AS DOUBLE) AS clip_fraction, CAST(metrics ->> ''$.ratio_max'' AS DOUBLE) AS ratio_max FROM checkpoints WHERE run_id = {run} AND policy = ''agent'' AND epoch > 0 ORDER BY epoch'),
        ('untrue', 'warning', 0.3,
            'let the domain answer its own tools, or teach pi_env their answers; see gates.min_fidelity',
            'SELECT epoch, fidelity, wrong, example_said, example_true FROM fidelity WHERE run_id = {run} ORDER BY epoch'),
        ('longer', 'warning', 2.0,
            'lower rollout.max_tokens, or look at what the agent says now',
            'SELECT epoch, response_tokens, response_tokens_p90, p_hat FROM curriculum WHERE run_id = {run} ORDER BY epoch'),
        ('worse', 'warning', 0.0,
            'lower grpo.learning_rate, or set gates.max_validation_drop; the best checkpoint has is_best in FROM checkpoints',
            'SELECT epoch, measure, start, value, gain, gain_low, gain_high FROM test_gains WHERE run_id = {run} ORDER BY measure, epoch'),
        ('fell_back', 'warning', 3.0,
            'take the checkpoint of the best epoch, or lower grpo.learning_rate',
            'SELECT epoch, measure, start, value, gain, gain_low, gain_high FROM test_gains WHERE run_id = {run} ORDER BY measure, epoch'),
        ('no_gain', 'note', 0.0,
            'play more epochs, measure more test tasks, or look at whether the tasks of pi_env resemble them',
            'SELECT epoch, measure, start, value, gain, gain_low, gain_high FROM test_gains WHERE run_id = {run} ORDER BY measure, epoch'),
        ('few_test_tasks', 'note', 0.1,
            'raise data.test_tasks: the interval narrows with the root of their number',
            'SELECT epoch, measure, tasks, gain, gain_low, gain_high FROM test_gains WHERE run_id = {run} ORDER BY measure, epoch')
    ) AS r (rule, severity, threshold, advice, query)
),
asked AS NOT MATERIALIZED (
    SELECT
        run_id,
        epochs_planned,
        arm <> 'base' AS trains_agent,
        arm = 'genenv' AS trains_env,
        CAST(config ->> '$.generation.tasks' AS BIGINT) AS tasks,
        CAST(config ->> '$.curriculum.alpha' AS DOUBLE) AS alpha,
        CAST(config ->> '$.curriculum.k_min' AS DOUBLE) AS k_min,
        CAST(config ->> '$.rwr.kl_cap' AS DOUBLE) AS kl_cap
    FROM runs
),
refused AS (
    SELECT run_id, epoch, mode(rejection) AS rejection
    FROM tasks
    WHERE NOT valid
    GROUP BY run_id, epoch
),
attempted AS (
    SELECT g.run_id, g.epoch, count(*) AS tasks, sum(g.n * coalesce(t.chance, 0)) / sum(g.n) AS chance
    FROM task_scores AS g
    INNER JOIN tasks AS t ON t.run_id = g.run_id AND t.task_id = g.task_id
    WHERE g.source <> 'base'
    GROUP BY g.run_id, g.epoch
),
-- The newest gain of each run. As in `evidence`: the measure that comes first in the alphabet has
-- less noise.
gains AS NOT MATERIALIZED (
    SELECT g.*, a.epochs_planned
    FROM test_gains AS g
    INNER JOIN asked AS a ON a.run_id = g.run_id
    WHERE g.measure IN ('answer_probability', 'sampled') AND a.trains_agent
    QUALIFY row_number() OVER (PARTITION BY g.run_id ORDER BY g.epoch DESC, g.measure) = 1
),
best AS (
    SELECT g.run_id, g.arm, g.epoch, g.measure, arg_max(b.epoch, b.value) AS best_epoch
    FROM gains AS g
    INNER JOIN test_gains AS b ON b.run_id = g.run_id AND b.measure = g.measure
    GROUP BY g.run_id, g.arm, g.epoch, g.measure
),
fallen AS (
    SELECT
        b.run_id,
        b.arm,
        b.epoch,
        b.measure,
        b.best_epoch,
        avg(o.value) AS best_value,
        avg(n.value) AS value,
        avg(o.value - n.value) / nullif(stddev_samp(o.value - n.value) / sqrt(count(*)), 0) AS errors
    FROM best AS b
    INNER JOIN test_results AS n
        ON n.run_id = b.run_id AND n.measure = b.measure AND n.epoch = b.epoch
    INNER JOIN test_results AS o
        ON o.run_id = b.run_id AND o.measure = b.measure AND o.epoch = b.best_epoch
        AND o.task_id = n.task_id
    WHERE b.best_epoch < b.epoch
    GROUP BY b.run_id, b.arm, b.epoch, b.measure, b.best_epoch
),
played AS (
    SELECT
        e.*,
        a.* EXCLUDE (run_id, tasks),
        a.tasks AS tasks_asked,
        coalesce(t.tasks, 0) AS tasks_attempted,
        r.rejection,
        t.chance,
        first_value(e.mean_response_tokens) OVER (PARTITION BY e.run_id ORDER BY e.epoch)
            AS first_tokens,
        g.gain_low
    FROM epochs AS e
    INNER JOIN asked AS a ON a.run_id = e.run_id
    LEFT JOIN attempted AS t ON t.run_id = e.run_id AND t.epoch = e.epoch
    LEFT JOIN refused AS r ON r.run_id = e.run_id AND r.epoch = e.epoch
    LEFT JOIN gains AS g ON g.run_id = e.run_id AND g.epoch = e.epoch
    WHERE e.epoch > 0
),
-- Each list holds what may be wrong with a row; a value of null says that the rule does not apply.
by_epoch AS (
    SELECT
        run_id,
        arm,
        epoch,
        unnest([
            {
                'rule': 'no_task', 'subject': CAST(NULL AS VARCHAR),
                'value': CASE WHEN tasks_generated > 0 AND tasks_valid = 0 THEN 1.0 END,
                'words': format(
                    'none of the {} texts of pi_env became a task; the commonest reason is {}',
                    tasks_generated, rejection
                )
            },
            {
                'rule': 'few_valid', 'subject': NULL,
                'value': CASE
                    WHEN tasks_generated >= 10 AND tasks_valid > 0
                        THEN 1 - tasks_valid / tasks_generated
                END,
                'words': format(
                    '{} of {} texts of pi_env became tasks; the commonest reason against one is {}',
                    tasks_valid, tasks_generated, rejection
                )
            },
            {
                'rule': 'few_tasks', 'subject': NULL,
                'value': CASE WHEN trains_agent THEN 1 - tasks_attempted / tasks_asked END,
                'words': format(
                    '{} new tasks were attempted where {} are asked for',
                    tasks_attempted, tasks_asked
                )
            },
            {
                -- One family alone may be where the agent is at alpha; repeated tasks are waste.
                'rule': if(
                    regexp_matches(tasks_note, 'different requests|there before|have the word'), 'narrow', 'one_family'
                ),
                'subject': NULL,
                'value': CASE WHEN tasks_note <> '' THEN 1.0 END,
                'words': regexp_replace(tasks_note, '^epoch [0-9]+: ', '')
            },
            {
                'rule': if(skill > alpha, 'too_easy', 'too_hard'), 'subject': NULL,
                'value': CASE
                    WHEN epoch > 1 AND tasks_attempted >= 10 THEN abs(skill - alpha) / nullif(k_min, 0)
                END,
                'words': format(
                    'the agent solves {:.0f} % of the new tasks{}, and alpha is {:.0f} %',
                    100 * skill, if(skill = p_hat, '', ' above chance'), 100 * alpha
                )
            },
            {
                'rule': 'guessed', 'subject': NULL, 'value': chance,
                'words': format('a guess is right in {:.0f} % of the attempts', 100 * chance)
            },
            {
                'rule': 'no_signal', 'subject': NULL,
                'value': CASE WHEN epoch > 1 AND trains_agent THEN share_zero_signal END,
                'words': format(
                    'all attempts have one reward in {:.0f} % of the groups: pi_agent learns '
                    || 'nothing from them', 100 * share_zero_signal
                )
            },
            {
                'rule': 'far_from_start', 'subject': 'env',
                'value': CASE WHEN trains_env THEN kl_env / kl_cap END,
                'words': format(
                    'the KL of pi_env to its start is {:.1f} nats, and its cap {:.1f}',
                    kl_env, kl_cap
                )
            },
            {
                'rule': 'longer', 'subject': NULL,
                'value': CASE
                    WHEN gain_low <= 0 THEN mean_response_tokens / nullif(first_tokens, 0)
                END,
                'words': format(
                    'the attempts grew from {:.0f} to {:.0f} tokens, and no gain is seen',
                    first_tokens, mean_response_tokens
                )
            }
        ], max_depth := 2)
    FROM played
),
by_attempts AS (
    SELECT
        run_id,
        arm,
        epoch,
        unnest([
            {
                'rule': 'broken', 'subject': CAST(NULL AS VARCHAR),
                'value': count(*) FILTER (error <> '') / count(*),
                'words': format(
                    '{} of {} attempts ended in an error: {}, the first of them {}',
                    count(*) FILTER (error <> ''), count(*),
                    left(mode(error) FILTER (error <> ''), 200), min(trace_id) FILTER (error <> '')
                )
            },
            {
                'rule': 'cut_off', 'subject': NULL,
                'value': count(*) FILTER (finish_reason = 'length') / count(*),
                'words': format(
                    '{} of {} attempts were cut off at a bound of their length',
                    count(*) FILTER (finish_reason = 'length'), count(*)
                )
            }
        ], max_depth := 2)
    FROM traces
    GROUP BY run_id, arm, epoch
),
by_gain AS (
    SELECT
        run_id,
        arm,
        epoch,
        unnest([
            {
                'rule': 'worse', 'subject': CAST(NULL AS VARCHAR),
                'value': CASE WHEN gain_high < 0 THEN -gain_high END,
                'words': format(
                    'the agent got worse: {} on the test tasks {:.3f} -> {:.3f}, [{:+.3f}, {:+.3f}]',
                    if(measure = 'sampled', 'success', 'P(answer)'), start, value, gain_low, gain_high
                )
            },
            {
                'rule': 'no_gain', 'subject': NULL,
                'value': CASE
                    WHEN gain_high >= 0 AND (epoch >= 5 OR epoch >= epochs_planned) THEN -gain_low
                END,
                'words': format(
                    'no gain is seen: {} on the test tasks {:+.3f}, and the interval '
                    || '[{:+.3f}, {:+.3f}] holds 0',
                    if(measure = 'sampled', 'success', 'P(answer)'), gain, gain_low, gain_high
                )
            },
            {
                'rule': 'few_test_tasks', 'subject': NULL,
                'value': (gain_high - gain_low) / 2,
                'words': format(
                    'the gain is known to ±{:.2f} only, by {} test tasks',
                    (gain_high - gain_low) / 2, tasks
                )
            }
        ], max_depth := 2)
    FROM gains
),
seen AS (
    FROM by_epoch
    UNION ALL
    FROM by_attempts
    UNION ALL
    FROM by_gain
    UNION ALL
    SELECT
        run_id, arm, epoch, 'stage_failed', stage, 1.0,
        format('the stage {} failed: {}', stage, split_part(error, chr(10), 1))
    FROM (
        FROM stage_runs
        QUALIFY row_number() OVER (PARTITION BY run_id, epoch, stage ORDER BY attempt DESC) = 1
    ) AS newest
    WHERE state = 'failed'
    UNION ALL
    SELECT
        e.run_id, e.arm, e.epoch, u.action, u.policy, 1.0,
        format(
            'the update of pi_{} was {}{}', u.policy, replace(u.action, '_', ' '),
            if(u.note = '', '', ': ' || u.note)
        )
    FROM epochs AS e
    INNER JOIN asked AS a ON a.run_id = e.run_id
    CROSS JOIN LATERAL (
        VALUES
        ('agent', a.trains_agent, e.agent_action, e.agent_note),
        ('env', a.trains_env, e.env_action, e.env_note)
    ) AS u (policy, trains, action, note)
    WHERE e.epoch > 0 AND u.trains AND u.action IN ('skipped', 'rolled_back')
    UNION ALL
    SELECT
        run_id, arm, epoch, 'lost', cause, count(*),
        format(
            '{} {} lost by the {}: {}', count(*),
            if(count(*) = 1, 'attempt was', 'attempts were'),
            if(cause = 'run', 'end of the run', cause), left(mode(error), 200)
        )
    FROM traces
    WHERE cause <> 'agent'
    GROUP BY run_id, arm, epoch, cause
    UNION ALL
    SELECT
        c.run_id, c.arm, c.epoch, 'flawed', NULL, count(DISTINCT c.task_id),
        format(
            '{} {} a flaw, most often {}', count(DISTINCT c.task_id),
            if(count(DISTINCT c.task_id) = 1, 'task has', 'tasks have'), mode(c.flaw)
        )
    FROM certificates AS c
    INNER JOIN tasks AS t ON t.run_id = c.run_id AND t.task_id = c.task_id
    WHERE NOT c.passed AND t.valid
    GROUP BY c.run_id, c.arm, c.epoch
    UNION ALL
    SELECT
        run_id, arm, epoch, 'misjudged', NULL, abs(bias),
        format(
            'the tasks chosen for a predicted success of {:.2f} were solved {:.2f} of the time',
            predicted_p, p_hat
        )
    FROM predictions
    WHERE choice = 'predicted' AND tasks >= 10
    UNION ALL
    SELECT
        run_id, arm, epoch, 'repeated', NULL, written_repeated / written,
        format('{:.0f} % of the texts of pi_env repeat an earlier one', 100 * written_repeated / written)
    FROM repeats
    WHERE written >= 10
    UNION ALL
    SELECT
        u.run_id, u.arm, u.epoch, 'one_row', 'env', u.weight_high / u.rows,
        format(
            'one row has {:.0f} % of the weight in the update of pi_env, which has {} {}',
            100 * u.weight_high / u.rows, u.rows, if(u.rows = 1, 'row', 'rows')
        )
    FROM updates AS u
    INNER JOIN asked AS a ON a.run_id = u.run_id
    WHERE u.policy = 'env' AND u.rows > 0 AND u.steps > 0 AND a.trains_env
    UNION ALL
    SELECT
        run_id, arm, epoch, 'gate_closed', policy, 1.0,
        format('the gate {} kept the update of pi_{} back: {}', gate, policy, gate_detail)
    FROM checkpoints
    WHERE gate <> 'open'
    UNION ALL
    SELECT
        run_id, arm, epoch, 'clipped', policy, CAST(metrics ->> '$.clip_fraction' AS DOUBLE),
        format(
            '{:.0f} % of the tokens were clipped in the update of pi_agent',
            100 * CAST(metrics ->> '$.clip_fraction' AS DOUBLE)
        )
    FROM checkpoints
    WHERE policy = 'agent'
    UNION ALL
    SELECT
        run_id, arm, epoch, 'untrue', 'env', 1 - fidelity,
        format('{} of {} answers of pi_env in the place of tools are wrong', wrong, observations)
    FROM fidelity
    UNION ALL
    SELECT
        run_id, arm, epoch, 'fell_back', NULL, errors,
        format(
            '{} on the test tasks fell from {:.3f} in epoch {} to {:.3f}',
            if(measure = 'sampled', 'success', 'P(answer)'), best_value, best_epoch, value
        )
    FROM fallen
)
SELECT
    s.run_id,
    s.arm,
    s.epoch,
    s.rule,
    s.subject,
    r.severity,
    CAST(s.value AS DOUBLE) AS value,
    CAST(r.threshold AS DOUBLE) AS threshold,
    s.words,
    r.advice,
    replace(
        replace(r.query, '{run}', '''' || replace(s.run_id, '''', '''''') || ''''),
        '{epoch}', CAST(s.epoch AS VARCHAR)
    ) AS query
FROM seen AS s
INNER JOIN rules AS r ON r.rule = s.rule
WHERE s.value >= r.threshold
