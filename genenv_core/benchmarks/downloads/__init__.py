"""Gets the official data of benchmarks, and says what a folder has of it."""
