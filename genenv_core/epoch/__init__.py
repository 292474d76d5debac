"""The computations of the stages: pure functions from frames to rows, one module a stage."""
