"""Comparing arms over seeds: what is played, what it cost, what is decided, and the page on it.

`genenv_core.config.comparison` says what is to be compared and names the runs. Here `results` reads
what they came to, through the views; `judging` decides, by `genenv_core.algorithm.paired`; `page`
writes the HTML page.
"""
