"""BFCL's multi-turn categories: calls that are run on simulated classes, compared turn by turn."""
