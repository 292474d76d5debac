"""Computes the pay of pi_env for a task (`rwr.pay`), and the weights that follow from it.

Each rule has its file: `alpha`, `learnability`, `signal`. All pay from 0 to 1. `weights`
turns pay into the weights of an update.
"""
