"""The report on runs: read (`data`, `examples`), drawn (`charts`) and laid out (`page`)."""
