"""Compares arms over seeds: reads results and costs, decides, and writes the page.

`genenv_core.config.comparison` says what to compare and names the runs. Here `results` reads their
results through the views, `judging` decides by `genenv_core.algorithm.paired`, and `page` writes
the HTML page.
"""
