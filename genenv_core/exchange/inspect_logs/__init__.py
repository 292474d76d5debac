"""Attempts as logs that Inspect reads: `inspect view`, its data frames, its commands.

Its package cannot share an environment with ours, so the files are written by its published schema:
a log is a zip with a JSON file a sample, a summary of all samples, and a header
(https://inspect.aisi.org.uk/eval-logs.html; `log/_log.py` and `log/_recorders/eval.py` there).
What Inspect calls a sample is a task here, and what it calls an epoch is a repeat: the attempt with
`sample_index` + 1. A log has the attempts of one kind at tasks of one source, in one epoch of ours.
"""
