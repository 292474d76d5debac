"""The report on runs: what is read (`data`, `examples`), drawn (`charts`) and laid out (`page`)."""
