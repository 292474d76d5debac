"""Spans of runs, epochs, stages and attempts for OpenTelemetry, where its variables ask for them.

`spans` is what stages and flows call; it costs nothing while nobody asks. `sending` opens the SDK;
only then is it imported. `attempts` makes spans of attempts. A span has names, ids and
numbers, and no text that a model wrote. Nothing here is in a stage's key or decides a result.
"""
