"""Judging what was played: did co-evolution do what it is for, and what of the paper holds?

`learning` sums up what an arm's runs came to, and what a curriculum should have done. `runs`,
`gradients` and `ranking` check the paper's findings 1 to 4, 5 and 6; `page` shows them. `lax_desk`
is a domain that can be gamed, for the ablation of the guard. `worth` and `written` say of one run
whether the tasks that pi_env wrote are worth training on. No stage imports this package;
`flows.evidence` plays the comparisons.
"""
