"""Reads calls from texts: as the official harness does, and in full."""
