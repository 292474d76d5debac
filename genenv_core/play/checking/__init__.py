"""Plays a domain without models before a run does."""
