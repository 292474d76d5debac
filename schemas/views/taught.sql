-- Which families of tasks taught the agent most, by how far their gradients are aligned with that of the validation tasks?
-- Reads: influence, task_scores, tasks
-- Key: run_id, epoch, family
-- epoch: Epoch of the agent update; those without `grpo.attribution` have no rows.
-- attempts: Rollouts of the epoch at tasks of this family, those without a signal too.
-- groups_attempted: Groups that these rollouts made.
-- groups_with_signal: Those of them whose rewards differ.
-- groups: Groups of this family that the update trained on; some may be of earlier epochs.
-- loss_tokens: Their tokens that count in the loss.
-- alignment: Sum of their alignments (`influence`): what the family taught in this update.
-- alignment_mean: Mean alignment of a group: what one such task taught.
-- alignment_se: Standard error of alignment_mean over the groups; null for a single one.
-- share: Sum of their shares of the update, from -1 to 1.
--
-- Alignment is comparable within an update. Over epochs the weights differ, so compare ranks or
-- shares. docs/method.md says how well it ranks what families are worth.
WITH attempted AS (
    SELECT
        g.run_id,
        g.epoch,
        t.family,
        CAST(sum(g.n) AS BIGINT) AS attempts,
        count(*) AS groups_attempted,
        count(*) FILTER (NOT g.zero_signal) AS groups_with_signal
    FROM task_scores AS g
    INNER JOIN tasks AS t ON t.run_id = g.run_id AND t.task_id = g.task_id
    GROUP BY g.run_id, g.epoch, t.family
),
trained AS (
    SELECT
        i.run_id,
        i.arm,
        i.epoch,
        t.family,
        count(*) AS groups,
        CAST(sum(i.loss_tokens) AS BIGINT) AS loss_tokens,
        sum(i.alignment) AS alignment,
        avg(i.alignment) AS alignment_mean,
        stddev_samp(i.alignment) / sqrt(count(*)) AS alignment_se,
        sum(i.share) AS share
    FROM influence AS i
    INNER JOIN tasks AS t ON t.run_id = i.run_id AND t.task_id = i.task_id
    GROUP BY i.run_id, i.arm, i.epoch, t.family
)
SELECT
    i.run_id,
    i.arm,
    i.epoch,
    i.family,
    coalesce(a.attempts, 0) AS attempts,
    coalesce(a.groups_attempted, 0) AS groups_attempted,
    coalesce(a.groups_with_signal, 0) AS groups_with_signal,
    i.groups,
    i.loss_tokens,
    i.alignment,
    i.alignment_mean,
    i.alignment_se,
    i.share
FROM trained AS i
LEFT JOIN attempted AS a ON a.run_id = i.run_id AND a.epoch = i.epoch AND a.family = i.family
