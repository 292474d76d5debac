"""Calls read from texts: as the official harness reads them, and in full."""
