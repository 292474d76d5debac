"""Public benchmarks: their items and scorers, tasks to train on, measurements, and downloads."""
