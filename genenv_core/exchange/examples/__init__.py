"""Examples of a warm start that people name: a file of JSONL, or what a stored run holds."""
