"""Reads what this machine, this process and its surroundings allow, and what they ran out of."""
