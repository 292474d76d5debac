"""Pools as data sets that other tools read, and base tasks from what others wrote."""

from typing import Literal

Pool = Literal["d_train", "d_env"]
Format = Literal["hf", "jsonl", "verl"]
"""Who is to read an export: Hugging Face tools, OpenAI-style APIs, verl."""
