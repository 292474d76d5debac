"""Commands of the repository that play comparisons and judge their results.

`learning` is `make verify-learning` and `make claim`, `findings` is `make findings`, `guard` is the
ablation of the guard in docs/method.md, `quickstart_figure` draws the README's figure. Each plays
through `genenv compare`, as a user would; `genenv_core.evidence` judges.
"""
