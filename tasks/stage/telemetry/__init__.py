"""Makes spans of runs, epochs, stages and attempts for OpenTelemetry, if its variables ask.

Stages and flows call `spans`, which costs nothing while nobody asks. `sending` opens the SDK;
`spans` imports it only then. `attempts` makes spans of attempts. A span has names, ids and numbers,
and no text that a model wrote. This package is in no stage's key and decides no result.
"""
