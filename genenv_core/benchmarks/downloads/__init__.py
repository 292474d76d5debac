"""Getting the official data of benchmarks, and saying what a folder has of it."""
