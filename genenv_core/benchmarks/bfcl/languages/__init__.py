"""Reads source texts of other languages as Python values, as the official converters do."""
