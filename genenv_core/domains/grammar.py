"""The optional ConstrainsEnv protocol: what pi_env may write, where an engine can see to it."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from genenv_core.types import Context, Grammar


@runtime_checkable
class ConstrainsEnv(Protocol):
    """A domain whose generations have a schema or a grammar.

    The caller may rely on: whatever the grammar allows, `parse` finds well spelt (it may still be
    out of range, inconsistent or a duplicate).
    """

    def env_grammar(self, context: Context) -> Grammar:
        """Return what a generation for this context has to be."""
        ...
