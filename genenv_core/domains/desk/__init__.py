"""The embedded domain `desk`: chains of stock-keeping tool calls, with a knob for difficulty."""

from genenv_core.domains.desk.domain import DeskDomain, DeskOptions

__all__ = ["DeskDomain", "DeskOptions"]
