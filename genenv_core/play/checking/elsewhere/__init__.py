"""Plays tasks by code that is not genenv's, in another process, which only answers."""
