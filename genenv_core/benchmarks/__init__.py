"""Public benchmarks: their items, and verdicts on predictions. No engine, no storage."""
