"""Judges played runs: did co-evolution work, and which of the paper's findings hold?

`learning` sums up the runs of an arm, and what a curriculum should have done. `runs`, `gradients`
and `ranking` check the paper's findings 1 to 4, 5 and 6; `page` shows them. `lax_desk` is a domain
that pi_env can game, for the ablation of the guard. `worth` and `written` say of one run whether
the tasks that pi_env wrote are worth training on. No stage imports this package; `flows.evidence`
plays the comparisons.
"""
